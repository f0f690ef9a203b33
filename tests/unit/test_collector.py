"""What a process that serves asks of the garbage collector."""

import gc
import weakref

from tally import collector


class Ring:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_the_start_made_is_left_alone_and_a_round_comes_less_often_but_does_come() -> None:
    before = gc.get_threshold()
    try:
        collector.spare()
        assert gc.get_freeze_count() > 0
        young, *_ = gc.get_threshold()
        assert young > before[0]
        ring = weakref.ref(Ring())
        kept = [[number] for number in range(2 * young)]
        assert ring() is None, f"{len(kept):,} objects later nobody looked"
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
