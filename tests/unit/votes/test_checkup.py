from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tally.clock import SECOND
from tally.errors import Refused, Unavailable
from tally.ports import Committed, Insert, Key, Lookup, OnConflict, Outgoing, Puller, Received, Update, Write
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import checkup

NAME = UUID(int=7)


class Careless(FakeStore):
    """Takes stale updates, as a store does that ignores the strategy."""

    async def commit(self, writes: Sequence[Write]) -> Committed:
        careless = [
            Update(entity=w.entity, base_version=w.base_version, on_conflict=OnConflict.KEEP_STORED)
            if isinstance(w, Update)
            else w
            for w in writes
        ]
        return await super().commit(careless)


class HalfRefusing(FakeStore):
    """Refuses a stale commit, and writes its segment all the same."""

    async def commit(self, writes: Sequence[Write]) -> Committed:
        try:
            return await super().commit(writes)
        except Refused:
            await super().commit([write for write in writes if isinstance(write, Insert)])
            raise


class Down(FakeStore):
    async def get(self, keys: Sequence[Key]) -> Lookup:
        raise Unavailable("down", status="UNAVAILABLE")

    async def commit(self, writes: Sequence[Write]) -> Committed:
        raise Unavailable("down", status="UNAVAILABLE")


@pytest.mark.parametrize(
    ("store", "level", "says"),
    [
        (FakeStore(), "ok", "refuses a stale commit"),
        (Careless(flavour="firestore"), "wrong", "no worker may run"),
        (HalfRefusing(), "wrong", "wrote a part of it"),
        (Down(), "wrong", "could not be made: down"),
    ],
    ids=["good", "careless", "half refusing", "down"],
)
async def test_the_guard_probe_tells_a_store_that_can_be_trusted(store: FakeStore, level: str, says: str) -> None:
    finding = await checkup.guard_probe(store, NAME)
    assert (finding.level, bool(finding.mend)) == (level, level != "ok")
    assert says in finding.says
    assert not store.entities, "the probe leaves nothing behind"


@pytest.mark.parametrize(
    ("skew", "level"), [(0, "ok"), (2, "ok"), (-2, "ok"), (3, "note"), (20, "note"), (21, "wrong"), (-300, "wrong")]
)
async def test_a_clock_is_compared_with_the_store_s(skew: int, level: str) -> None:
    theirs = VirtualClock()
    own = VirtualClock(skew=skew * SECOND)
    finding = await checkup.clock(FakeStore(clock=theirs), own)
    assert finding.level == level
    assert f"{abs(skew)}.0 s" in finding.says


async def test_a_store_without_a_clock_or_an_answer_is_told_apart() -> None:
    assert (await checkup.clock(FakeStore(), VirtualClock())).level == "ok"
    assert (await checkup.clock(Down(), VirtualClock())).level == "wrong"


def test_ballot_keys_are_there_whole_and_private(tmp_path: Path) -> None:
    def look(version: str = "1", *, made_here: bool = True) -> str:
        return checkup.ballot_keys(tmp_path, version, made_here=made_here).level

    assert look() == "ok", "made at the first start"
    assert look(made_here=False) == "wrong"
    key = tmp_path / "1"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    assert look() == look(made_here=False) == "ok"
    key.chmod(0o644)
    assert (look(), look(made_here=False)) == ("note", "ok")
    key.write_text("not hexadecimal")
    assert look() == "wrong"


def test_a_folder_of_keys_that_cannot_be_read_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: Path) -> None:
        raise PermissionError(13, "Permission denied")  # root, as which a test may run, could read any

    monkeypatch.setattr(Path, "iterdir", closed)
    finding = checkup.ballot_keys(tmp_path, "1", made_here=True)
    assert (finding.level, finding.says) == ("wrong", f"{tmp_path}: Permission denied")


class NoPull:
    """A puller whose subscription cannot be pulled."""

    def __init__(self, status: str) -> None:
        self._status = status

    async def pull(self, max_messages: int) -> Sequence[Received]:
        raise Refused("no", status=self._status)

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        raise AssertionError("nothing was pulled")

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        raise AssertionError("nothing was pulled")


@pytest.mark.parametrize(
    ("waiting", "made_here", "level", "mend"),
    [
        (3, False, "wrong", "tally worker --stream 5 --until-empty"),
        (3, True, "wrong", "tally worker --stream 5 --until-empty"),
        (0, False, "note", "tally worker --stream 5 --until-empty && make deploy"),
        (0, True, "ok", ""),
    ],
)
def test_a_stream_that_no_function_names_is_found_with_the_command_that_drains_it(
    tally_loop: VirtualLoop, waiting: int, made_here: bool, level: str, mend: str
) -> None:
    async def main() -> None:
        backend = FakeBackend(streams=6)
        await backend.prepare()
        for topic in ("votes-1", "votes-5"):  # the first is named, and may hold what it will
            if waiting:
                await backend.publisher.publish(topic, [Outgoing(b"v", {})] * waiting)

        def puller(stream: int) -> Puller:
            return backend.puller(f"votes-{stream}") if stream == 5 else NoPull("NOT_FOUND")

        (finding,) = await checkup.left_streams(puller, 2, made_here=made_here)
        assert (finding.level, finding.mend.partition("  #")[0]) == (level, mend)
        assert len(await backend.puller("votes-5").pull(10)) == waiting  # what it looked at is back

    tally_loop.run(main())


async def test_streams_that_may_not_be_pulled_are_said_once() -> None:
    (finding,) = await checkup.left_streams(lambda _: NoPull("PERMISSION_DENIED"), 2, made_here=False)
    assert finding.level == "note"
    assert "streams above 1 could not be looked into" in finding.says


async def test_what_nobody_expected_of_a_stream_is_not_hidden() -> None:
    class Broken(NoPull):
        async def pull(self, max_messages: int) -> Sequence[Received]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await checkup.left_streams(lambda _: Broken(""), 2, made_here=True)
