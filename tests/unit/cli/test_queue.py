import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tally import bootstrap, config
from tally.bootstrap import World
from tally.cli import main
from tally.cli.queue import queue as queue_commands
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task

Invoke = Callable[..., Result]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path), "COLUMNS": "200"}


@pytest.fixture
def invoke(environ: dict[str, str]) -> Invoke:
    """Run `tally queue …` on an embedded file."""
    return lambda *arguments: CliRunner().invoke(main, ["queue", *arguments], env=environ)


def fail(environ: dict[str, str]) -> None:
    """Lease what is due and reject it."""

    async def work() -> None:
        backend = await bootstrap.open_backend(config.load(environ))
        queue: PullQueue = bootstrap.pull_queues(backend, World())("mail")
        for lease in await queue.lease(10):
            await queue.reject(lease, "boom\nin line 2")
        await backend.close()

    asyncio.run(work())


def test_a_task_is_added_listed_peeked_counted_and_deleted(invoke: Invoke) -> None:
    assert invoke("add", "mail", '{"to":7}', "--name", "a", "--tag", "t").output == "a: added\n"
    assert json.loads(invoke("add", "mail", "1", "--name", "a", "--json").output) == {"name": "a", "status": "exists"}
    assert invoke("add", "mail", "hello", "--text", "--delay", "60").exit_code == 0
    listed = json.loads(invoke("list", "mail", "--json").output)
    assert [(each["state"], each["tag"], each["bytes"]) for each in listed] == [
        ("waiting", "t", 8),
        ("delayed", None, 5),
    ]
    assert json.loads(invoke("peek", "mail", "a", "--json").output)["task"]["json"] == {"to": 7}
    assert json.loads(invoke("stats", "mail", "--json").output)["tasks"] == 2
    assert invoke("peek", "mail", "a").output.splitlines()[-1].startswith('task     {"v":1,"json":{"to":7},')
    assert "\npaused               false\n" in invoke("stats", "mail").output
    assert invoke("delete", "mail", "a").output == "a: deleted\n"
    assert invoke("purge", "mail", "--yes").output == "1 task deleted\n"


def test_a_task_that_waits_for_its_time_is_run_now(invoke: Invoke) -> None:
    invoke("add", "mail", "1", "--name", "a", "--delay", "3600")
    assert invoke("run", "mail", "a").output == "a: due now\n"
    assert [each["state"] for each in json.loads(invoke("list", "mail", "--json").output)] == ["waiting"]
    again = invoke("run", "mail", "a")
    assert (again.exit_code, "no task a waits" in again.output) == (1, True)


def test_a_task_is_one_line_of_a_list_with_its_whole_name_and_tag(invoke: Invoke) -> None:
    assert invoke("add", "mail", "1", "--name", "n" * 60, "--tag", "[/b]").exit_code == 0
    head, line = invoke("list", "mail").output.splitlines()
    assert head.split() == ["name", "state", "tag", "eta", "attempts", "bytes", "last", "error"]
    assert line.split()[:3] == ["n" * 60, "waiting", "[/b]"]
    assert line.index("waiting") == head.index("state")


def test_a_rate_is_set_shown_and_taken_off(invoke: Invoke) -> None:
    assert invoke("rate", "mail", "5", "--burst", "20").output == "mail: 5/s, burst 20\n"
    assert json.loads(invoke("stats", "mail", "--json").output)["enforced_rate"] == 5
    assert invoke("rate", "mail", "--off").output == "mail: no rate\n"
    assert json.loads(invoke("stats", "mail", "--json").output)["enforced_rate"] is None
    assert (invoke("rate", "mail").exit_code, invoke("rate", "mail", "5", "--off").exit_code) == (2, 2)
    assert "want more than 0" in invoke("rate", "mail", "0").output


