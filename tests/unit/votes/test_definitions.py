"""Each scene runs in virtual time: an hour passes in no time."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tally.clock import CLOCK_BOUND, SECOND
from tally.errors import Busy, NotFound, Unavailable
from tally.limits import CACHED_POLLS, UNKNOWN_READS_PER_SECOND
from tally.ports import Entity, Upsert
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import edit, keys
from tally.votes.definitions import Definitions
from tally.votes.edit import NewOption, NewPoll
from tally.votes.keyring import KeyRing
from tally.votes.poll import CACHE_LIFETIME
from tally.votes.polls import Polls, to_entity
from tests.trouble import TroubledStore

LIFETIME_SECONDS = CACHE_LIFETIME / SECOND


class Cache:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = TroubledStore(FakeStore(clock=clock))
        self.definitions = Definitions(self.store, clock, Random(1), KeyRing({"1": bytes(32)}))
        self.polls = Polls(self.store, clock, Random(1), "1")

    async def make(self, poll_id: str = "lunch") -> None:
        await self.polls.create(NewPoll(id=poll_id, title="Lunch", options=(NewOption(id="red"),)))
        self.store.calls.clear()

    async def title(self, poll_id: str = "lunch") -> str:
        return (await self.definitions.get(poll_id, self.clock.now())).poll.title

    @property
    def reads(self) -> int:
        return self.store.calls["get"]


Scene = Callable[[Cache], Awaitable[None]]


@pytest.fixture
def play(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> Callable[[Scene], None]:
    async def run(scene: Scene) -> None:
        cache = Cache(tally_clock)
        await scene(cache)
        cache.store.seconds, cache.store.error = 0.0, None
        await cache.definitions.close()

    return lambda scene: tally_loop.run(run(scene))


Play = Callable[[Scene], None]


def test_one_read_serves_a_lifetime_of_votes(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        for _ in range(100):
            await cache.title()
        assert cache.reads == 1

    play(scene)


def test_requests_that_come_together_share_one_read(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        cache.store.seconds = 1.0
        await asyncio.gather(*[cache.title() for _ in range(50)])
        assert cache.reads == 1

    play(scene)


def test_a_definition_serves_no_vote_stamped_a_lifetime_after_its_read_was_sent(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        cache.store.seconds = 2.0  # so that sending and arriving differ
        sent_at = cache.clock.now()
        await cache.definitions.get("lunch", sent_at)
        cache.store.error = Unavailable("down")
        assert cache.definitions.held("lunch", sent_at + CACHE_LIFETIME - 1) is not None
        assert cache.definitions.held("lunch", sent_at + CACHE_LIFETIME) is None

    play(scene)


def test_a_change_is_seen_within_a_lifetime_and_nobody_waits_for_it(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        await cache.polls.amend("lunch", edit.Patch(revision=1, title="Supper"))
        cache.store.seconds = 0.5
        seen = []
        for _ in range(12):
            held = cache.definitions.held("lunch", cache.clock.now())
            assert held is not None
            seen.append(held.poll.title)
            await asyncio.sleep(LIFETIME_SECONDS / 10)
        assert seen[0] == "Lunch"
        assert seen[-1] == "Supper"

    play(scene)


def test_what_cannot_be_read_again_serves_to_its_end_and_then_is_busy(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        cache.store.error = Unavailable("down")
        await asyncio.sleep(LIFETIME_SECONDS - 0.01)
        assert await cache.title() == "Lunch"
        await asyncio.sleep(0.01)
        with pytest.raises(Busy) as caught:
            await cache.title()
        assert 1 <= caught.value.retry_after <= 5

    play(scene)


def test_a_store_that_is_silent_makes_busy_within_three_seconds(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        cache.store.seconds = 3_600
        started = asyncio.get_running_loop().time()
        with pytest.raises(Busy):
            await cache.title()
        assert asyncio.get_running_loop().time() - started <= 3.0

    play(scene)


def test_a_store_that_fails_is_not_asked_by_every_request(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        cache.store.error = Unavailable("down")
        for _ in range(100):
            with pytest.raises(Busy):
                await cache.title()
            await asyncio.sleep(0.01)
        assert cache.reads <= 5

    play(scene)


def test_what_is_remembered_of_reads_that_failed_is_bounded(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tally.votes.definitions.CACHED_POLLS", 4)

    async def scene(cache: Cache) -> None:
        cache.store.error = Unavailable("down")
        for number in range(10):
            with pytest.raises(Busy):
                await cache.title(f"poll-{number}")
            assert len(cache.definitions._failed) <= 4

    play(scene)


def test_a_store_that_tells_no_time_is_trusted_with_ours(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        cache.store._store = FakeStore()
        await cache.make()
        assert await cache.title() == "Lunch"

    play(scene)


def test_one_request_that_is_cancelled_takes_no_other_with_it(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        cache.store.seconds = 1.0
        first, second = asyncio.create_task(cache.title()), asyncio.create_task(cache.title())
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second == "Lunch"
        assert cache.reads == 1

    play(scene)


def test_an_id_that_no_poll_has_is_read_once_a_lifetime(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        for _ in range(100):
            with pytest.raises(NotFound):
                await cache.title("none")
        assert cache.reads == 1
        await cache.make("none")
        await asyncio.sleep(LIFETIME_SECONDS)
        assert await cache.title("none") == "Lunch"

    play(scene)


def test_an_id_that_can_be_none_is_never_read(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        for wrong in ("", "A", "a%2Fb", "../a", "__x__", "a" * 64):
            with pytest.raises(NotFound):
                await cache.title(wrong)
        assert cache.reads == 0

    play(scene)


def test_unknown_ids_are_rationed_and_past_that_never_called_absent(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        await asyncio.sleep(1)
        cache.store.calls.clear()
        for number in range(UNKNOWN_READS_PER_SECOND):
            with pytest.raises(NotFound):
                await cache.title(f"none-{number}")
        for number in range(UNKNOWN_READS_PER_SECOND, 200):
            with pytest.raises(Busy):
                await cache.title(f"none-{number}")
        assert cache.reads == UNKNOWN_READS_PER_SECOND
        await asyncio.sleep(1)
        with pytest.raises(NotFound):
            await cache.title("none-200")

    play(scene)


def test_polls_that_were_found_are_read_again_whatever_the_ration(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        await asyncio.sleep(LIFETIME_SECONDS)
        for number in range(UNKNOWN_READS_PER_SECOND + 1):
            with pytest.raises((NotFound, Busy)):
                await cache.title(f"none-{number}")
        assert await cache.title() == "Lunch"

    play(scene)


def test_the_cache_is_bounded_and_absent_ids_go_first(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        poll = (await cache.definitions.get("lunch", cache.clock.now())).poll
        with pytest.raises(NotFound):
            await cache.title("none")
        known, absent = cache.definitions._known, cache.definitions._absent
        for number in range(CACHED_POLLS - 2):
            known[f"p-{number}"] = known["lunch"]
        assert len(known) + len(absent) == CACHED_POLLS
        await cache.store.commit([Upsert(to_entity(poll)), Upsert(Entity(key=keys.poll("more"), properties={}))])
        await cache.make("extra")
        await cache.title("extra")
        assert (len(known), len(absent)) == (CACHED_POLLS, 0)
        await cache.make("other")
        await cache.title("other")
        assert len(known) == CACHED_POLLS
        assert "lunch" not in known

    play(scene)


@pytest.mark.parametrize(("skew", "good"), [(0, True), (19, True), (-19, True), (21, False), (-21, False)])
def test_a_clock_too_far_from_the_stores_is_busy(play: Play, skew: int, good: bool) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        cache.store.read_time_skew = skew * SECOND
        if good:
            assert await cache.title() == "Lunch"
        else:
            with pytest.raises(Busy) as caught:
                await cache.title()
            assert caught.value.code == "clock"

    assert CLOCK_BOUND == 20 * SECOND
    play(scene)


def test_a_clock_that_is_set_back_does_not_keep_a_definition_alive(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        cache.store.error = Unavailable("down")
        cache.clock.step(-3_600 * SECOND)
        await asyncio.sleep(LIFETIME_SECONDS)
        with pytest.raises(Busy):
            await cache.title()

    play(scene)


def test_a_process_that_stood_still_does_not_use_what_it_held(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.title()
        cache.store.error = Unavailable("down")
        cache.clock.step(CACHE_LIFETIME)  # the loop's clock stood still, the wall's went on
        with pytest.raises(Busy):
            await cache.title()

    play(scene)


def test_a_poll_whose_key_the_process_lacks_is_busy(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await Polls(cache.store, cache.clock, Random(1), "2").create(
            NewPoll(id="newer", title="T", options=(NewOption(id="red"),))
        )
        with pytest.raises(Busy) as caught:
            await cache.title("newer")
        assert caught.value.code == "ballot-key-missing"

    play(scene)


def test_a_definition_of_a_later_format_is_busy(play: Play) -> None:
    async def scene(cache: Cache) -> None:
        await cache.make()
        await cache.store.commit([Upsert(Entity(key=keys.poll("lunch"), properties={"format": 2, "definition": "?"}))])
        with pytest.raises(Busy):
            await cache.title()

    play(scene)
