"""`tally rehearse`: a load of one's own deployment at a steady rate, and the proof at its end that every vote counted.

It makes a poll of its own and deletes it in the end, however it ends. Bounded in votes, rate and time: what is not sent
a minute after the last vote was due is not sent any more.
"""

import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from random import Random
from threading import Event, Lock, Thread, main_thread
from threading import current_thread as this_thread

import click
from rich.console import Console

from tally import limits
from tally.cli.client import Client, Unreachable, insist, poll_path, server_options
from tally.cli.console import Range, Whole, json_option, print_json
from tally.retry import full_jitter

OPTIONS = ("red", "green", "blue")
MOST_VOTES, MOST_MINUTES, MOST_REQUESTS_PER_SECOND = 10_000_000, 60, 1_000
CONNECTIONS = 64
# One request in so many is sent a second time, as a client would that lost the answer.
AGAIN = 50
LATE_SECONDS = 60.0
PROGRESS_SECONDS = 10.0
# Once all are counted, a copy that were counted too would show within this time.
SETTLED_SECONDS = 3.0
DELETE_ATTEMPTS = 3
MORE_FROM_AN_ADDRESS = "take a larger --list-size, or let the load balancer's requests_per_minute be more for a while"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What came of it. `exact`: each accepted vote was counted, once, for its option, and nothing else.

    Latencies are those of a request from the moment at which it was due until its 202, in ms: a wait for a free
    connection and what was sent again are in them. `sent_again`: votes that were accepted, and then sent once more.
    """

    votes: int
    accepted: int
    counted: int
    exact: bool
    sent_again: int
    seconds: float
    votes_per_second: int
    p50: float | None
    p99: float | None
    counted_after_seconds: float

    @property
    def good(self) -> bool:
        return self.exact and self.accepted == self.votes


@click.command()
@server_options
@json_option
@click.option("--admin-url", help="Address of function `admin`, where it is another one.")
@click.option(
    "--votes",
    type=Whole(1, MOST_VOTES),
    default=10_000,
    show_default=True,
    help="Votes in all, each of another voter.",
)
@click.option(
    "--minutes",
    type=Range(0.01, MOST_MINUTES),
    default=1.0,
    show_default=True,
    help="Minutes in which they are sent, evenly.",
)
@click.option(
    "--list-size",
    type=Whole(1, int(limits.VOTES_PER_REQUEST)),
    default=1,
    show_default=True,
    help="Votes in one request.",
)
@click.option(
    "--wait",
    "patience",
    type=Range(0, 3_600),
    default=120.0,
    show_default=True,
    help="Seconds to wait in the end for the count.",
)
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

    The poll that it makes is deleted in the end, also when it is interrupted; its id stays taken, and its ledger stays
    until `tally purge` may remove it, a month later. Exit code 1 if not every vote was sent in time, accepted, and
    counted once; 130 if it was interrupted.

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
    with _interrupted_by_sigterm(), _poll(Client(admin_url or url, token), votes) as poll:
        found = _Load(client, poll, votes, list_size, minutes * 60).run(patience)
    if as_json:
        print_json(asdict(found))
    else:
        _show(found, minutes * 60)
    if not found.good:
        raise SystemExit(1)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that the poll is deleted then too."""
    if this_thread() is not main_thread():  # where signals cannot be set
        yield
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def _poll(admin: Client, votes: int) -> Iterator[str]:
    poll = f"rehearsal-{secrets.token_hex(6)}"
    options = [{"id": option, "label": option} for option in OPTIONS]
    definition = {"id": poll, "title": "A rehearsal", "options": options, "expected_votes": votes}
    try:
        admin.call("POST", "/v1/polls", definition).json()
    except (click.ClickException, KeyboardInterrupt):
        _deleted(admin, poll)  # it may be there, though no answer came, or one that it failed
        raise
    try:
        click.echo(f"rehearsing with the poll {poll}, which is deleted in the end", err=True)
        yield poll
    except KeyboardInterrupt:
        click.echo("interrupted: the poll is deleted", err=True)
        raise
    finally:
        for attempt in range(1, DELETE_ATTEMPTS + 1):
            if _deleted(admin, poll):
                break
            if attempt < DELETE_ATTEMPTS:
                time.sleep(full_jitter(attempt, base=0.5, cap=2, random=Random()))
        else:
            click.echo(f"the poll {poll} could not be deleted; later: tally poll delete {poll}", err=True)


def _deleted(admin: Client, poll: str) -> bool:
    try:
        return admin.call("DELETE", poll_path(poll)).status < 400
    except Unreachable:
        return False


