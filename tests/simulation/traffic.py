"""Who uses the pipeline: voters that retry, lists, revotes, an administrator, strangers who publish to the topic."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar

from tally.clock import SECOND
from tally.errors import BackendError, Busy, Conflict, InvalidInput, TallyError, VoteRefused
from tally.ports import Outgoing
from tally.testing.clock import EPOCH
from tally.votes.edit import NewOption, NewPoll, Patch
from tally.votes.intake import Cast, Intake, Receipt
from tally.votes.poll import Revote, Voters
from tally.votes.polls import Polls
from tally.votes.recount import recount
from tests.simulation.processes import KEY_VERSION, Function
from tests.simulation.truth import ballot_id
from tests.simulation.world import World

T = TypeVar("T")
OPTIONS = ("red", "green", "blue")
ADDED = "violet"
REVOTES: tuple[Revote, ...] = ("keep", "replace")
MAIN, SIDE = "main", "side"
PARTITIONS = 4
SINGLES, LISTS, LIST_VOTES, SIDE_VOTES, TIED, LATE = 100, 18, 12, 36, 8, 8
BURSTS = 24
VOTING_SECONDS = 12.0


class Submitted(NamedTuple):
    poll: str
    ballot: bytes
    option: str


class Traffic:
    """`accepted`: the ballots whose 202 reached the client."""

    def __init__(self, world: World, functions: Sequence[Function]) -> None:
        self.submitted: set[Submitted] = set()
        self.accepted: set[tuple[str, bytes]] = set()
        self.strange: set[Submitted] = set()
        self._world = world
        self._functions = functions
        self._dice = world.random("traffic")
        self._admin_clock = world.skewed_clock(world.random("admin/clock"))
        self._polls = Polls(world.faulty_store, self._admin_clock, world.random("admin"), KEY_VERSION)

    async def run(self) -> None:
        """Make the polls, vote, and return when every client has its answer or has given up."""
        dice = self._dice
        await self._administer(lambda: self._polls.create(_new(MAIN, "one-ballot", dice.choice(REVOTES))))
        await self._administer(lambda: self._polls.create(_new(SIDE, "open", dice.choice(REVOTES))))
        if dice.random() < 0.3:
            self._world.truth.poisoned = ballot_id(MAIN, "voter-0")
        jobs = [self._single(f"voter-{number}") for number in range(SINGLES)]
        jobs += [self._list(f"list-{number}") for number in range(LISTS)]
        jobs += [self._open(f"idempotency-key-{number}") for number in range(SIDE_VOTES)]
        jobs += [self._tied(f"tied-{number}") for number in range(TIED)]
        jobs += [self._strangers(), self._audit(), self._change_main(), self._change_side()]
        await asyncio.gather(*jobs)

    async def _wait(self) -> None:
        """Wait for a moment of the voting: clients come in bursts, so that they share messages."""
        burst = self._dice.randrange(BURSTS) * VOTING_SECONDS / BURSTS
        await asyncio.sleep(burst + self._dice.random() * 0.01)

    async def _single(self, voter: str) -> None:
        dice = self._dice
        await self._wait()
        options = dice.sample(OPTIONS, 2)
        if dice.random() < 0.8:
            await self._vote(MAIN, voter, options[0])
        elif dice.random() < 0.5:
            await self._vote(MAIN, voter, options[0])
            await asyncio.sleep(dice.random() * 3)
            await self._vote(MAIN, voter, options[1])
        else:
            self._world.note(f"{voter} votes twice at once", "revote:swapped")
            await asyncio.gather(self._vote(MAIN, voter, options[0]), self._vote(MAIN, voter, options[1]))

    async def _vote(self, poll: str, voter: str, option: str) -> None:
        ballot = ballot_id(poll, voter)
        self.submitted.add(Submitted(poll, ballot, option))
        cast = Cast(option=option, voter=voter)
        await self._insist({(poll, ballot)}, lambda intake: intake.vote(poll, cast, None), self._dice)

    async def _list(self, name: str) -> None:
        await self._wait()
        casts = [Cast(option=self._dice.choice(OPTIONS), voter=f"{name}-{row}") for row in range(LIST_VOTES)]
        ballots = [ballot_id(MAIN, str(cast.voter)) for cast in casts]
        self.submitted.update(Submitted(MAIN, ballot, cast.option) for ballot, cast in zip(ballots, casts, strict=True))
        await self._insist(
            {(MAIN, ballot) for ballot in ballots}, lambda intake: intake.votes(MAIN, casts, None), self._dice
        )

    async def _open(self, key: str) -> None:
        await self._wait()
        option = self._dice.choice(OPTIONS)
        ballot = ballot_id(SIDE, key)
        self.submitted.add(Submitted(SIDE, ballot, option))
        await self._insist({(SIDE, ballot)}, lambda intake: intake.vote(SIDE, Cast(option=option), key), self._dice)

    async def _insist(
        self,
        ballots: set[tuple[str, bytes]],
        work: Callable[[Intake], Awaitable[Receipt | list[Receipt | TallyError]]],
        dice: Random,
    ) -> None:
        """Send a request until it is answered with 202, is refused, or (a few clients) patience ends."""
        tries = 1_000 if dice.random() < 0.9 else dice.randrange(1, 4)
        for _ in range(tries):
            answer = await self._request(work, gone=dice.random() < 0.02)
            if isinstance(answer, VoteRefused):
                return
            if isinstance(answer, TallyError) and not isinstance(answer, Busy):
                self._world.truth.say(f"a good request was answered with {answer!r}")
                return
            if answer is not None and not isinstance(answer, Busy):
                self.accepted.update(self._receipts(ballots, answer))
                return
            await asyncio.sleep(dice.uniform(0.5, 4))
        if tries == 1_000:
            self._world.truth.say("a client got no answer in a thousand tries")

    async def _request(self, work: Callable[[Intake], Awaitable[T]], *, gone: bool) -> T | TallyError | None:
        function = self._dice.choice(self._functions)
        if not function.up:
            return None
        task = function.request(work)
        task.add_done_callback(_retrieve)
        await asyncio.wait([task], timeout=0.008 if gone else 15)
        if not task.done():
            self._world.note("a client goes away", "client:gone")
            task.cancel()
            return None
        if task.cancelled():
            self._world.truth.say("a request was cancelled, and its client had not gone away")
            return None
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, TallyError):
            return error
        self._world.truth.say(f"a request failed with {error!r}")
        raise error

    def _receipts(self, ballots: set[tuple[str, bytes]], answer: object) -> Iterator[tuple[str, bytes]]:
        (poll,) = {poll for poll, _ in ballots}
        for receipt in answer if isinstance(answer, list) else [answer]:
            if isinstance(receipt, Receipt):
                if (poll, receipt.ballot) not in ballots:
                    self._world.truth.say(f"a receipt for ballot {receipt.ballot.hex()}, which was not sent")
                yield poll, receipt.ballot

    async def _tied(self, voter: str) -> None:
        """Publish two different votes of one ballot and one instant, as a client of another language may."""
        await self._wait()
        ballot, at = ballot_id(MAIN, voter), self._world.clock.now()
        options = self._dice.sample(OPTIONS, 2)
        self.submitted.update(Submitted(MAIN, ballot, option) for option in options)
        self._world.note(f"{voter} votes twice in one instant", "revote:tied")
        for option in options:
            await self._publish(_message([option], ballot, [0], [at]))
            await asyncio.sleep(self._dice.random() * 2)

    async def _strangers(self) -> None:
        await self._wait()
        good, at = ballot_id(MAIN, "neighbour"), self._world.clock.now()
        self.submitted.add(Submitted(MAIN, good, "red"))
        self.strange = {
            Submitted(MAIN, ballot_id(MAIN, "stranger"), "mauve"),
            Submitted(MAIN, ballot_id(MAIN, "year 9999"), "red"),
            Submitted("nowhere", ballot_id("nowhere", "x"), "red"),
        }
        hostile = [
            b"not json",
            b'{"v":1,"groups":' + b"[" * 500,
            _message(["red"], b"short", [0], [at]),
            _message(["red", "mauve"], good + ballot_id(MAIN, "stranger"), [0, 1], [at, at]),
            _message(["red"], ballot_id(MAIN, "stranger") + good, [7, 0], [at, at]),
            _message(["red"], ballot_id(MAIN, "year 9999"), [0], [253_370_764_800 * SECOND]),
            _message(["red"], ballot_id("nowhere", "x"), [0], [at], poll="nowhere"),
        ]
        for data in hostile:
            self._world.note("a stranger publishes", "message:hostile")
            await self._publish(data)
            await asyncio.sleep(self._dice.random())
        if self._dice.random() < 0.3:
            self._world.note("a function of a later version publishes", "message:newer-version")
            await self._world.pubsub.publish("votes", [Outgoing(b'{"v":2,"groups":{"a":1}}', {"v": "2"})])

    async def _audit(self) -> None:
        """Recount in the middle of it all: what folds move must not look like a difference."""
        for _ in range(2):
            await self._wait()
            try:
                poll = await self._polls.get(MAIN)
                counted = await recount(self._world.faulty_store, poll)
            except TallyError:
                continue
            self._world.note(f"recounted {len(counted.records)} ballots", "ledger:recounted")
            for difference in counted.differences:
                self._world.truth.say(f"recount while votes come in: {difference}")

    async def neighbour_of_poison(self, number: int) -> None:
        """Vote in the poisoned vote's partition: only beside one that counts does it show that it is to blame."""
        poisoned = self._world.truth.poisoned
        assert poisoned is not None
        partition = int.from_bytes(poisoned, "big") % PARTITIONS
        names = (f"neighbour-{number}-{attempt}" for attempt in count())
        ballot = next(
            ballot
            for ballot in (ballot_id(MAIN, name) for name in names)
            if int.from_bytes(ballot, "big") % PARTITIONS == partition
        )
        self.submitted.add(Submitted(MAIN, ballot, "red"))
        await self._publish(_message(["red"], ballot, [0], [EPOCH + SECOND]))

    async def replay_to_deleted(self) -> None:
        """Publish votes of the deleted poll again as a replay does: cast in time, some counted once, some never."""
        for voter in ("idempotency-key-0", "idempotency-key-1", "idempotency-key-new"):
            ballot, at = ballot_id(SIDE, voter), EPOCH + SECOND
            self.submitted.update(Submitted(SIDE, ballot, option) for option in OPTIONS)
            await self._publish(_message(["red"], ballot, [0], [at], poll=SIDE), published_at=str(at))

    async def _publish(self, data: bytes, **attributes: str) -> None:
        while True:
            try:
                await self._world.publisher.publish("votes", [Outgoing(data, attributes)])
                return
            except BackendError:
                await asyncio.sleep(1)

    async def _change_main(self) -> None:
        """Withdraw an option, add one, close early."""
        dice = self._dice
        await asyncio.sleep(dice.uniform(3, VOTING_SECONDS))
        await self._amend(Patch(revision=0, withdraw_options=("blue",)), "option:withdrawn")
        await asyncio.sleep(dice.uniform(0, 5))
        await self._amend(Patch(revision=0, add_options=(NewOption(id=ADDED),)), "option:added")
        late = [self._late(f"late-{number}") for number in range(LATE)]
        if dice.random() < 0.5:
            await asyncio.sleep(dice.uniform(0, 5))
            self._world.note("close main", "poll:closed-early")
            await self._administer(lambda: self._polls.close(MAIN))
        await asyncio.gather(*late)

    async def _late(self, voter: str) -> None:
        """Vote for the option just added: what a process knew before must not refuse it."""
        await asyncio.sleep(self._dice.uniform(6, 12))
        await self._vote(MAIN, voter, ADDED)

    async def _change_side(self) -> None:
        await asyncio.sleep(self._dice.uniform(5, VOTING_SECONDS))
        if self._dice.random() < 0.5:
            self._world.note("close side", "poll:closed-early")
            await self._administer(lambda: self._polls.close(SIDE))
        else:
            self._world.note("delete side", "poll:deleted")
            await self._administer(lambda: self._polls.delete(SIDE))

    async def _amend(self, patch: Patch, event: str) -> None:
        self._world.note(f"{event} in main", event)

        async def amend() -> object:
            poll = await self._polls.get(MAIN)
            return await self._polls.amend(MAIN, _at(patch, poll.revision))

        await self._administer(amend)

    async def _administer(self, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await work()
                return
            except (Conflict, InvalidInput):  # done by an attempt whose answer was lost
                return
            except (BackendError, Busy):
                await asyncio.sleep(1)


def _at(patch: Patch, revision: int) -> Patch:
    return Patch(revision=revision, add_options=patch.add_options, withdraw_options=patch.withdraw_options)


def _new(poll: str, voters: Voters, revote: Revote) -> NewPoll:
    options = tuple(NewOption(id=option) for option in OPTIONS)
    partitions = PARTITIONS if poll == MAIN else 1
    return NewPoll(id=poll, title=poll, options=options, voters=voters, revote=revote, partitions=partitions)


def _message(options: list[str], ballots: bytes, choices: list[int], at: list[int], poll: str = MAIN) -> bytes:
    group = {
        "poll": poll,
        "options": options,
        "ballots": b64encode(ballots).decode(),
        "choices": choices,
        "accepted_at": at,
    }
    return json.dumps({"v": 1, "groups": [group]}).encode()


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take note of a task's error: a client that went away will not ask."""
    if not task.cancelled():
        task.exception()
