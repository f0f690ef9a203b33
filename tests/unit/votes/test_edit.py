from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import Conflict, InvalidInput, TallyError
from tally.votes import edit
from tally.votes.edit import NewOption, NewPoll, Patch
from tally.votes.poll import CACHE_LIFETIME, FOREVER, GRACE, Poll, refusal

NOW = 1_900_000_000 * SECOND
HOUR = 3_600 * SECOND


def new(**fields: Any) -> NewPoll:
    options = (NewOption(id="red"), NewOption(id="blue", label="Blue"))
    return NewPoll(**{"id": "lunch", "title": "Lunch", "options": options, **fields})


def made(**fields: Any) -> Poll:
    return edit.create(new(**fields), NOW, "1")


def test_a_poll_that_says_no_more_is_open_at_once_and_until_it_is_closed() -> None:
    poll = made()
    assert poll.status(NOW) == "open"
    assert (poll.opens_at, poll.closes_at, poll.partitions, poll.key_version) == (0, FOREVER, 16, "1")
    assert [(option.id, option.label) for option in poll.options] == [("red", "red"), ("blue", "Blue")]


@pytest.mark.parametrize(
    ("expected", "partitions"),
    [(None, 16), (1, 1), (999, 1), (1_000, 16), (48_000_000, 16), (48_000_001, 17), (768_000_000, 256)],
)
def test_partitions_come_from_the_expected_votes(expected: int | None, partitions: int) -> None:
    assert made(expected_votes=expected).partitions == partitions


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": ""}, "bad-id"),
        ({"id": " "}, "bad-id"),
        ({"id": "-a"}, "bad-id"),
        ({"id": "A"}, "bad-id"),
        ({"id": "a/b"}, "bad-id"),
        ({"id": "a\n"}, "bad-id"),
        ({"id": "__key__"}, "bad-id"),
        ({"title": ""}, "bad-length"),
        ({"title": "a\x00"}, "bad-text"),
        ({"options": (NewOption(id=""),)}, "bad-length"),
        ({"options": (NewOption(id="a", label=""),)}, "bad-length"),
        ({"options": (NewOption(id="a"), NewOption(id="a"))}, "bad-options"),
        ({"options": (NewOption(id="u\u0308"), NewOption(id="\u00fc"))}, "bad-options"),
        ({"opens_at": NOW + HOUR, "closes_at": NOW + HOUR}, "bad-time"),
        ({"opens_at": NOW + HOUR, "closes_at": NOW + HOUR - 1}, "bad-time"),
        ({"closes_at": NOW}, "bad-time"),
        ({"opens_at": -1}, "bad-time"),
        ({"closes_at": edit.LATEST + 1}, "bad-time"),
        ({"expected_votes": 0}, "bad-size"),
        ({"expected_votes": 768_000_001}, "bad-size"),
        ({"partitions": 0}, "bad-size"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(**fields)
    assert caught.value.code == code


def test_names_that_datastore_reserves_are_good_option_ids() -> None:
    assert made(options=(NewOption(id="__key__"), NewOption(id="__x__"))).options[0].id == "__key__"


def test_a_patch_must_name_the_revision_that_it_changes() -> None:
    changed = edit.amend(made(), Patch(revision=1, title="Supper"), NOW)
    assert (changed.title, changed.revision) == ("Supper", 2)
    with pytest.raises(Conflict, match="at revision 2, not 1"):
        edit.amend(changed, Patch(revision=1, title="Brunch"), NOW)


def test_an_early_close_lies_a_cache_lifetime_ahead() -> None:
    poll = edit.close(made(closes_at=NOW + HOUR), NOW)
    assert poll.closes_at == NOW + CACHE_LIFETIME
    assert edit.close(poll, NOW + SECOND) is poll


def test_a_poll_that_is_closed_before_it_opens_never_takes_a_vote() -> None:
    poll = edit.close(made(opens_at=NOW + HOUR), NOW)
    assert refusal(poll, poll.options[0], NOW + SECOND) == "poll-not-open"
    assert refusal(poll, poll.options[0], NOW + HOUR) == "poll-closed"


def test_a_deletion_refuses_as_an_early_close_and_keeps_the_definition() -> None:
    poll = made()
    tombstone = edit.delete(poll, NOW)
    assert tombstone.deleted_at == NOW + CACHE_LIFETIME
    assert (tombstone.options, tombstone.key_version) == (poll.options, poll.key_version)
    assert refusal(tombstone, poll.options[0], NOW + CACHE_LIFETIME - 1) is None
    assert refusal(tombstone, poll.options[0], NOW + CACHE_LIFETIME) == "poll-deleted"
    assert edit.delete(tombstone, NOW + HOUR) is tombstone


def test_options_are_appended_or_withdrawn_with_an_instant_and_keep_their_numbers() -> None:
    patch = Patch(revision=1, add_options=(NewOption(id="green"),), withdraw_options=("red",))
    poll = edit.amend(made(), patch, NOW)
    assert [option.id for option in poll.options] == ["red", "blue", "green"]
    assert [option.withdrawn_at for option in poll.options] == [NOW + CACHE_LIFETIME, FOREVER, FOREVER]
    again = edit.amend(poll, Patch(revision=2, withdraw_options=("red",)), NOW + HOUR)
    assert again.options[0].withdrawn_at == NOW + CACHE_LIFETIME


AMENDMENTS: list[tuple[str, dict[str, Any], dict[str, Any], int, str | None]] = [
    ("the end may come closer", {"closes_at": NOW + HOUR}, {"closes_at": NOW + CACHE_LIFETIME}, NOW, None),
    ("but not at once", {"closes_at": NOW + HOUR}, {"closes_at": NOW + CACHE_LIFETIME - 1}, NOW, "bad-time"),
    ("the end may go further", {"closes_at": NOW + HOUR}, {"closes_at": NOW + 2 * HOUR}, NOW + HOUR - 1, None),
    ("but not after it came", {"closes_at": NOW + HOUR}, {"closes_at": NOW + 2 * HOUR}, NOW + HOUR, "poll-ended"),
    ("nor a title then", {"closes_at": NOW + HOUR}, {"title": "Late"}, NOW + HOUR, "poll-ended"),
    ("the end may not pass the opening", {"opens_at": NOW + HOUR}, {"closes_at": NOW + HOUR}, NOW, "bad-time"),
    ("the opening may come closer", {"opens_at": NOW + HOUR}, {"opens_at": NOW}, NOW, None),
    ("the opening may go further", {"opens_at": NOW + HOUR}, {"opens_at": NOW + 2 * HOUR}, NOW, None),
    (
        "until one minute before it",
        {"opens_at": NOW + HOUR},
        {"opens_at": NOW + 2 * HOUR},
        NOW + HOUR - GRACE,
        "opening-fixed",
    ),
    ("and never once it opened", {}, {"opens_at": NOW + HOUR}, NOW, "opening-fixed"),
    (
        "hidden results fix the end a minute before it",
        {"closes_at": NOW + HOUR, "results": "after-close"},
        {"closes_at": NOW + 2 * HOUR},
        NOW + HOUR - GRACE,
        "end-fixed",
    ),
    ("an unknown option cannot be withdrawn", {}, {"withdraw_options": ("green",)}, NOW, "unknown-option"),
    ("an option cannot be added twice", {}, {"add_options": (NewOption(id="red"),)}, NOW, "bad-options"),
]


@pytest.mark.parametrize(("name", "poll", "patch", "at", "code"), AMENDMENTS, ids=[row[0] for row in AMENDMENTS])
def test_what_may_be_amended_and_until_when(
    name: str, poll: dict[str, Any], patch: dict[str, Any], at: int, code: str | None
) -> None:
    before = made(**poll)
    try:
        edit.amend(before, Patch(revision=1, **patch), at)
    except TallyError as error:
        assert error.code == code
    else:
        assert code is None


def test_no_change_refuses_at_once_what_was_taken_before() -> None:
    """A definition that a function may still hold for a cache lifetime accepts nothing that the new one refuses."""
    before = made(closes_at=NOW + HOUR)
    changes = [
        edit.close(before, NOW),
        edit.delete(before, NOW),
        edit.amend(before, Patch(revision=1, withdraw_options=("red",)), NOW),
        edit.amend(before, Patch(revision=1, closes_at=NOW + CACHE_LIFETIME), NOW),
    ]
    for after in changes:
        assert refusal(after, after.options[0], NOW + CACHE_LIFETIME - 1) is None
        assert refusal(after, after.options[0], NOW + CACHE_LIFETIME) is not None
