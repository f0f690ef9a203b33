"""The garbage collector of a process that serves for long: out of the way of its work."""

import gc

# So many more objects made than freed, before it looks at the young ones. With 700, Python's own number, a twentieth of
# a worker's time goes there: a Pull's messages, which are in no cycle, are more than that.
_YOUNG = 50_000


def spare() -> None:
    """Leave alone what the start made, which stays, and look at the rest less often. To be called when all is made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
