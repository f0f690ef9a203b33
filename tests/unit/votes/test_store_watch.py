import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from tally.errors import BackendError, Refused, Rejected, Unavailable
from tally.ports import Delete, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes.store_watch import KEYS, TRY_EVERY, StoreWatch
from tests.unit.votes.scripted import ScriptedStore

DOWN = Unavailable("down", status="UNAVAILABLE")
FORBIDDEN = Unavailable("forbidden", status="PERMISSION_DENIED")


def failing(error: BackendError) -> Callable[[object], BackendError | None]:
    def fail(_: object) -> BackendError | None:
        raise error

    return fail


def full(writes: Sequence[Write]) -> BackendError | None:
    if not all(isinstance(write, Delete) for write in writes):
        raise Unavailable("no room", status="SQLITE_FULL")
    return None


def up(_: object) -> None:
    """Fail nothing."""


@asynccontextmanager
async def watching(store: ScriptedStore) -> AsyncIterator[StoreWatch]:
    watch = StoreWatch(store, Random(1))
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    yield watch
    running.cancel()


@pytest.mark.parametrize(
    ("reads", "commits", "down"),
    [
        pytest.param(None, None, False, id="answers"),
        pytest.param(DOWN, DOWN, True, id="gone"),
        pytest.param(None, FORBIDDEN, True, id="reads only"),
        pytest.param(FORBIDDEN, None, True, id="writes only"),
        pytest.param(None, Refused("contention", status="ABORTED"), False, id="refuses"),
        pytest.param(Rejected("no such key", status="INVALID_ARGUMENT"), None, False, id="rejects"),
    ],
)
def test_the_store_is_down_if_it_takes_neither_a_vote_nor_a_trial(
    tally_loop: VirtualLoop, reads: BackendError | None, commits: BackendError | None, down: bool
) -> None:
    async def main() -> None:
        fake = FakeStore()
        store = ScriptedStore(fake)
        store.on_get = failing(reads) if reads else store.on_get
        store.on_commit = failing(commits) if commits else store.on_commit
        async with watching(store) as watch:
            watch.failed(DOWN)
            await asyncio.sleep(TRY_EVERY + 1)
            assert watch.down is down
            assert (watch.failing_since is None) is not down
            store.on_get, store.on_commit = up, up
            await watch.until_up(TRY_EVERY)
            assert not watch.down
            assert not fake.entities

    tally_loop.run(main())


Event = Callable[[StoreWatch], Coroutine[None, None, None]]


async def _nothing(watch: StoreWatch) -> None:
    """No call fails."""


async def _refusal(watch: StoreWatch) -> None:
    watch.failed(Refused("another was first", status="FAILED_PRECONDITION"))


async def _rejection(watch: StoreWatch) -> None:
    watch.failed(Rejected("too large", status="INVALID_ARGUMENT"))


async def _passing_failure(watch: StoreWatch) -> None:
    watch.failed(DOWN)
    await asyncio.sleep(TRY_EVERY - 1)
    watch.succeeded()
    watch.failed(DOWN)
    await asyncio.sleep(TRY_EVERY - 1)
    watch.succeeded()


def test_a_store_that_takes_deletes_but_lets_nothing_grow_is_down(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        store = ScriptedStore(FakeStore())
        store.on_commit = full
        async with watching(store) as watch:
            watch.failed(DOWN)
            await asyncio.sleep(TRY_EVERY + 1)
            assert watch.down

    tally_loop.run(main())


def test_trials_that_are_cut_off_leave_a_few_entities_which_others_clean_up(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        fake = FakeStore()
        store = ScriptedStore(fake)
        store.on_commit = lambda writes: DOWN  # applied, but the reply is lost: the entity is not deleted
        async with watching(store) as watch:
            watch.failed(DOWN)
            await asyncio.sleep(TRY_EVERY * KEYS * 10)
            assert len(fake.entities) == KEYS
            store.on_commit = up
            for _ in range(KEYS * 10):
                watch.failed(DOWN)
                await asyncio.sleep(TRY_EVERY + 1)
            assert not fake.entities

    tally_loop.run(main())


def test_whoever_waits_is_told_once_when_the_store_is_up_again(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        told: list[bool] = []
        store = ScriptedStore(FakeStore())
        async with watching(store) as watch:
            watch.on_up = lambda: told.append(watch.down)
            watch.succeeded()
            store.on_commit = failing(DOWN)
            watch.failed(DOWN)
            await asyncio.sleep(TRY_EVERY + 1)
            store.on_commit = up
            await asyncio.sleep(TRY_EVERY + 1)
            watch.succeeded()
        assert told == [False]

    tally_loop.run(main())


@pytest.mark.parametrize("event", [_nothing, _refusal, _rejection, _passing_failure])
def test_the_store_is_not_tried_for_less_than_a_lasting_outage(tally_loop: VirtualLoop, event: Event) -> None:
    async def main() -> None:
        store = ScriptedStore(FakeStore())
        async with watching(store) as watch:
            await event(watch)
            await asyncio.sleep(60)
            assert not store.gets
            assert not watch.down

    tally_loop.run(main())


def test_a_commit_that_is_taken_while_a_trial_fails_counts(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        store = ScriptedStore(FakeStore())
        store.on_commit = failing(DOWN)
        async with watching(store) as watch:
            watch.failed(DOWN)
            store.gate = asyncio.Event()
            await asyncio.sleep(TRY_EVERY + 1)
            assert store.in_flight
            watch.succeeded()
            store.gate.set()
            await asyncio.sleep(1)
            assert not watch.down

    tally_loop.run(main())
