import pytest

from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.pages import after, size, token

HOUR = 3_600 * 1_000_000


def test_a_token_goes_on_where_its_page_ended() -> None:
    assert after(token("list", "item 9", 0), "list", 2 * HOUR) == "item 9"
    assert after("", "list", 0) == ""


@pytest.mark.parametrize(
    ("page_token", "message"),
    [
        ("%%%", "not valid"),
        ("ü", "not valid"),
        ("bnVsbA==", "not valid"),
        (token("other", "x", 0), "another list"),
        (token("list", "x", -1), "older than 2 hours"),
    ],
)
def test_a_bad_token_is_refused(page_token: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        after(page_token, "list", 2 * HOUR)


def test_a_page_has_the_size_that_is_asked_for_up_to_its_limit() -> None:
    assert [size(asked, 100) for asked in (0, 1, 100, 101)] == [100, 1, 100, 100]
    with pytest.raises(ApiError, match="-1"):
        size(-1, 100)
