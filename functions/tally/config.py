"""Settings: every environment variable that Tally reads, read once into one frozen object. Nothing is read at import.

`VARIABLES` is the whole list; the README's table and the Terraform check are made from it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from tally.errors import ConfigError
from tally.limits import CACHED_RECORD_BYTES, STREAMS

BackendName = Literal["cloud", "emulator", "embedded"]
Durability = Literal["power-loss", "process-crash"]


class Variable(NamedTuple):
    """`where` a deployment sets it: on every part, the functions, one part, where tasks run, or nowhere (local)."""

    name: str
    default: str
    meaning: str
    where: Literal["everywhere", "functions", "public", "worker", "tasks", "local"] = "everywhere"


VARIABLES = (
    Variable("TALLY_BACKEND", "auto", "`cloud`, `emulator`, `embedded`, or `auto` (local work only)"),
    Variable("TALLY_PROJECT", "tally-local", "Google Cloud project id; with `cloud` it must be given"),
    Variable("TALLY_DATABASE", "", "Datastore database id; empty is the default database"),
    Variable("TALLY_TOPIC", "votes", "topic of the votes; that of stream 1 is `votes-1`, and so on"),
    Variable("TALLY_SUBSCRIPTION", "votes", "the worker's pull subscription on it, named likewise"),
    Variable("TALLY_STREAMS", "1", "streams that votes are published to; each must have its subscription before"),
    Variable("TALLY_STREAM", "0", "the stream whose subscription the worker pulls", "worker"),
    Variable("TALLY_DEAD_LETTER_TOPIC", "votes-dead", "topic of dead letters"),
    Variable("TALLY_DEAD_LETTER_SUBSCRIPTION", "votes-dead", "subscription that keeps dead letters"),
    Variable(
        "TALLY_BALLOT_KEYS",
        "",
        "folder with a file a ballot key version (hex); locally made under TALLY_STATE",
        "public",
    ),
    Variable("TALLY_BALLOT_KEY", "1", "version of the ballot key that new polls take", "functions"),
    Variable(
        "TALLY_LEDGER_MEMORY_BYTES",
        str(CACHED_RECORD_BYTES),
        "ledger records that a worker keeps in memory, at 40 bytes a ballot or less",
        "worker",
    ),
    Variable("TALLY_STATE", ".tally", "folder of the embedded store and the local ballot keys", "local"),
    Variable(
        "TALLY_DURABILITY",
        "power-loss",
        "what a write on embedded survives: `power-loss` (an fsync a group), or only `process-crash` (faster)",
        "local",
    ),
    Variable("TALLY_URL", "http://127.0.0.1:8080", "address of the server that commands talk to", "local"),
    Variable("TALLY_TOKEN", "", "identity token that commands send to it", "local"),
    Variable("TALLY_LOCATION", "us-central1", "region of the Cloud Tasks queues", "tasks"),
    Variable("TALLY_PUSH_QUEUES", "", "queues, comma-separated, that push; workers pull from all others", "tasks"),
    Variable("TALLY_TASK_MODULES", "", "modules, comma-separated, whose import registers the task functions", "tasks"),
    Variable("TALLY_RUN_TASK_URL", "http://127.0.0.1:8080", "where the function `run_task` is served", "tasks"),
    Variable("TALLY_RUN_TASK_IAM", "false", "`true` where Cloud Run checks the tokens sent to `run_task`", "tasks"),
    Variable("TALLY_TASKS_ACCOUNT", "", "service account in the tokens that Cloud Tasks sends to `run_task`", "tasks"),
    Variable(
        "OTEL_METRICS_EXPORTER",
        "",
        "OpenTelemetry exporters, comma-separated, that get the metrics too: `otlp` (its package installed), `console`",
        "local",
    ),
    Variable("PUBSUB_EMULATOR_HOST", "", "host:port of a Pub/Sub emulator", "local"),
    Variable("DATASTORE_EMULATOR_HOST", "", "host:port of a Datastore emulator", "local"),
    Variable("CLOUD_TASKS_EMULATOR_HOST", "", "host:port of a Cloud Tasks emulator", "local"),
)
_CLOUD_RUN = ("K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL")
_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]+:\d{1,5}")


class Channel(NamedTuple):
    """A topic and the one subscription on it."""

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`topic` and `subscription` are those of stream 0; `streams` take votes, `stream` is the one that is pulled."""

    backend: BackendName
    project: str
    database: str
    topic: str
    subscription: str
    streams: int
    stream: int
    dead_letter_topic: str
    dead_letter_subscription: str
    ballot_keys: Path
    ballot_key: str
    ledger_memory_bytes: int
    state: Path
    durability: Durability
    location: str
    push_queues: tuple[str, ...]
    task_modules: tuple[str, ...]
    run_task_url: str
    run_task_iam: bool
    tasks_account: str
    metrics_exporters: str
    pubsub_emulator: str
    datastore_emulator: str
    cloud_tasks_emulator: str

    def channel(self, stream: int) -> Channel:
        """Return what a stream goes through; stream 0 has the bare names."""
        suffix = f"-{stream}" if stream else ""
        return Channel(self.topic + suffix, self.subscription + suffix)

    @property
    def vote_channels(self) -> tuple[Channel, ...]:
        """Those of the streams that votes are published to."""
        return tuple(self.channel(stream) for stream in range(self.streams))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Those that are to be there, the dead letters' last. A stream that is only drained is none of them."""
        return (*self.vote_channels, Channel(self.dead_letter_topic, self.dead_letter_subscription))


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; raise ConfigError naming the variable whose value is wrong.

    `auto` takes the emulators where their host variables are set, else embedded, and refuses on Cloud Run.
    """
    value = {variable.name: environ.get(variable.name) or variable.default for variable in VARIABLES}
    hosts = {name: _host(name, value[name]) for name in value if name.endswith("_EMULATOR_HOST")}
    state = Path(value["TALLY_STATE"])
    backend = _backend(value["TALLY_BACKEND"], hosts, on_cloud_run=any(name in environ for name in _CLOUD_RUN))
    if backend == "cloud" and not environ.get("TALLY_PROJECT"):
        raise ConfigError("TALLY_PROJECT is not set: TALLY_BACKEND=cloud needs the id of the Google Cloud project")
    return Settings(
        backend=backend,
        project=value["TALLY_PROJECT"],
        database=value["TALLY_DATABASE"],
        topic=value["TALLY_TOPIC"],
        subscription=value["TALLY_SUBSCRIPTION"],
        streams=_number("TALLY_STREAMS", value["TALLY_STREAMS"], 1, STREAMS),
        stream=_number("TALLY_STREAM", value["TALLY_STREAM"], 0, STREAMS - 1),
        dead_letter_topic=value["TALLY_DEAD_LETTER_TOPIC"],
        dead_letter_subscription=value["TALLY_DEAD_LETTER_SUBSCRIPTION"],
        ballot_keys=Path(value["TALLY_BALLOT_KEYS"]) if value["TALLY_BALLOT_KEYS"] else state / "ballot-keys",
        ballot_key=value["TALLY_BALLOT_KEY"],
        ledger_memory_bytes=_bytes("TALLY_LEDGER_MEMORY_BYTES", value["TALLY_LEDGER_MEMORY_BYTES"]),
        state=state,
        durability=_durability(value["TALLY_DURABILITY"]),
        location=value["TALLY_LOCATION"],
        push_queues=_names(value["TALLY_PUSH_QUEUES"]),
        task_modules=_names(value["TALLY_TASK_MODULES"]),
        run_task_url=value["TALLY_RUN_TASK_URL"],
        run_task_iam=_flag("TALLY_RUN_TASK_IAM", value["TALLY_RUN_TASK_IAM"]),
        tasks_account=value["TALLY_TASKS_ACCOUNT"],
        metrics_exporters=value["OTEL_METRICS_EXPORTER"],
        pubsub_emulator=hosts["PUBSUB_EMULATOR_HOST"],
        datastore_emulator=hosts["DATASTORE_EMULATOR_HOST"],
        cloud_tasks_emulator=hosts["CLOUD_TASKS_EMULATOR_HOST"],
    )


def _host(name: str, value: str) -> str:
    if value and not _HOST.fullmatch(value):
        raise ConfigError(f"{name}={value!r}: want host:port, without a scheme, path or space")
    return value


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={value!r}: want true or false")
    return value == "true"


def _number(name: str, value: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
        raise ConfigError(f"{name}={value!r}: want a whole number from {least} to {most}")
    return int(value)


def _bytes(name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,14}", value):
        raise ConfigError(f"{name}={value!r}: want a whole number of bytes above 0")
    return int(value)


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _durability(value: str) -> Durability:
    if value not in ("power-loss", "process-crash"):
        raise ConfigError(f"TALLY_DURABILITY={value!r}: want power-loss or process-crash")
    return cast(Durability, value)


def _backend(value: str, hosts: Mapping[str, str], *, on_cloud_run: bool) -> BackendName:
    pubsub, datastore = hosts["PUBSUB_EMULATOR_HOST"], hosts["DATASTORE_EMULATOR_HOST"]
    if value == "auto":
        if on_cloud_run:
            raise ConfigError("TALLY_BACKEND=auto is for local work: on Cloud Run set TALLY_BACKEND=cloud")
        value = "emulator" if pubsub and datastore else "embedded"
    if value not in ("cloud", "emulator", "embedded"):
        raise ConfigError(f"TALLY_BACKEND={value!r}: want auto, cloud, emulator or embedded")
    if value == "emulator" and not (pubsub and datastore):
        raise ConfigError("TALLY_BACKEND=emulator needs PUBSUB_EMULATOR_HOST and DATASTORE_EMULATOR_HOST")
    if value == "cloud" and (pubsub or datastore):
        raise ConfigError("TALLY_BACKEND=cloud, but an emulator host variable is set: unset one or the other")
    return cast(BackendName, value)
