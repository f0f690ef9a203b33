"""The Store on Datastore (Firestore in Datastore mode) and on both emulators.

A commit is one RPC: a single-use read-write transaction, so that no transaction outlives its call and none can nest.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

from google.cloud.datastore_v1 import types

from tally.errors import Rejected
from tally.gcp import calls
from tally.gcp.clients import Clients
from tally.gcp.entities import Codec, read_entity, read_instant, read_key, write_value
from tally.ports import Committed, Delete, Insert, Key, Lookup, OnConflict, Page, Query, Update, Upsert, Write

_LookupRequest: Final = types.LookupRequest.pb()
_CommitRequest: Final = types.CommitRequest.pb()
_RunQueryRequest: Final = types.RunQueryRequest.pb()
_SINGLE_USE: Final = types.TransactionOptions.pb()(read_write={})
_TRANSACTIONAL: Final = int(types.CommitRequest.Mode.TRANSACTIONAL)
_STRATEGIES: Final = {
    OnConflict.FAIL: int(types.Mutation.ConflictResolutionStrategy.FAIL),
    OnConflict.KEEP_STORED: int(types.Mutation.ConflictResolutionStrategy.SERVER_VALUE),
}
_OPERATORS: Final = {
    "=": int(types.PropertyFilter.Operator.EQUAL),
    "<": int(types.PropertyFilter.Operator.LESS_THAN),
    "<=": int(types.PropertyFilter.Operator.LESS_THAN_OR_EQUAL),
    ">": int(types.PropertyFilter.Operator.GREATER_THAN),
    ">=": int(types.PropertyFilter.Operator.GREATER_THAN_OR_EQUAL),
}
_HAS_ANCESTOR: Final = int(types.PropertyFilter.Operator.HAS_ANCESTOR)
_AND: Final = int(types.CompositeFilter.Operator.AND)
_ASCENDING: Final = int(types.PropertyOrder.Direction.ASCENDING)
_DESCENDING: Final = int(types.PropertyOrder.Direction.DESCENDING)
_NO_MORE: Final = int(types.QueryResultBatch.MoreResultsType.NO_MORE_RESULTS)
_NOT_FINISHED: Final = int(types.QueryResultBatch.MoreResultsType.NOT_FINISHED)


class DatastoreStore:
    def __init__(self, clients: Clients, project: str, database: str) -> None:
        self._clients = clients
        self._address = {"project_id": project, "database_id": database}
        self._codec = Codec(project, database)

    async def get(self, keys: Sequence[Key]) -> Lookup:
        request = _LookupRequest(**self._address)
        for key in keys:
            self._codec.write_key(key, request.keys.add())
        reply = await calls.call(calls.LOOKUP, self._clients.datastore.lookup, types.LookupRequest.wrap(request))
        message = types.LookupResponse.pb(reply)
        return Lookup(
            found=tuple(read_entity(result.entity, result.version) for result in message.found),
            missing=tuple(read_key(result.entity.key) for result in message.missing),
            deferred=tuple(read_key(key) for key in message.deferred),
            read_time=read_instant(message.read_time) or None,
        )

    async def commit(self, writes: Sequence[Write]) -> Committed:
        if len({_key_of(write) for write in writes}) < len(writes):
            raise Rejected("a commit writes one key twice", status="INVALID_ARGUMENT")
        request = _CommitRequest(mode=_TRANSACTIONAL, single_use_transaction=_SINGLE_USE, **self._address)
        for write in writes:
            self._write_mutation(write, request.mutations.add())
        reply = await calls.call(calls.COMMIT, self._clients.datastore.commit, types.CommitRequest.wrap(request))
        results = types.CommitResponse.pb(reply).mutation_results
        return Committed(
            versions=tuple(result.version for result in results),
            conflict_detected=any(result.conflict_detected for result in results),
        )

    async def query(self, query: Query) -> Page:
        request = _RunQueryRequest(**self._address)
        request.partition_id.project_id = self._address["project_id"]
        request.partition_id.database_id = self._address["database_id"]
        self._write_query(query, request.query)
        reply = await calls.call(calls.QUERY, self._clients.datastore.run_query, types.RunQueryRequest.wrap(request))
        batch = types.RunQueryResponse.pb(reply).batch
        return Page(
            entities=tuple(read_entity(result.entity, result.version) for result in batch.entity_results),
            cursor=batch.end_cursor if _has_more(batch, query.limit) else None,
        )

    def _write_mutation(self, write: Write, mutation: Any) -> None:
        match write:
            case Insert(entity):
                self._codec.write_entity(entity, mutation.insert)
            case Upsert(entity):
                self._codec.write_entity(entity, mutation.upsert)
            case Update():
                self._codec.write_entity(write.entity, mutation.update)
                mutation.base_version = write.base_version
                mutation.conflict_resolution_strategy = _STRATEGIES[write.on_conflict]
            case Delete():
                self._codec.write_key(write.key, mutation.delete)
                if write.base_version is not None:
                    mutation.base_version = write.base_version
                    mutation.conflict_resolution_strategy = _STRATEGIES[OnConflict.FAIL]
            case _:
                assert_never(write)

    def _write_query(self, query: Query, target: Any) -> None:
        target.kind.add(name=query.kind)
        target.limit.value = query.limit
        if query.cursor is not None:
            target.start_cursor = query.cursor
        if query.keys_only:
            target.projection.add().property.name = "__key__"
        for name in query.order:
            direction = _DESCENDING if name.startswith("-") else _ASCENDING
            target.order.add(direction=direction).property.name = name.removeprefix("-")
        if query.ancestor is None and not query.filters:
            return
        target.filter.composite_filter.op = _AND
        filters = target.filter.composite_filter.filters
        if query.ancestor is not None:
            below = filters.add().property_filter
            below.property.name, below.op = "__key__", _HAS_ANCESTOR
            self._codec.write_key(query.ancestor, below.value.key_value)
        for condition in query.filters:
            compare = filters.add().property_filter
            compare.property.name, compare.op = condition.property, _OPERATORS[condition.op]
            write_value(condition.property, condition.value, compare.value, indexed=True)


def _key_of(write: Write) -> Key:
    return write.key if isinstance(write, Delete) else write.entity.key


def _has_more(batch: Any, limit: int) -> bool:
    """A short page is the last one unless the service says that it stopped early; one emulator never says it is."""
    if batch.more_results in (_NO_MORE, _NOT_FINISHED):
        return bool(batch.more_results == _NOT_FINISHED)
    return len(batch.entity_results) >= limit
