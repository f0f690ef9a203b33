"""What `tally doctor` finds out about the ballot keys and, through the port, about the store."""

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tally.clock import CLOCK_BOUND, SECOND, Clock, apart
from tally.errors import BackendError, ConfigError, UnsafeStore
from tally.finding import Finding, note, ok, wrong
from tally.limits import STREAMS
from tally.ports import Puller, Store
from tally.votes import guard, keyring, keys

CLOCK_NOTE = 2 * SECOND
_OTHER_STORE = "export TALLY_DATABASE=NAME  # of a database in Datastore mode, or another emulator"
_SET_CLOCK = "sudo timedatectl set-ntp true"


def ballot_keys(folder: Path, version: str, *, made_here: bool) -> Finding:
    """Look whether the key of new polls is there and private. `made_here`: local work makes a missing one."""
    try:
        found = version in keyring.load(folder)
    except ConfigError as error:
        return wrong("ballot-keys", error.message, f"ls -l {folder}  # put the right file back: never make another key")
    except OSError as error:
        return wrong("ballot-keys", f"{folder}: {error.strerror}", f"ls -ld {folder}")
    if not found and made_here:
        return ok("ballot-keys", f"{folder} has no key {version!r} yet: `tally serve` makes it")
    if not found:
        says = f"{folder} has no key of version {version!r}, which new polls take (TALLY_BALLOT_KEY)"
        return wrong("ballot-keys", says, "make deploy  # the functions mount the keys of Secret Manager")
    open_to_all = (folder / version).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    if made_here and open_to_all:
        return note("ballot-keys", f"{folder / version} can be read by others", f"chmod -R go= {folder}")
    return ok("ballot-keys", f"key {version!r} is there")


async def guard_probe(store: Store, name: UUID) -> Finding:
    """Try the commits that a worker makes, on entities of its own, deleted after."""
    try:
        await guard.probe(store, name)
    except UnsafeStore as error:
        return wrong("guard", f"no worker may run on this store: {error.message}", _OTHER_STORE)
    except BackendError as error:
        return wrong("guard", f"the probe could not be made: {error.message}", "tally doctor  # once the store answers")
    return ok("guard", "the store refuses a stale commit")


async def waits(puller: Puller) -> bool | None:
    """Say whether a message waits in a subscription; None: there is no such subscription.

    A message that is found goes back at once. Raises BackendError for anything else.
    """
    try:
        messages = await puller.pull(1)
    except BackendError as error:
        if error.status == "NOT_FOUND":
            return None
        raise
    if messages:
        await puller.extend([message.ack_id for message in messages], 0)
    return bool(messages)


async def left_streams(puller: Callable[[int], Puller], streams: int, *, made_here: bool) -> list[Finding]:
    """Look into each stream that is there though no function names it: they publish to the first `streams`.

    `made_here`: in local work an empty one costs nothing, and nothing takes it away.
    """
    numbers = range(streams, STREAMS)
    looks = await asyncio.gather(
        *[_look(puller(number), number, streams, made_here) for number in numbers], return_exceptions=True
    )
    findings = [look for look in looks if isinstance(look, Finding)]
    for look in looks:
        if isinstance(look, BackendError):  # the same for all of them, such as a missing grant: it is said once
            says = f"streams above {streams - 1} could not be looked into: {look.message}"
            return [*findings, note("streams", says, "tally doctor  # by an account that may pull")]
        if isinstance(look, BaseException):
            raise look
    return findings


async def _look(puller: Puller, stream: int, streams: int, made_here: bool) -> Finding | None:
    drain = f"tally worker --stream {stream} --until-empty"
    waiting = await waits(puller)
    if waiting is None:
        return None
    if waiting:
        says = f"votes wait in stream {stream}, which is not one of the {streams} that functions publish to"
        return wrong("streams", says, drain)
    says = f"stream {stream} is none of the {streams} that functions publish to"
    if made_here:
        return ok("streams", f"{says}, and no vote waits in it")
    mend = f"{drain} && make deploy  # once it is no more in streams_kept"
    return note("streams", f"{says}: it may go when a worker has drained it", mend)


async def clock(store: Store, own: Clock) -> Finding:
    """Compare our clock with the store's, where that tells its time."""
    before = own.now()
    try:
        read_time = (await store.get([keys.poll("doctor")])).read_time
    except BackendError as error:
        return wrong("clock", f"the store did not answer: {error.message}", "tally doctor  # once the store answers")
    after = own.now()
    if read_time is None:
        return ok("clock", "the store tells no time to compare with")
    return compare_clocks(apart(before, read_time, after))


def compare_clocks(skew: int) -> Finding:
    """Judge how far, in µs, our clock is from another."""
    says = f"this clock is {skew / SECOND:.1f} s from the store's"
    if skew > CLOCK_BOUND:
        return wrong("clock", f"{says}: beyond {CLOCK_BOUND // SECOND} s votes are answered with 503", _SET_CLOCK)
    return note("clock", says, _SET_CLOCK) if skew > CLOCK_NOTE else ok("clock", says)
