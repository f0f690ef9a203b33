import asyncio
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from tally import bootstrap, config
from tally.cli import main
from tally.clock import SECOND, SystemClock
from tally.ports import Insert
from tally.tasks.deferred import registry
from tally.tasks.outbox import entry
from tally.tasks.task import Task


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)}


def invoke(environ: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main, ["task", *arguments], env=environ)


class Earlier:
    """The clock of a committer that died a minute ago."""

    def now(self) -> int:
        return SystemClock().now() - 60 * SECOND


def leave(environ: dict[str, str], queue: str) -> str:
    """Leave a task in the outbox, as a transaction does; return the id of its entry."""

    async def work() -> str:
        made = entry("mail", Task.text("hello"), clock=Earlier(), random=Random(1))
        written = replace(made.write.entity, properties={**made.write.entity.properties, "queue": queue})
        backend = await bootstrap.open_backend(config.load(environ))
        await backend.store.commit([Insert(written)])
        await backend.close()
        return made.id

    return asyncio.run(work())


def park(environ: dict[str, str], entry_id: str) -> None:
    async def work() -> None:
        async with bootstrap.task_queues(environ) as system:
            await system.outbox().drain([entry_id])

    asyncio.run(work())


def test_a_task_of_a_transaction_that_no_queue_takes_is_listed_tried_again_and_dropped(environ: dict[str, str]) -> None:
    entry_id = leave(environ, "no such name")
    park(environ, entry_id)
    (shown,) = json.loads(invoke(environ, "parked", "list", "--json").output)
    assert (shown["id"], shown["queue"], shown["reason"]) == (f"outbox:{entry_id}", "no such name", "no queue takes it")
    assert "no such name" in shown["error"]
    assert shown["id"] in invoke(environ, "parked", "list").output
    assert "0 replayed" in invoke(environ, "parked", "replay", "--all").output
    assert invoke(environ, "parked", "drop", shown["id"]).output == "1 dropped\n"
    assert invoke(environ, "parked", "list").output == "0 parked\n"


def test_what_a_transaction_left_is_swept_to_its_queue(environ: dict[str, str]) -> None:
    leave(environ, "mail")
    assert invoke(environ, "sweep").output == "1 tasks added, 0 records removed\n"
    assert invoke(environ, "sweep").output == "0 tasks added, 0 records removed\n"
    listed = CliRunner().invoke(main, ["queue", "list", "mail", "--json"], env=environ).output
    assert [each["state"] for each in json.loads(listed)] == ["waiting"]


def test_a_call_that_waits_is_run_now(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_tasks.py").write_text("from tally.tasks.deferred import task\n@task('later')\ndef f(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    environ["TALLY_TASK_MODULES"] = "later_tasks"
    run_id = invoke(environ, "call", "later", "--delay", "3600").output.strip()
    assert invoke(environ, "run", run_id).output == "due now\n"
    again = invoke(environ, "run", run_id)
    assert (again.exit_code, "does not wait" in again.output) == (1, True)
    del registry.functions["later"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("parked", "replay"), 2, "--all"),
        (("parked", "replay", "x"), 1, "no parked task 'x'"),
        (("parked", "drop", "outbox:x"), 1, "no parked outbox entry 'x'"),
        (("parked", "drop", "--all"), 1, "Aborted"),
        (("call", "no.such"), 1, "no task 'no.such' is registered"),
        (("status", "x"), 1, "no run 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    environ: dict[str, str], arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = invoke(environ, *arguments)
    assert (result.exit_code, says in result.output) == (code, True), result.output