def test_a_push_queue_sends_a_task_now(environ: dict[str, str], invoke: Invoke) -> None:
    environ["TALLY_PUSH_QUEUES"] = "mail"

    async def add() -> None:
        async with bootstrap.task_queues(environ) as system:
            await system.push("mail").add(Task(name="a", delay=3_600), url="http://127.0.0.1:9/")

    asyncio.run(add())
    assert invoke("run", "mail", "a").output == "a: due now\n"
    assert (invoke("run", "mail", "b").exit_code, invoke("run", "other", "a").exit_code) == (1, 1)


def test_what_is_not_there_or_is_wrong_is_one_line_and_exit_code_1(invoke: Invoke) -> None:
    invoke("rate", "mail", "5")
    for arguments, says in (
        (("peek", "mail", "a"), "no task a"),
        (("delete", "mail", "a"), "no task a"),
        (("stats", "a_b"), "queue name 'a_b'"),
        (("add", "mail", "{", "--name", "x"), "not JSON"),
        (("add", "mail", "1", "--name", "a b"), "task name 'a b'"),
        (("dead", "drop", "mail", "a"), "no such dead letter"),
    ):
        result = invoke(*arguments)
        assert (result.exit_code, says in result.output) == (1, True), result.output


def test_dead_letters_are_listed_replayed_and_dropped(invoke: Invoke, environ: dict[str, str]) -> None:
    for name in ("a", "b", "c"):
        invoke("add", "mail", "1", "--name", name)
    fail(environ)
    assert [each["error"] for each in json.loads(invoke("dead", "list", "mail", "--json").output)] == [
        "boom\nin line 2"
    ] * 3
    assert invoke("dead", "replay", "mail", "a").output == "a: replayed\n1 replayed\n"
    assert invoke("dead", "replay", "mail").exit_code == 2
    assert invoke("dead", "drop", "mail", "--all", "--yes").output == "2 dropped\n"
    assert [each["name"] for each in json.loads(invoke("list", "mail", "--json").output)] == ["a"]


@pytest.mark.parametrize("arguments", [("purge", "mail"), ("dead", "drop", "mail", "--all")])
def test_a_queue_is_emptied_only_after_a_yes(
    environ: dict[str, str], invoke: Invoke, arguments: tuple[str, ...]
) -> None:
    for name in ("a", "b"):
        invoke("add", "mail", "1", "--name", name)
        if name == "a":
            fail(environ)

    def left() -> tuple[int, int]:
        counted = json.loads(invoke("stats", "mail", "--json").output)
        return counted["tasks"], counted["dead"]

    for answer, code, after in (("n\n", 1, (1, 1)), ("y\n", 0, (0, 1) if arguments[0] == "purge" else (1, 0))):
        result = CliRunner().invoke(main, ["queue", *arguments], env=environ, input=answer)
        assert (result.exit_code, "of queue mail? [y/N]" in result.output, left()) == (code, True, after)


def test_pause_and_resume_show_in_the_stats(invoke: Invoke) -> None:
    invoke("add", "mail", "1")
    assert invoke("pause", "mail").output == "mail: paused\n"
    assert json.loads(invoke("stats", "mail", "--json").output)["paused"] is True
    assert invoke("resume", "mail").output == "mail: running\n"
    assert invoke("sweep", "mail").output == "0 removed\n"