class _Load:
    def __init__(self, client: Client, poll: str, votes: int, size: int, seconds: float) -> None:
        self._client = client
        self._poll = poll
        self._votes = votes
        self._size = size
        self._pause = seconds * size / votes
        self._seconds = seconds
        self._starts = iter(range(0, votes, size))
        self._latencies: list[float] = []
        self._accepted = Counter[str]()
        self._again = 0
        self._lock = Lock()
        self._stop = Event()
        self._failed: Exception | None = None

    def run(self, patience: float) -> Rehearsal:
        self._begun = time.monotonic()
        # Daemons: who interrupts does not wait for requests that are out.
        senders = [Thread(target=self._send, daemon=True) for _ in range(CONNECTIONS)]
        for sender in senders:
            sender.start()
        try:
            self._watch(senders)
        finally:
            self._stop.set()
        if self._failed is not None:
            raise self._failed
        sent = time.monotonic()
        counts, counted = self._counts(patience)
        order = sorted(self._latencies)
        return Rehearsal(
            votes=self._votes,
            accepted=self._accepted.total(),
            counted=counts.total(),
            exact=counts == self._accepted,
            sent_again=self._again,
            seconds=round(sent - self._begun, 1),
            votes_per_second=round(self._accepted.total() / (sent - self._begun)),
            p50=round(order[len(order) // 2], 1) if order else None,
            p99=round(order[len(order) * 99 // 100], 1) if order else None,
            counted_after_seconds=round(counted - sent, 1),
        )

    def _watch(self, senders: Sequence[Thread]) -> None:
        """Wait until all is sent or something failed; say how far it is."""
        told = self._begun
        for sender in senders:
            while sender.is_alive() and self._failed is None:
                sender.join(0.1)
                if time.monotonic() - told >= PROGRESS_SECONDS:
                    told = time.monotonic()
                    click.echo(f"{self._accepted.total():,} of {self._votes:,} votes are accepted", err=True)

    def _send(self) -> None:
        """Send the next requests, each at its time, until none is left or it is too late."""
        try:
            for start in self._starts:
                due = self._begun + start // self._size * self._pause
                if self._stop.wait(max(0.0, due - time.monotonic())) or self._left() <= 0:
                    return
                numbers = range(start, min(start + self._size, self._votes))
                self._accept(numbers)
                with self._lock:
                    self._latencies.append((time.monotonic() - due) * 1_000)
                    self._accepted.update(map(_option, numbers))
                if start // self._size % AGAIN == 0:
                    self._accept(numbers)
                    with self._lock:
                        self._again += len(numbers)
        except Exception as error:  # told by the main thread
            self._failed = error

    def _left(self) -> float:
        """Return the seconds until it is too late for any vote."""
        return self._begun + self._seconds + LATE_SECONDS - time.monotonic()

    def _accept(self, numbers: Sequence[int]) -> None:
        votes = [{"option": _option(number), "voter": f"voter-{number}"} for number in numbers]
        value = votes[0] if self._size == 1 else {"votes": votes}
        answer = insist(self._client, poll_path(self._poll, "/votes"), value, min(LATE_SECONDS, self._left()))
        if answer.status == 429:
            raise click.ClickException(
                f"{self._votes:,} votes are more than an address may send: {MORE_FROM_AN_ADDRESS}"
            )
        if answer.status != 202:
            answer.json()
            raise click.ClickException(f"votes were answered with {answer.status}: {answer.body[:200].decode()}")

    def _counts(self, patience: float) -> tuple[Counter[str], float]:
        """Return the counts once they are those of the votes accepted, and stay so; or what is there when the time is
        up; and when they came."""
        until = time.monotonic() + patience
        while True:
            counts, came = self._read(), time.monotonic()
            if counts == self._accepted:
                time.sleep(SETTLED_SECONDS)
                return self._read(), came
            if counts.total() > self._accepted.total() or came >= until:
                return counts, came
            time.sleep(0.25)

    def _read(self) -> Counter[str]:
        """Return the counts, none if they cannot be read; options without a vote are left out."""
        try:
            answer = self._client.call("GET", poll_path(self._poll, "/results"))
        except Unreachable:
            return Counter()
        return +Counter(answer.json()["counts"]) if answer.status == 200 else Counter()


def _option(number: int) -> str:
    return OPTIONS[number % len(OPTIONS)]


def _show(found: Rehearsal, seconds: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{found.accepted:,} votes accepted in {found.seconds:,} s, {found.votes_per_second:,} a second", end=""
    )
    if found.p50 is not None:
        console.print(f"; each within {found.p50:,} ms of its time (median), {found.p99:,} ms (99 %)", end="")
    console.print(f"\n{found.sent_again:,} of them were sent again, as by a client that lost the answer")
    if found.seconds > seconds * 1.1 + 1:
        asked = found.votes / seconds
        console.print(f"[yellow]slower than asked, {asked:,.0f} a second[/yellow]: this machine or the server is full")
    if found.accepted < found.votes:
        left = found.votes - found.accepted
        console.print(f"[red]{left:,} votes were not sent[/red]: it was {LATE_SECONDS:g} s past the last one's time")
    verdict = "[green]exact[/green]" if found.exact else "[red]NOT EXACT[/red]"
    console.print(f"counted {found.counted:,} of {found.accepted:,} after {found.counted_after_seconds:,} s: {verdict}")
    if found.counted < found.accepted:
        console.print("too few: is a worker running, and did it have the time (--wait)? `tally doctor` looks")
