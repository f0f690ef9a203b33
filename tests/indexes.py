"""Composite indexes: which one a query needs, and a watch that refuses a service a query whose index is not declared.

The emulators answer every query; the service refuses one whose index is missing. So each query that a service makes in
any test, on whichever store, is held against the declared indexes, from which Terraform makes the real ones.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tally.embedded.store import SqliteStore
from tally.ports import Query
from tally.tasks import keys
from tally.testing.faults import FaultyStore
from tally.testing.store import FakeStore

Index = tuple[str, tuple[str, ...]]

DECLARED: frozenset[Index] = frozenset(keys.INDEXES)
SERVICES = ("tally.votes", "tally.tasks", "tally.web")


def needed(query: Query) -> Index | None:
    """Return the composite index of a query as (kind, properties, "-x" descending), None if the built-in ones do.

    Those answer any number of equalities, or one property's range or order, without an ancestor for the latter.
    """
    equal = sorted({each.property for each in query.filters if each.op == "="})
    ranged = {each.property for each in query.filters if each.op != "="}
    order = [name for name in query.order if name.removeprefix("-") not in equal]
    rest = order + [name for name in sorted(ranged) if name not in {each.removeprefix("-") for each in order}]
    if not rest or (len(rest) == 1 and not equal and query.ancestor is None):
        return None
    return query.kind, (*equal, *rest)


@contextmanager
def watched() -> Iterator[None]:
    """Check every query that a service makes, on all stores that are loaded."""
    stores: list[Any] = [FakeStore, FaultyStore, SqliteStore]
    if "tally.gcp.datastore" in sys.modules:
        stores.append(sys.modules["tally.gcp.datastore"].DatastoreStore)
    patches = [patch.object(store, "query", _checking(store.query)) for store in stores]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _checking(original: Callable[[Any, Query], Any]) -> Callable[[Any, Query], Any]:
    def query(self: Any, asked: Query) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith(SERVICES):
            index = needed(asked)
            assert index is None or index in DECLARED, f"{caller}: no index {index} is declared for {asked}"
        return original(self, asked)

    return query
