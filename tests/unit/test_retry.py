from random import Random

from tally.retry import full_jitter


def test_full_jitter_stays_below_the_doubled_base_and_the_cap() -> None:
    random = Random(1)
    for attempt, bound in ((1, 0.5), (2, 1.0), (3, 2.0), (10, 20.0), (10_000, 20.0)):
        waits = [full_jitter(attempt, base=0.5, cap=20, random=random) for _ in range(200)]
        assert 0 <= min(waits) <= max(waits) <= bound
        assert max(waits) > bound * 0.8
