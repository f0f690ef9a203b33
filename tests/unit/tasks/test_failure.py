import pytest

from tally.tasks.failure import Failures, Weight


def broken(_: BaseException) -> bool:
    raise RuntimeError


@pytest.mark.parametrize(
    ("failures", "weight"),
    [
        (Failures(), "counts"),
        (Failures(fatal=(KeyError,)), "fatal"),
        (Failures(fatal=(ValueError,)), "counts"),
        (Failures(retry_for=(LookupError,)), "counts"),
        (Failures(retry_for=(ValueError,)), "fatal"),
        (Failures(retry_for=(LookupError,), fatal=(KeyError,)), "fatal"),
        (Failures(uncounted=(KeyError,)), "free"),
        (Failures(uncounted=lambda error: str(error) == "'x'"), "free"),
        (Failures(uncounted=lambda error: str(error) == "y"), "counts"),
        (Failures(uncounted=(KeyError,), fatal=(KeyError,)), "fatal"),
        (Failures(fatal=broken, retry_for=broken, uncounted=broken), "counts"),
    ],
)
def test_an_error_is_weighed_by_the_first_rule_that_means_it(failures: Failures, weight: Weight) -> None:
    assert failures.weigh(KeyError("x")) == weight
