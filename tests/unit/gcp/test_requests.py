"""What a Store's requests and answers look like on the wire."""

from datetime import UTC, datetime

import pytest
from google.cloud.datastore_v1 import types

from tally.errors import Rejected
from tally.ports import Backend, Delete, Entity, Insert, OnConflict, Query, Update, Upsert, Value, read
from tests.unit.gcp.conftest import FakeGoogle

SHARD = (("Shard", "poll:3"),)
SEGMENT = (*SHARD, ("Segment", 17))
FAIL = types.Mutation.ConflictResolutionStrategy.FAIL
KEEP = types.Mutation.ConflictResolutionStrategy.SERVER_VALUE


def key(*path: tuple[str, int | str]) -> types.Key:
    """Return a key as the service must see it: in the project and the database of the settings."""
    steps = [{"kind": kind, "id" if isinstance(name, int) else "name": name} for kind, name in path]
    return types.Key(partition_id={"project_id": "the-project", "database_id": "the-database"}, path=steps)


async def test_a_commit_is_one_single_use_transaction_with_the_version_guard(
    google: FakeGoogle, backend: Backend
) -> None:
    shard = Entity(key=SHARD, properties={"n": 1})
    await backend.store.commit(
        [
            Insert(Entity(key=SEGMENT, properties={})),
            Update(entity=shard, base_version=41, on_conflict=OnConflict.FAIL),
            Update(entity=Entity(key=(("A", 1),), properties={}), base_version=42, on_conflict=OnConflict.KEEP_STORED),
            Upsert(Entity(key=(("A", 2),), properties={})),
            Delete(key=(("A", 3),), base_version=43),
            Delete(key=(("A", 4),)),
        ]
    )
    request = types.CommitRequest.deserialize(google.requests[0])
    assert request.mode == types.CommitRequest.Mode.TRANSACTIONAL
    assert "read_write" in request.single_use_transaction
    assert not request.transaction
    insert, update, keep, upsert, guarded, delete = request.mutations
    assert (insert.insert.key, insert.base_version) == (key(*SEGMENT), 0)
    assert update.update.key == key(*SHARD)
    assert (update.base_version, update.conflict_resolution_strategy) == (41, FAIL)
    assert (keep.base_version, keep.conflict_resolution_strategy) == (42, KEEP)
    assert (upsert.upsert.key, upsert.base_version) == (key(("A", 2)), 0)
    assert (guarded.delete, guarded.base_version) == (key(("A", 3)), 43)
    assert guarded.conflict_resolution_strategy == FAIL
    assert (delete.delete, delete.base_version) == (key(("A", 4)), 0)


async def test_a_property_is_unindexed_unless_it_is_named(google: FakeGoogle, backend: Backend) -> None:
    values: dict[str, Value] = {
        "none": None,
        "bool": True,
        "int": 1,
        "float": 1.0,
        "text": "x",
        "bytes": b"x",
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "list": ("a", "b"),
    }
    for indexed in (frozenset[str](), frozenset(values)):
        await backend.store.commit([Upsert(Entity(key=SHARD, properties=values, indexed=indexed))])
        (mutation,) = types.CommitRequest.deserialize(google.requests[-1]).mutations
        excluded = {}
        for name, value in types.Mutation.pb(mutation).upsert.properties.items():
            parts = value.array_value.values if name == "list" else [value]
            excluded[name] = {part.exclude_from_indexes for part in parts}
        assert excluded == {name: {not indexed} for name in values}


async def test_a_conflict_that_the_service_detected_is_told(google: FakeGoogle, backend: Backend) -> None:
    results = [{"version": 7}, {"version": 8, "conflict_detected": True}]
    google.reply("Commit", types.CommitResponse.serialize(types.CommitResponse(mutation_results=results)))
    committed = await backend.store.commit([Delete(key=SHARD), Delete(key=SEGMENT)])
    assert committed.versions == (7, 8)
    assert committed.conflict_detected


async def test_deferred_keys_are_neither_found_nor_missing_and_are_asked_for_again(
    google: FakeGoogle, backend: Backend
) -> None:
    read_time = datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    answer = types.LookupResponse(
        found=[{"entity": {"key": key(*SHARD)}, "version": 5}],
        missing=[{"entity": {"key": key(("A", 1))}}],
        deferred=[key(*SEGMENT)],
        read_time=read_time,
    )
    google.reply("Lookup", types.LookupResponse.serialize(answer))
    looked_up = await backend.store.get([SHARD, (("A", 1),), SEGMENT])
    assert [(entity.key, entity.version) for entity in looked_up.found] == [(SHARD, 5)]
    assert (looked_up.missing, looked_up.deferred) == (((("A", 1),),), (SEGMENT,))
    assert looked_up.read_time == 1_767_225_600_123_456

    asked = types.LookupRequest.deserialize(google.requests[0]).keys
    assert list(asked) == [key(*SHARD), key(("A", 1)), key(*SEGMENT)]

    async def second(request: bytes, _context: object) -> bytes:
        keys = types.LookupRequest.deserialize(request).keys
        found = [{"entity": {"key": each}, "version": 6} for each in keys]
        google.reply("Lookup", types.LookupResponse.serialize(types.LookupResponse(found=found)))
        return bytes(types.LookupResponse.serialize(types.LookupResponse(deferred=list(keys))))

    google.answers["Lookup"] = second
    found, _ = await read(backend.store, [SEGMENT])
    assert [entity.version for entity in found.values()] == [6]


async def test_an_answer_without_a_read_time_says_so(google: FakeGoogle, backend: Backend) -> None:
    assert (await backend.store.get([SHARD])).read_time is None


async def test_a_value_that_tally_never_writes_is_named(google: FakeGoogle, backend: Backend) -> None:
    entity = {"key": key(*SHARD), "properties": {"place": {"geo_point_value": {"latitude": 1.0}}}}
    google.reply("Lookup", types.LookupResponse.serialize(types.LookupResponse(found=[{"entity": entity}])))
    with pytest.raises(Rejected, match="'place' is a geo_point_value"):
        await backend.store.get([SHARD])


MORE = types.QueryResultBatch.MoreResultsType


@pytest.mark.parametrize(
    ("more", "number", "goes_on"),
    [
        (MORE.NO_MORE_RESULTS, 2, False),
        (MORE.NOT_FINISHED, 0, True),
        (MORE.NOT_FINISHED, 1, True),
        (MORE.MORE_RESULTS_AFTER_LIMIT, 2, True),
        (MORE.MORE_RESULTS_AFTER_LIMIT, 1, False),
        (MORE.MORE_RESULTS_AFTER_CURSOR, 2, True),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
async def test_a_page_has_a_cursor_while_there_may_be_more(
    google: FakeGoogle, backend: Backend, more: object, number: int, goes_on: bool
) -> None:
    results = [{"entity": {"key": key(*SHARD)}}] * number
    batch = types.QueryResultBatch(entity_results=results, end_cursor=b"here", more_results=more)
    google.reply("RunQuery", types.RunQueryResponse.serialize(types.RunQueryResponse(batch=batch)))
    page = await backend.store.query(Query(kind="Shard", limit=2))
    assert (len(page.entities), page.cursor) == (number, b"here" if goes_on else None)
