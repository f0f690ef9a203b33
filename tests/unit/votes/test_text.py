import pytest

from tally.errors import InvalidInput
from tally.votes.text import clean, identity


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


def test_characters_that_have_no_normal_form_yet_identify_nobody() -> None:
    assert identity("Zu\u0308rich \U0001f600", "voter", 16) == "Z\u00fcrich \U0001f600"
    assert clean("a\u0378", "title", 16) == "a\u0378"
    for wrong, named in (("a\u0378", r"U\+0378"), ("\ufdd0", r"U\+FDD0"), ("a\U0010ffff", r"U\+10FFFF")):
        with pytest.raises(InvalidInput, match=f"voter holds {named}, which is no character yet"):
            identity(wrong, "voter", 16)
    with pytest.raises(InvalidInput, match="voter has 3 bytes: want 4 to 16"):
        identity("ann", "voter", 16, 4)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\U0001f600"])
def test_lengths_count_bytes_of_utf8(letter: str) -> None:
    size = len(letter.encode())
    assert clean(letter * 4, "voter", 4 * size)
    with pytest.raises(InvalidInput, match=f"voter has {4 * size} bytes: want 1 to {4 * size - 1}"):
        clean(letter * 4, "voter", 4 * size - 1)
