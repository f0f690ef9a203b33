from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tally.clock import SECOND
from tally.errors import Conflict, InvalidInput, NotFound, Refused, Rejected, Unavailable
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys
from tally.votes.edit import NewOption, NewPoll, Patch
from tally.votes.poll import CACHE_LIFETIME, Poll
from tally.votes.polls import TRIES, Polls, from_entity, to_entity
from tests.trouble import TroubledStore


class Registry:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.fake = FakeStore(clock=clock)
        self.store = TroubledStore(self.fake)
        self.polls = Polls(self.store, clock, Random(1), "1")

    async def make(self, poll_id: str = "lunch", title: str = "Lunch", options: int = 2) -> Poll:
        made = tuple(NewOption(id=f"option-{number}") for number in range(options))
        return await self.polls.create(NewPoll(id=poll_id, title=title, options=made))


Scene = Callable[[Registry], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> Play:
    async def run(scene: Scene) -> None:
        await scene(Registry(tally_clock))

    return lambda scene: tally_loop.run(run(scene))


def test_a_poll_is_stored_whole_unindexed_and_with_a_format(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        poll = await registry.make()
        stored = registry.fake.entities[keys.poll("lunch")]
        assert stored.indexed == frozenset()
        assert stored.properties["format"] == 1
        assert from_entity(stored) == poll == await registry.polls.get("lunch")
        assert from_entity(to_entity(poll)) == poll

    play(scene)


def test_an_id_is_never_used_twice_not_even_after_deletion(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        with pytest.raises(Conflict, match="exists, or did once"):
            await registry.make()
        await registry.polls.delete("lunch")
        registry.clock.step(365 * 86_400 * SECOND)
        with pytest.raises(Conflict):
            await registry.make()
        assert (await registry.polls.get("lunch")).status(registry.clock.now()) == "deleted"

    play(scene)


LOST = [Unavailable("reply lost", status="DEADLINE_EXCEEDED"), Refused("repeated below us", status="ALREADY_EXISTS")]


@pytest.mark.parametrize("lost", LOST, ids=lambda error: error.status)
def test_a_creation_whose_reply_was_lost_is_found_by_reading(play: Play, lost: Unavailable | Refused) -> None:
    async def scene(registry: Registry) -> None:
        registry.store.lost_replies = [lost]
        assert await registry.make() == await registry.polls.get("lunch")
        assert registry.store.calls["commit"] == 1

    play(scene)


@pytest.mark.parametrize("lost", LOST, ids=lambda error: error.status)
def test_a_change_whose_reply_was_lost_is_made_once(play: Play, lost: Unavailable | Refused) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        registry.store.lost_replies = [lost]
        changed = await registry.polls.amend("lunch", Patch(revision=1, title="Supper"))
        assert (changed.title, changed.revision) == ("Supper", 2)
        assert await registry.polls.get("lunch") == changed

    play(scene)


def test_what_was_not_written_is_tried_again_with_its_instants_still_ahead(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        commit, failures = registry.store.commit, 3

        async def failing(writes):  # type: ignore[no-untyped-def]  # stands in for one call
            nonlocal failures
            failures -= 1
            if failures >= 0:
                registry.clock.step(2 * SECOND)
                raise Unavailable("down")
            return await commit(writes)

        registry.store.commit = failing  # type: ignore[method-assign]  # for this scene
        closed = await registry.polls.close("lunch")
        assert closed.closes_at >= registry.clock.now() + CACHE_LIFETIME

    play(scene)


def test_a_store_that_stays_away_ends_in_unavailable(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        registry.store.error = Unavailable("down")
        with pytest.raises(Unavailable):
            await registry.make("other")
        registry.store.calls.clear()
        with pytest.raises(Unavailable):
            await registry.polls.close("lunch")
        assert registry.store.calls["get"] <= TRIES

    play(scene)


def test_a_store_that_takes_no_commit_is_asked_so_many_times_and_no_more(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        registry.store.refusing = Unavailable("read-only")
        calls: list[Callable[[], Awaitable[Poll]]] = [
            lambda: registry.make("other"),
            lambda: registry.polls.close("lunch"),
        ]
        for change in calls:
            registry.store.calls.clear()
            with pytest.raises(Unavailable, match="read-only"):
                await change()
            assert registry.store.calls["commit"] == TRIES

    play(scene)


def test_a_poll_that_is_over_is_not_written_again(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        gone = await registry.polls.delete("lunch")
        registry.store.calls.clear()
        assert await registry.polls.delete("lunch") == gone
        assert registry.store.calls["commit"] == 0

    play(scene)


def test_what_the_store_can_never_take_is_not_tried_again(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        registry.store.calls.clear()
        registry.store.lost_replies = [Rejected("too big"), Rejected("too big")]
        with pytest.raises(Rejected):
            await registry.polls.close("lunch")
        assert registry.store.calls["commit"] == 1

    play(scene)


def test_of_two_changes_of_one_revision_one_wins(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        await registry.polls.amend("lunch", Patch(revision=1, title="First"))
        with pytest.raises(Conflict, match="at revision 2, not 1"):
            await registry.polls.amend("lunch", Patch(revision=1, title="Second"))
        assert (await registry.polls.get("lunch")).title == "First"

    play(scene)


def test_a_change_that_lost_the_race_after_its_read_is_refused_by_the_version(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        await registry.make()
        other = Polls(registry.fake, registry.clock, Random(2), "1")
        commit = registry.store.commit

        async def overtaken(writes):  # type: ignore[no-untyped-def]  # stands in for one call
            registry.store.commit = commit  # type: ignore[method-assign]  # the next goes through
            await other.amend("lunch", Patch(revision=1, title="First"))
            return await commit(writes)

        registry.store.commit = overtaken  # type: ignore[method-assign]  # for this scene
        with pytest.raises(Conflict):
            await registry.polls.amend("lunch", Patch(revision=1, title="Second"))
        assert (await registry.polls.get("lunch")).title == "First"

    play(scene)


def test_an_unknown_poll_is_not_found(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        for change in (registry.polls.get, registry.polls.close, registry.polls.delete):
            with pytest.raises(NotFound):
                await change("none")

    play(scene)


def test_a_list_goes_through_all_polls_by_id_without_the_deleted(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        for number in range(35):
            await registry.make(f"poll-{number:02}")
        await registry.polls.delete("poll-03")
        registry.clock.step(CACHE_LIFETIME)
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            polls, cursor = await registry.polls.list(12, cursor)
            assert len(polls) <= 12
            found += [poll.id for poll in polls]
            pages += 1
        assert found == [f"poll-{number:02}" for number in range(35) if number != 3]

    play(scene)


def test_a_page_of_large_polls_is_cut_by_size(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        for number in range(12):
            options = tuple(NewOption(id=f"o-{place}", label="\u20ac" * 100) for place in range(1_000))
            await registry.polls.create(NewPoll(id=f"poll-{number:02}", title="Large", options=options))
        polls, cursor = await registry.polls.list(100, None)
        assert len(polls) == 10
        assert cursor is not None

    play(scene)


def test_a_cursor_that_was_never_given_out_is_the_callers_error(play: Play) -> None:
    async def scene(registry: Registry) -> None:
        async def rejecting(query: object) -> None:
            raise Rejected("bad cursor")

        registry.store.query = rejecting  # type: ignore[assignment]  # for this scene
        with pytest.raises(InvalidInput):
            await registry.polls.list(10, b"nonsense")

    play(scene)