LOOKS = [
    ("list", "mial"),
    ("list", "mial", "--json"),
    ("list", "mial", "--state", "dead"),
    ("stats", "mial"),
    ("stats", "mial", "--json"),
    ("peek", "mial", "a"),
    ("delete", "mial", "a"),
    ("run", "mial", "a"),
    ("purge", "mial"),
    ("purge", "mial", "--yes"),
    ("resume", "mial"),
    ("rate", "mial", "--off"),
    ("sweep", "mial"),
    ("dead", "list", "mial"),
    ("dead", "list", "mial", "--json"),
    ("dead", "replay", "mial", "--all"),
    ("dead", "drop", "mial", "a"),
    ("dead", "drop", "mial", "--all"),
]


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_a_wrong_name_is_no_empty_queue(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    invoke("add", "mail", "1", "--name", "a")
    result = invoke(*arguments)
    assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
    for says in ("there is no queue mial", "`tally queue list`", "queue-not-found"):
        assert says in result.output
    assert [each["name"] for each in json.loads(invoke("list", "--json").output)] == ["mail"]  # asking made none


def test_every_command_of_one_queue_asks_whether_it_is_there_but_those_that_make_one(invoke: Invoke) -> None:
    """A command that is new must be in one of the two lists."""
    asked = {" ".join(arguments[: 1 + (arguments[0] == "dead")]) for arguments in LOOKS}
    assert asked | {"add", "pause", "rate"} == _commands(queue_commands)


def _commands(group: click.Group, prefix: str = "") -> set[str]:
    found = set[str]()
    for name, command in group.commands.items():
        found |= _commands(command, f"{name} ") if isinstance(command, click.Group) else {prefix + name}
    return found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "images", "1", "--name", "a"), "a: added\n"),
        (("pause", "images"), "images: paused (a new queue: no task was ever added to it)\n"),
        (("rate", "images", "5"), "images: 5/s, burst 5\n"),
    ],
)
def test_a_first_task_pause_or_rate_makes_a_queue(invoke: Invoke, arguments: tuple[str, ...], says: str) -> None:
    assert invoke(*arguments).output == says
    assert invoke("stats", "images").exit_code == 0
    assert invoke("pause", "images").output == "images: paused\n"  # it is there by now


def test_a_queue_that_was_emptied_or_only_paused_is_known(invoke: Invoke) -> None:
    invoke("add", "mail", "1", "--name", "a")
    invoke("delete", "mail", "a")
    invoke("pause", "images")
    for queue in ("mail", "images"):
        assert json.loads(invoke("list", queue, "--json").output) == []


def test_list_without_a_queue_shows_every_queue_and_its_numbers(environ: dict[str, str], invoke: Invoke) -> None:
    assert json.loads(invoke("list", "--json").output) == []
    environ["TALLY_PUSH_QUEUES"] = "sent"
    for queue in ("mail", "images"):
        invoke("add", queue, "1")
    invoke("pause", "images")
    listed = json.loads(invoke("list", "--json").output)
    shown = [(each["name"], each["kind"], each["tasks"], each["paused"]) for each in listed]
    assert shown == [("images", "pull", 1, True), ("mail", "pull", 1, False), ("sent", "push", 0, False)]
    assert listed[0]["dead"] == 0
    lines = invoke("list").output.splitlines()
    assert [name for name in ("images", "mail", "sent") if any(name in line for line in lines)] == [
        "images",
        "mail",
        "sent",
    ]


def test_a_push_queue_is_paused_counted_and_purged_as_one(environ: dict[str, str], invoke: Invoke) -> None:
    environ["TALLY_PUSH_QUEUES"] = "sent"

    async def add() -> None:
        async with bootstrap.task_queues(environ) as system:
            for name in ("a", "b"):
                await system.push("sent").add(Task(name=name, delay=3_600), url="http://127.0.0.1:9/")

    asyncio.run(add())
    assert invoke("pause", "sent").output == "sent: paused\n"
    counted = json.loads(invoke("stats", "sent", "--json").output)
    assert (counted["tasks"], counted["paused"], counted["in_flight"]) == (2, True, None)
    assert "in_flight            -" in invoke("stats", "sent").output
    assert invoke("resume", "sent").output == "sent: running\n"
    assert invoke("delete", "sent", "a").output == "a: deleted\n"
    assert invoke("purge", "sent", "--yes").output == "sent: purged\n"
    assert json.loads(invoke("stats", "sent", "--json").output)["tasks"] == 0


@pytest.mark.parametrize("arguments", [("list", "sent"), ("peek", "sent", "a"), ("add", "sent", "1")])
def test_what_only_a_pull_queue_can_do_says_so(
    environ: dict[str, str], invoke: Invoke, arguments: tuple[str, ...]
) -> None:
    environ["TALLY_PUSH_QUEUES"] = "sent"
    result = invoke(*arguments)
    assert (result.exit_code, "sent is pushed" in result.output) == (1, True)
