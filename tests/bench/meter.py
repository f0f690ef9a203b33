"""Counts what is asked of Datastore: through our port, and below the official client of the peers."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from google.cloud.datastore_v1.services.datastore import DatastoreClient

from tally.ports import Committed, Delete, Key, Lookup, Page, Query, Store, Write
from tally.votes import keys, prices


@dataclass(slots=True, kw_only=True)
class Usage:
    """Entities read, written and deleted; what was refused or failed counts too."""

    reads: int = 0
    writes: int = 0
    deletes: int = 0

    @property
    def dollars(self) -> float:
        return self.reads * prices.READ + self.writes * prices.WRITE + self.deletes * prices.DELETE


class MeteredStore:
    """A store that counts. `ledger_rpcs`: calls on ledgers; `commits`: those of them that succeeded in writing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.usage = Usage()
        self.ledger_rpcs = self.commits = 0

    def reset(self) -> None:
        self.usage = Usage()
        self.ledger_rpcs = self.commits = 0

    async def get(self, wanted: Sequence[Key]) -> Lookup:
        self.ledger_rpcs += wanted[0][0][0] == keys.SHARD
        self.usage.reads += len(wanted)
        return await self._store.get(wanted)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        self.ledger_rpcs += 1
        deletes = sum(isinstance(write, Delete) for write in writes)
        self.usage.deletes += deletes
        self.usage.writes += len(writes) - deletes
        answer = await self._store.commit(writes)
        self.commits += 1
        return answer

    async def query(self, query: Query) -> Page:
        page = await self._store.query(query)
        self.usage.reads += 1 + len(page.entities)
        return page


@contextlib.contextmanager
def metered_client() -> Iterator[Usage]:
    """Count what every official Datastore client of this process does."""
    usage = Usage()
    lookup, commit = DatastoreClient.lookup, DatastoreClient.commit

    def counted_lookup(client: DatastoreClient, *arguments: Any, **keywords: Any) -> Any:
        usage.reads += len(keywords["request"]["keys"])
        return lookup(client, *arguments, **keywords)

    def counted_commit(client: DatastoreClient, *arguments: Any, **keywords: Any) -> Any:
        usage.writes += len(keywords["request"]["mutations"])
        return commit(client, *arguments, **keywords)

    with (
        mock.patch.object(DatastoreClient, "lookup", counted_lookup),
        mock.patch.object(DatastoreClient, "commit", counted_commit),
    ):
        yield usage
