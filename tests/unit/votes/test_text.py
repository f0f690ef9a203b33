import pytest

from tally.errors import InvalidInput
from tally.votes.text import clean


@pytest.mark.parametrize(
    ("sent", "cleaned"),
    [
        ("ann", "ann"),
        ("a b:c", "a b:c"),
        ("__key__", "__key__"),
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("\u212b", "\u00c5"),
        ("\U0001f600" * 4, "\U0001f600" * 4),
    ],
)
def test_text_is_brought_into_one_normal_form(sent: str, cleaned: str) -> None:
    assert clean(sent, "voter", 16) == cleaned


@pytest.mark.parametrize("wrong", ["", " ", " a", "a ", "\ta", "a\n", "a\u00a0", "\u3000a"])
def test_text_that_is_empty_or_has_white_space_at_an_end_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput):
        clean(wrong, "voter", 16)


@pytest.mark.parametrize(
    ("wrong", "named"), [("a\x00b", "U+0000"), ("a\x7fb", "U+007F"), ("a\x85b", "U+0085"), ("\ud800", "lone surrogate")]
)
def test_control_characters_and_lone_surrogates_are_refused_by_name(wrong: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=f"voter holds .*{named.replace('+', '.')}"):
        clean(wrong, "voter", 16)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\U0001f600"])
def test_lengths_count_bytes_of_utf8(letter: str) -> None:
    size = len(letter.encode())
    assert clean(letter * 4, "voter", 4 * size)
    with pytest.raises(InvalidInput, match=f"voter has {4 * size} bytes: want 1 to {4 * size - 1}"):
        clean(letter * 4, "voter", 4 * size - 1)
