from io import StringIO

from rich.console import Console

from emulator.cloud_tasks.view import render

SECOND = 1_000_000


def test_the_view_shows_queues_and_the_last_attempts() -> None:
    now = 1_800_000_000 * SECOND
    row = {
        "queue": "projects/p/locations/l/queues/mail",
        "id": "mail",
        "state": "PAUSED",
        "tasks": 12,
        "in_flight": 3,
        "oldest_eta": now + 90 * SECOND,
        "executed_last_minute": 40,
        "enforced_rate": 7.5,
    }
    done = {"at": now, "queue": "mail", "task": "t1", "attempt": 2, "status": "INTERNAL(13)", "ending": "retry"}
    out = StringIO()
    console = Console(file=out, width=120)
    console.print(render("127.0.0.1:1", {"now": now, "dispatched": 52, "queues": [row], "last": [done]}))
    text = out.getvalue()
    for shown in (
        "127.0.0.1:1",
        "52 dispatched",
        "mail",
        "PAUSED",
        "12",
        "90.0 s",
        "40",
        "7.5",
        "t1",
        "INTERNAL",
        "retry",
    ):
        assert shown in text
