"""`tally rehearse`: a load of one's own deployment at a steady rate, and the proof at its end that every vote counted.

It makes a poll of its own and deletes it in the end, however it ends. Bounded in votes, rate and time.
"""

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Event

import click
from rich.console import Console

from tally import limits
from tally.cli.client import Client, Unreachable, insist, poll_path, server_options
from tally.cli.console import json_option, print_json

OPTIONS = ("red", "green", "blue")
MOST_VOTES, MOST_MINUTES, MOST_REQUESTS_PER_SECOND = 10_000_000, 60, 1_000
CONNECTIONS = 64
# One request in so many is sent a second time, as a client would that lost the answer.
AGAIN = 50
_LATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What came of it. Latencies are those of a request until its 202, in ms, what it was sent again for included."""

    votes: int
    accepted: int
    counted: int
    exact: bool
    sent_again: int
    seconds: float
    votes_per_second: int
    p50: float
    p99: float
    counted_after_seconds: float


@click.command()
@server_options
@json_option
@click.option("--admin-url", help="Address of function `admin`, where it is another one.")
@click.option("--votes", type=click.IntRange(1, MOST_VOTES), default=10_000, show_default=True)
@click.option("--minutes", type=click.FloatRange(0.01, MOST_MINUTES), default=1.0, show_default=True)
@click.option(
    "--list-size",
    type=click.IntRange(1, int(limits.VOTES_PER_REQUEST)),
    default=1,
    show_default=True,
    help="Votes in one request.",
)
@click.option("--wait", "patience", default=120.0, show_default=True, help="Seconds to wait in the end for the count.")
def rehearse(
    url: str,
    token: str | None,
    as_json: bool,
    admin_url: str | None,
    votes: int,
    minutes: float,
    list_size: int,
    patience: float,
) -> None:
    """Send votes to your own deployment or `make run`, evenly, and check that each was counted once.

    The poll that it makes is deleted in the end; its id stays taken. Exit code 1 if the count is not exact.

    \b
    Example:
      tally rehearse --votes 6000 --minutes 1 --url http://127.0.0.1:8080
    """
    rate = votes / list_size / minutes / 60
    if rate > MOST_REQUESTS_PER_SECOND:
        raise click.UsageError(
            f"{rate:,.0f} requests a second: at most {MOST_REQUESTS_PER_SECOND:,}; take more --minutes or --list-size"
        )
    client = Client(url, token)
    with _poll(Client(admin_url or url, token), votes) as poll:
        found = _Load(client, poll, votes, list_size, minutes * 60).run(patience)
    if as_json:
        print_json(asdict(found))
    else:
        _show(found)
    if not found.exact:
        raise SystemExit(1)


@contextmanager
def _poll(admin: Client, votes: int) -> Iterator[str]:
    poll = f"rehearsal-{secrets.token_hex(6)}"
    options = [{"id": option, "label": option} for option in OPTIONS]
    definition = {"id": poll, "title": "A rehearsal", "options": options, "expected_votes": votes}
    try:
        admin.call("POST", "/v1/polls", definition).json()
        yield poll
    finally:
        if admin.call("DELETE", poll_path(poll)).status >= 400:
            click.echo(f"the poll {poll} could not be deleted", err=True)


class _Load:
    def __init__(self, client: Client, poll: str, votes: int, size: int, seconds: float) -> None:
        self._client = client
        self._poll = poll
        self._votes = votes
        self._size = size
        self._pause = seconds * size / votes
        self._end = seconds + _LATE_SECONDS
        self._starts = iter(range(0, votes, size))
        self._latencies: list[float] = []
        self._again = 0
        self._stop = Event()

    def run(self, patience: float) -> Rehearsal:
        self._begun = time.monotonic()
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            try:
                senders = [threads.submit(self._send) for _ in range(CONNECTIONS)]
                wait(senders)
            finally:
                self._stop.set()
        for sender in senders:
            sender.result()
        sent = time.monotonic()
        counts = self._counts(patience)
        order = sorted(self._latencies)
        return Rehearsal(
            votes=self._votes,
            accepted=min(self._votes, len(self._latencies) * self._size),
            counted=sum(counts.values()),
            exact=counts == Counter(_option(number) for number in range(self._votes)),
            sent_again=self._again,
            seconds=round(sent - self._begun, 1),
            votes_per_second=round(self._votes / (sent - self._begun)),
            p50=round(order[len(order) // 2], 1),
            p99=round(order[len(order) * 99 // 100], 1),
            counted_after_seconds=round(time.monotonic() - sent, 1),
        )

    def _send(self) -> None:
        """Send the next requests, each at its time, until none is left."""
        for start in self._starts:
            request = start // self._size
            if self._stop.wait(max(0.0, self._begun + request * self._pause - time.monotonic())):
                return
            numbers = range(start, min(start + self._size, self._votes))
            begun = time.monotonic()
            self._accept(numbers)
            self._latencies.append((time.monotonic() - begun) * 1_000)
            if request % AGAIN == 0:
                self._accept(numbers)
                self._again += len(numbers)

    def _accept(self, numbers: Sequence[int]) -> None:
        votes = [{"option": _option(number), "voter": f"voter-{number}"} for number in numbers]
        left = self._begun + self._end - time.monotonic()
        value = votes[0] if self._size == 1 else {"votes": votes}
        answer = insist(self._client, poll_path(self._poll, "/votes"), value, left)
        if answer.status != 202:
            self._stop.set()
            answer.json()
            raise click.ClickException(f"votes were answered with {answer.status}: {answer.body[:200].decode()}")

    def _counts(self, patience: float) -> Counter[str]:
        """Return the counts once all are there, or what is there when the time is up."""
        until = time.monotonic() + patience
        counts = Counter[str]()
        while time.monotonic() < until:
            try:
                answer = self._client.call("GET", poll_path(self._poll, "/results"))
                if answer.status == 200:
                    counts = Counter(answer.json()["counts"])
            except Unreachable:
                pass
            if counts.total() >= self._votes:
                break
            time.sleep(0.25)
        return counts


def _option(number: int) -> str:
    return OPTIONS[number % len(OPTIONS)]


def _show(found: Rehearsal) -> None:
    console = Console()
    console.print(f"{found.votes:,} votes in {found.seconds:,} s, {found.votes_per_second:,} a second;", end=" ")
    console.print(f"answered within {found.p50:,} ms (median), {found.p99:,} ms (99 %)")
    console.print(
        f"{found.sent_again:,} were sent again; all were counted after {found.counted_after_seconds:,} s more"
    )
    verdict = "[green]exact[/green]" if found.exact else "[red]NOT EXACT[/red]"
    console.print(f"counted {found.counted:,} of {found.votes:,}: {verdict}")
