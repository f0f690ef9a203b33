"""Google's emulators, started once a session for all suites, and the fence that keeps tests off the real cloud."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from emulator import google
from emulator.launch import FLAVOUR_VARIABLE, GOOGLES, cloud_tasks, run, stack
from tally.tasks import deferred
from tests import indexes, smoke
from tests.backends import BACKENDS

Hosts = Callable[[google.Flavour], dict[str, str]]

# A busy machine, or coverage, makes an example slow and nothing wrong.
settings.register_profile("tally", deadline=None)
settings.load_profile("tally")

# Inherited by every process that a test starts: whatever settings it ends up with, there are no credentials to be had.
NO_CREDENTIALS = "/nonexistent/tests-never-reach-the-cloud.json"
if not os.environ.get("TALLY_TEST_CLOUD"):
    os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = NO_CREDENTIALS


@pytest.fixture(scope="session", autouse=True)
def queries_have_their_indexes() -> Iterator[None]:
    with indexes.watched():
        yield


@pytest.fixture(autouse=True)
def events_reach_the_test() -> None:
    """Undo what commands and simulations did to the log: it would keep events from `caplog` for all tests after."""
    logging.disable(logging.NOTSET)
    logger = logging.getLogger("tally")
    logger.handlers, logger.propagate, logger.disabled = [], True, False
    logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_task_queue_is_connected() -> None:
    """Undo what a composed function did to the one registry of task functions: it is connected for good."""
    deferred.registry.connect(None)


_NEEDED = "needs Google's emulators: "
_OUTCOMES = ("passed", "failed", "error", "skipped")


@pytest.fixture(scope="session")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Give the host variables of a Datastore flavour and Pub/Sub: running ones (the environment's), or started once.

    Skips where an emulator is not installed, and fails there when CI is set.
    """
    given = {name: os.environ[name] for name in ("PUBSUB_EMULATOR_HOST",) if os.environ.get(name)}
    known: dict[google.Flavour, dict[str, str]] = {}
    with ExitStack() as running:

        def hosts(flavour: google.Flavour) -> dict[str, str]:
            if flavour not in known:
                log_dir: Path = tmp_path_factory.mktemp("emulators")
                environ = given | _given_datastore(flavour)
                try:
                    started = running.enter_context(stack(flavour, environ=environ, log_dir=log_dir, variables=GOOGLES))
                except google.Missing as error:
                    if os.environ.get("CI"):
                        pytest.fail(str(error), pytrace=False)
                    pytest.skip(f"{_NEEDED}{error}")
                given.setdefault("PUBSUB_EMULATOR_HOST", started.hosts["PUBSUB_EMULATOR_HOST"])
                smoke.check(started.hosts)
                known[flavour] = dict(started.hosts)
            return known[flavour]

        yield hosts


@pytest.fixture(scope="session")
def cloud_tasks_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the host:port of a Cloud Tasks emulator: a running one (the environment's), or one started once."""
    given = os.environ.get("CLOUD_TASKS_EMULATOR_HOST")
    if given:
        yield given
        return
    with run([cloud_tasks()], log_dir=tmp_path_factory.mktemp("cloud-tasks")) as (process,):
        yield process.address


def _given_datastore(flavour: google.Flavour) -> dict[str, str]:
    """Return the environment's Datastore emulator if it has this flavour."""
    host = os.environ.get("DATASTORE_EMULATOR_HOST")
    if host and flavour == os.environ.get(FLAVOUR_VARIABLE, google.DEFAULT):
        return {"DATASTORE_EMULATOR_HOST": host}
    return {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests on Google's emulators were skipped, and what became of the conformance tests on each backend.

    Here, as jobs side by side report to a process that loads no other conftest.
    """
    skips = [report.longrepr for report in terminalreporter.getreports("skipped")]
    reasons = [skip[2] for skip in skips if isinstance(skip, tuple) and _NEEDED in skip[2]]
    if reasons:
        terminalreporter.write_line(f"skipped what {reasons[0].removeprefix('Skipped: ')}")
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in _OUTCOMES:
        for report in terminalreporter.getreports(outcome):
            if "tests/conformance/" in report.nodeid and (report.when == "call" or outcome != "passed"):
                counts.update((name, outcome) for name in BACKENDS if f"[{name}" in report.nodeid)
    for name in BACKENDS if counts else ():
        parts = [f"{counts[name, outcome]} {outcome}" for outcome in _OUTCOMES]
        terminalreporter.write_line(f"conformance {name}: {', '.join(parts)}")
