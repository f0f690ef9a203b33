import asyncio
from dataclasses import replace

import pytest

from tally.errors import Busy
from tally.ports import Upsert
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes.known_polls import KnownPolls
from tally.votes.polls import to_entity
from tests.unit.votes.pipeline import poll


def test_a_definition_of_a_later_format_harms_no_other_of_the_lookup(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        store = FakeStore()
        good, later = to_entity(poll("good")), to_entity(poll("later"))
        later = replace(later, properties={**later.properties, "format": 99})
        await store.commit([Upsert(good), Upsert(later)])
        polls = KnownPolls(store)
        known, failed = await asyncio.gather(polls.read("good"), polls.read("later"), return_exceptions=True)
        assert isinstance(failed, Busy)
        assert known == polls.held("good")
        assert polls.held("later") is None

    tally_loop.run(main())


def test_so_many_definitions_are_held_and_the_oldest_read_goes_first(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.limits.CACHED_POLLS", 3)

    async def main() -> None:
        polls = KnownPolls(FakeStore())
        for name in ("a", "b", "a", "c", "d"):
            await polls.read(name)
        assert [polls.held(name) is not None for name in "abcd"] == [True, False, True, True]

    tally_loop.run(main())
