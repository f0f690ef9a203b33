"""Clients that vote over HTTP, each vote until its 202, and what must then have been counted.

A client may lose patience and ask another function, for every copy of a vote is the same ballot. Only before a next
choice it waits for the end of each attempt: one that still hangs could be stamped after that choice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from emulator.http_client import Connection, Reply
from tally.votes.results import SHARED_SECONDS

OPTIONS = ("red", "green", "blue")
KEEP, REPLACE, OPEN = "keep", "replace", "open"
POLLS: tuple[dict[str, object], ...] = (
    {"id": KEEP, "partitions": 4},
    {"id": REPLACE, "partitions": 2, "revote": "replace"},
    {"id": OPEN, "partitions": 1, "voters": "open"},
)
_PATIENCE = 3.0
_PAUSE = 0.05
_LIST = 50


class Broken(Exception):
    """An answer that no trouble excuses."""


class Traffic:
    """`addresses` gives the functions that can be asked now. `counts`: what each poll's results must be at the end."""

    def __init__(self, addresses: Callable[[], Sequence[str]], seed: int) -> None:
        self.counts = {str(poll["id"]): dict.fromkeys(OPTIONS, 0) for poll in POLLS}
        self.ballots: Counter[str] = Counter()
        self.retries = 0
        self._addresses = addresses
        self._seed = seed

    async def vote(self, client: int, enough: asyncio.Event) -> None:
        """Vote in all ways, on and on until it is enough."""
        random = Random(f"{self._seed}:client:{client}")
        ways = (self._one, self._revote, self._clap, self._list, self._many_claps)
        turn = 0
        while not enough.is_set():
            turn += 1
            way = random.choices(ways, (8, 4, 4, 1, 1))[0]
            await way(random, f"client-{client}-vote-{turn}-of-seed-{self._seed}")
            await asyncio.sleep(random.random() * _PAUSE)

    async def watch(self, enough: asyncio.Event) -> None:
        """Read results all the while: a poll's total never falls, and never exceeds the ballots sent.

        Functions share reads, each its own: another one's answer may be SHARED_SECONDS older than that before it.
        """
        random, seen = Random(f"{self._seed}:watch"), {poll: [(0.0, 0)] for poll in self.counts}
        while not enough.is_set():
            for poll in self.counts:
                asked = time.monotonic()
                reply = await self._attempt(random, "GET", f"/v1/polls/{poll}/results", patience=_PATIENCE)
                if reply is None or reply.status == 503:
                    continue
                total = sum(read_counts(reply).values())
                least = max(counted for at, counted in seen[poll] if at <= asked - SHARED_SECONDS)
                if not least <= total <= self.ballots[poll]:
                    raise Broken(f"{poll}: {total} after {least}, of {self.ballots[poll]} sent")
                seen[poll].append((time.monotonic(), total))
            await asyncio.sleep(0.2)

    async def _one(self, random: Random, name: str) -> None:
        """Vote, maybe again, maybe then for another option, which does not count."""
        option = random.choice(OPTIONS)
        self._sent(KEEP, 1)
        choices = [option, option] if random.random() < 0.2 else [option]
        if random.random() < 0.2:
            choices.append(random.choice(OPTIONS))
        for choice in choices:
            await self._until_accepted(random, KEEP, {"option": choice, "voter": name})
        self.counts[KEEP][option] += 1

    async def _revote(self, random: Random, name: str) -> None:
        choices = random.choices(OPTIONS, k=random.randint(1, 3))
        self._sent(REPLACE, 1)
        for choice in choices:
            await self._until_accepted(random, REPLACE, {"option": choice, "voter": name}, patience=None)
        self.counts[REPLACE][choices[-1]] += 1

    async def _clap(self, random: Random, name: str) -> None:
        option = random.choice(OPTIONS)
        self._sent(OPEN, 1)
        for _ in range(random.choice((1, 1, 1, 2))):
            await self._until_accepted(random, OPEN, {"option": option}, key=name)
        self.counts[OPEN][option] += 1

    async def _list(self, random: Random, name: str) -> None:
        """Vote for several voters at once, one of whom is in the list twice."""
        votes = [{"option": random.choice(OPTIONS), "voter": f"{name}-{place}"} for place in range(_LIST)]
        self._sent(KEEP, len(votes))
        await self._until_accepted(random, KEEP, {"votes": [*votes, votes[0]]})
        self._count(KEEP, votes)

    async def _many_claps(self, random: Random, name: str) -> None:
        """Clap with one key for the list, sent whole and unchanged until its 202."""
        votes = [{"option": random.choice(OPTIONS)} for _ in range(_LIST)]
        self._sent(OPEN, len(votes))
        await self._until_accepted(random, OPEN, {"votes": votes}, key=name)
        self._count(OPEN, votes)

    def _sent(self, poll: str, ballots: int) -> None:
        self.ballots[poll] += ballots

    def _count(self, poll: str, votes: Sequence[dict[str, str]]) -> None:
        for vote in votes:
            self.counts[poll][vote["option"]] += 1

    async def _until_accepted(
        self, random: Random, poll: str, body: Any, *, key: str | None = None, patience: float | None = _PATIENCE
    ) -> None:
        path, content = f"/v1/polls/{poll}/votes", msgspec.json.encode(body)
        while True:
            reply = await self._attempt(random, "POST", path, content, key=key, patience=patience)
            if reply is not None and reply.status == 202:
                return
            self.retries += 1
            await asyncio.sleep(random.uniform(0.05, 0.5))

    async def _attempt(
        self,
        random: Random,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        key: str | None = None,
        patience: float | None,
    ) -> Reply | None:
        """Ask one of the functions; None if there was no answer. Raises Broken if it is no answer of ours."""
        addresses = self._addresses()
        if not addresses:
            return None
        headers = {} if key is None else {"Idempotency-Key": key}
        async with Connection(random.choice(addresses)) as connection:
            try:
                async with asyncio.timeout(patience):
                    reply = await connection.request(method, path, body, headers=headers)
            except (OSError, EOFError, TimeoutError):
                return None
        if reply.status not in (200, 202, 503):
            raise Broken(f"{method} {path} was answered with {reply.status}: {reply.body.decode()}")
        return reply


def read_counts(reply: Reply) -> dict[str, int]:
    return msgspec.convert(msgspec.json.decode(reply.body, type=dict[str, Any])["counts"], dict[str, int])
