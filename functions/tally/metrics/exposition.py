"""Collects metrics, and gives them as Prometheus reads them, and to the exporters that OTEL_METRICS_EXPORTER names.

The SDK comes with Google's clients. An exporter (`otlp`, of the package opentelemetry-exporter-otlp-proto-http) is
installed by whoever wants it, and set up by OpenTelemetry's own variables; `console`, for a look, is in the SDK.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tally import __version__
from tally.errors import ConfigError

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_ELSEWHERE = ("", "none", "prometheus")  # what says that nothing is wanted beside /metrics


class Exposition:
    """`exporters`: their names, comma-separated. Raises ConfigError for one that is not installed."""

    def __init__(self, exporters: str = "") -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._samplers: list[Callable[[], None]] = []
        prometheus = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        self._provider = MeterProvider(
            metric_readers=[prometheus, *_readers(exporters)],
            shutdown_on_exit=False,
            exemplar_filter=AlwaysOffExemplarFilter(),
        )
        self.meter: Meter = self._provider.get_meter("tally", __version__)

    def sampled_by(self, sample: Callable[[], None]) -> None:
        """Have a function look at the state of things: on the event loop, as exporters ask in threads of their own."""
        self._samplers.append(sample)

    def sample(self) -> None:
        for sample in self._samplers:
            sample()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self.sample()
        return generate_latest(self._registry)

    def close(self) -> None:
        """Export what was not yet, and stop."""
        self._provider.shutdown()


def _readers(exporters: str) -> list[MetricReader]:
    wanted = [name.strip() for name in exporters.split(",") if name.strip() not in _ELSEWHERE]
    return [PeriodicExportingMetricReader(_exporter(name)) for name in wanted]


def _exporter(name: str) -> MetricExporter:
    found = entry_points(group="opentelemetry_metrics_exporter", name=name)
    if not found:
        raise ConfigError(f"OTEL_METRICS_EXPORTER={name}: no package that is installed has an exporter of that name")
    exporter: MetricExporter = next(iter(found)).load()()
    return exporter
