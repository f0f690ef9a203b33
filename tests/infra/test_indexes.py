"""The indexes that queries need are the declared ones, and those are what Terraform makes."""

import pytest

from tally.ports import Filter, Query
from tally.tasks import keys
from tally.testing.backend import FakeBackend
from tally.testing.loop import VirtualLoop
from tests import indexes
from tests.infra.terraform import Plan

DUE = Filter("due", "<=", 1)
TAG = Filter("tag", "=", "x")


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Query(kind="T"), None),
        (Query(kind="T", ancestor=(("Q", 1),)), None),
        (Query(kind="T", filters=(TAG, Filter("state", "=", 1))), None),
        (Query(kind="T", filters=(TAG,), ancestor=(("Q", 1),)), None),
        (Query(kind="T", filters=(DUE, Filter("due", ">", 0)), order=("-due",)), None),
        (Query(kind="T", filters=(TAG,), order=("tag",)), None),
        (Query(kind="T", filters=(DUE, TAG)), ("T", ("tag", "due"))),
        (Query(kind="T", filters=(TAG,), order=("-due",)), ("T", ("tag", "-due"))),
        (Query(kind="T", order=("due", "-tag")), ("T", ("due", "-tag"))),
        (Query(kind="T", filters=(DUE,), ancestor=(("Q", 1),)), ("T", ("due",))),
    ],
)
def test_a_query_needs_the_index_of_its_filters_and_order(query: Query, index: indexes.Index | None) -> None:
    assert indexes.needed(query) == index


def test_a_query_of_a_service_without_its_index_is_refused(tally_backend: FakeBackend, tally_loop: VirtualLoop) -> None:
    """The watch is on in every test: a module that passes for a service shows it."""
    service: dict[str, object] = {"__name__": "tally.tasks.planted"}
    exec("def ask(store, query):\n    return store.query(query)", service)
    ask = service["ask"]
    assert callable(ask)
    assert tally_loop.run(ask(tally_backend.store, Query(kind="Task"))).entities == ()
    with pytest.raises(AssertionError, match=r"no index \('Task', \('tag', 'due'\)\)"):
        ask(tally_backend.store, Query(kind="Task", filters=(DUE, TAG)))


def test_terraform_makes_the_declared_indexes_and_no_other(plan: Plan) -> None:
    made = {
        (
            values["collection"],
            tuple(("-" if one["order"] == "DESCENDING" else "") + one["field_path"] for one in values["fields"]),
        )
        for values in plan.of_type("google_firestore_index").values()
    }
    assert made == set(keys.INDEXES)


def test_terraform_deletes_by_the_declared_times_to_live(plan: Plan) -> None:
    fields = plan.of_type("google_firestore_field").values()
    assert {(values["collection"], values["field"]) for values in fields} == set(keys.TIME_TO_LIVE)
    assert all(values["ttl_config"] for values in fields)
