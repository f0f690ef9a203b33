from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tally.errors import Busy
from tally.ports import Delete, Entity, Key, Upsert, Value
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.recount import Recount, recount
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore

POLL = poll(partitions=2)
SHARD = keys.shard("p", 1)
Damage = Callable[[FakeStore], None]


def counted(tally_loop: VirtualLoop, damage: Damage = lambda store: None) -> Recount:
    async def main() -> Recount:
        pipeline = Pipeline()
        await pipeline.prepare(POLL)
        for start in range(0, 100, 20):
            await pipeline.publish(votes(POLL, range(start, start + 20), pipeline.clock.now()))
            await pipeline.drain()
        assert isinstance(pipeline.backend.store, FakeStore)
        damage(pipeline.backend.store)
        return await recount(pipeline.backend.store, POLL)

    return tally_loop.run(main())


def changed(entity: Entity, **properties: Value) -> Entity:
    return replace(entity, properties={**entity.properties, **properties})


def segment_of(store: FakeStore) -> Entity:
    *_, newest = ledger.parse_shard(store.entities[SHARD]).segments
    return store.entities[keys.segment(SHARD, newest.sequence)]


def say(**properties: Value) -> Damage:
    def damage(store: FakeStore) -> None:
        store.entities[SHARD] = changed(store.entities[SHARD], **properties)

    return damage


def lose_a_record(store: FakeStore) -> None:
    segment = segment_of(store)
    records = segment.properties["records"]
    assert isinstance(records, bytes)
    store.entities[segment.key] = changed(segment, records=records[24:])


def lose_a_segment(store: FakeStore) -> None:
    del store.entities[segment_of(store).key]


def test_a_sound_ledger_recounts_to_its_shards(tally_loop: VirtualLoop) -> None:
    made = counted(tally_loop)
    assert made.differences == ()
    assert len(made.records) == 100
    pairs = list(zip(made.records.high.tolist(), made.records.low.tolist(), strict=True))
    assert pairs == sorted(set(pairs))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (say(ballots=7), "the shard says 7 ballots"),
        (say(counts="[0,0]"), "option red: the shard says 0"),
        (say(counts="[25,25,3]"), ""),
        (say(sequence=99), "sequence is 99"),
        (lose_a_record, "the shard lists"),
        (lose_a_segment, "the shard lists it, it is not there"),
    ],
)
def test_every_difference_is_told(tally_loop: VirtualLoop, damage: Damage, words: str) -> None:
    made = counted(tally_loop, damage)
    assert made.differences
    assert all(difference.startswith("partition 1: ") for difference in made.differences)
    assert any(words in difference for difference in made.differences)


def test_ballots_of_another_partition_are_told(tally_loop: VirtualLoop) -> None:
    def swap(store: FakeStore) -> None:
        other = keys.shard("p", 0)
        for key, source in ((SHARD, other), (other, SHARD)):
            store.entities[key] = replace(entities[source], key=key)
            for listed in ledger.parse_shard(entities[source]).segments:
                segment = keys.segment(key, listed.sequence)
                store.entities[segment] = replace(entities[keys.segment(source, listed.sequence)], key=segment)

    entities: dict[Key, Entity] = {}

    def damage(store: FakeStore) -> None:
        entities.update(store.entities)
        swap(store)

    assert any("other partitions" in difference for difference in counted(tally_loop, damage).differences)


def test_a_fold_between_the_reads_starts_the_partition_again_and_gives_up_in_the_end(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        fake = FakeStore()
        store = ScriptedStore(fake)
        key = keys.shard("p", 0)
        shard = ledger.Shard(sequence=1, segments=(ledger.Segment(1, 1, 1),))
        await store.commit([Upsert(ledger.shard_entity(key, shard)), Delete(key=keys.segment(key, 1))])

        def move(asked: Sequence[Key]) -> None:
            if asked != [key]:
                fake.entities[key] = replace(fake.entities[key], version=fake.entities[key].version + 1)

        store.on_get = move
        with pytest.raises(Busy, match="folded"):
            await recount(store, POLL)
        reads = [asked for asked in store.gets if asked == (key,)]
        assert len(reads) == 5

    tally_loop.run(main())


def test_a_poll_without_votes_counts_zero(tally_loop: VirtualLoop) -> None:
    async def main() -> Sequence[str]:
        told: list[int] = []
        made = await recount(FakeStore(), POLL, progress=told.append)
        assert told == [2, 2]
        assert not len(made.records)
        return made.differences

    assert tally_loop.run(main()) == ()
