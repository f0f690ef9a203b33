"""The live terminal view: the queues, and the last attempts."""

import asyncio
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from emulator.cloud_tasks.control import status
from emulator.cloud_tasks.server import Running
from tally.clock import SECOND, to_datetime

REFRESH_SECONDS = 0.5
ROWS = 15


async def show(running: Running, console: Console) -> None:
    """Keep the view up to date until cancelled."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(render(running.address, status(running.queues, running.dispatcher)), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)


def render(address: str, state: dict[str, Any]) -> Group:
    """Return the view of a status."""
    queues = Table(title=f"Cloud Tasks emulator on {address}, {state['dispatched']} dispatched", expand=True)
    for heading in ("queue", "state", "tasks", "in flight", "next", "last minute", "rate/s"):
        queues.add_column(heading, justify="left" if heading in ("queue", "state") else "right")
    for row in state["queues"]:
        eta = row["oldest_eta"]
        queues.add_row(
            row["id"],
            row["state"],
            str(row["tasks"]),
            str(row["in_flight"]),
            "" if eta is None else f"{max(0, eta - state['now']) / SECOND:.1f} s",
            str(row["executed_last_minute"]),
            f"{row['enforced_rate']:g}",
        )
    last = Table(title="Last attempts", expand=True)
    for heading in ("at", "queue", "task", "attempt", "answer", "then"):
        last.add_column(heading)
    for done in state["last"][:ROWS]:
        at = to_datetime(done["at"]).strftime("%H:%M:%S.%f")[:-3]
        last.add_row(at, done["queue"], done["task"], str(done["attempt"]), done["status"], done["ending"])
    return Group(queues, last)
