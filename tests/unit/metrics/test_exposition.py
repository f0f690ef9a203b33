"""What exporters beside `/metrics` get: they are found by name, and given what it shows, sampled now and then."""

import asyncio
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from tally import logs
from tally.errors import ConfigError
from tally.metrics import exposition
from tally.metrics.telemetry import SAMPLE_SECONDS, Telemetry
from tally.testing.loop import VirtualLoop


def test_an_exporter_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigError, match="OTEL_METRICS_EXPORTER=smoke-signals"):
        Telemetry("prometheus, smoke-signals")


class Exported(MetricExporter):
    """An exporter as a package would bring it."""

    got: ClassVar[list[MetricsData]] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        self.got.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None: ...

    @classmethod
    def load(cls) -> "type[Exported]":
        return cls


def test_an_exporter_gets_what_metrics_shows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[dict[str, str]] = []

    def entry_points(**names: str) -> list[type[Exported]]:
        asked.append(names)
        return [Exported]

    monkeypatch.setattr(exposition, "entry_points", entry_points)
    telemetry = Telemetry("ours")
    with caplog.at_level("INFO", "tally"):
        logs.event("lane-parked")
    telemetry.close()
    assert asked == [{"group": "opentelemetry_metrics_exporter", "name": "ours"}]
    assert '"name": "tally.events"' in Exported.got[-1].to_json()


def test_samples_are_taken_now_and_then_for_exporters_that_ask_by_themselves(tally_loop: VirtualLoop) -> None:
    telemetry = Telemetry()
    taken: list[float] = []
    telemetry._exposition.sampled_by(lambda: taken.append(asyncio.get_running_loop().time()))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5 * SAMPLE_SECONDS):
                await telemetry.run()

    tally_loop.run(main())
    telemetry.close()
    assert len(taken) == 3
