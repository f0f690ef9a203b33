"""What is as large as it may be is read in answers that a channel takes: else it would wait in the store for ever."""

from functools import partial
from random import Random

from msgspec.structs import replace

from tally import limits
from tally.clock import SECOND
from tally.ports import Upsert
from tally.tasks import expiry, keys, row
from tally.tasks.outbox import Outbox
from tally.tasks.parked import Parked, ParkedCalls, write
from tally.tasks.row import from_entity
from tally.tasks.run import Run, State, encode
from tally.tasks.runs import Runs
from tally.tasks.semaphore import Semaphores
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run

PAYLOAD = b"x" * limits.PULL_TASK_BYTES
MANY = 40
ROWS = 400


def _made(run: Run, _: Run | None) -> Run:
    return run


class OneShard(Random):
    """Draws ids that begin alike, as those of one shard do."""

    def getrandbits(self, bits: int, /) -> int:
        return super().getrandbits(bits) >> 4


async def fill(world: World, queue: str) -> tuple[Outbox, list[str]]:
    box = Outbox(world.store, world.queue, clock=world.clock, random=OneShard(5))
    entries = [box.entry(queue, Task(payload=PAYLOAD)) for _ in range(MANY)]
    for each in entries:
        await world.store.commit([each.write])
    return box, [each.id for each in entries]


def test_outbox_entries_are_drained_and_swept() -> None:
    async def body(world: World) -> None:
        box, ids = await fill(world, "drained")
        unknown = [f"{number:032x}" for number in range(limits.LOOKUP_KEYS)]
        assert await box.drain([*ids, *unknown]) == MANY
        box, _ = await fill(world, "swept")
        world.clock.step(60 * SECOND)
        assert await box.sweep() == MANY
        assert (await world.queue("swept").stats()).tasks == MANY

    run(body)


def test_parked_calls_are_listed() -> None:
    async def body(world: World) -> None:
        parked = Parked(
            id="", queue="q", call="f", reason="fatal", error="", at=1, payload=PAYLOAD, headers={}, epoch=0
        )
        for number in range(MANY):
            await world.store.commit([write(replace(parked, id=f"r-{number}"))])
        assert len([each async for each in ParkedCalls(world.store).all()]) == MANY

    run(body)


def test_blobs_are_removed() -> None:
    async def body(world: World) -> None:
        made = [keys.chunk(f"b-{number}", 0) for number in range(MANY * keys.EXPIRY_SHARDS)]
        for key in [key for key in made if keys.expires(key, 1).startswith("00:")]:
            await world.store.commit([Upsert(expiry.entity(key, {"data": PAYLOAD}, 1))])
        chunks = len(world.fake.of_kind(keys.BLOB))
        assert chunks > 2 * limits.LARGE_ENTITIES
        assert await expiry.sweep(world.store, keys.BLOB, world.clock.now()) == chunks

    run(body)


def test_the_runs_that_hold_places_are_looked_up() -> None:
    async def body(world: World) -> None:
        runs = Runs(world.store, world.clock, world.random)
        semaphores = Semaphores(world.store, runs, world.clock, world.random)
        text = "\0" * limits.RUN_ERROR_BYTES  # each is six bytes of JSON
        for number in range(MANY):
            held = Run(
                id=f"r-{number}",
                call="f",
                queue="q",
                epoch=1,
                due=1,
                keep=None,
                state=State.RUNNING,
                token=f"t-{number}",
                until=world.clock.now() + 3_600 * SECOND,
                error=text,
                traceback=text,
            )
            assert len(encode(held)) > 750_000
            await runs.change(held.id, partial(_made, held))
            assert await semaphores.enter("k", MANY, held.id, held.token) is not None
        world.clock.step(120 * SECOND)
        assert await semaphores.enter("k", MANY, "another", "token") is None

    run(body)


def test_rows_with_the_largest_headers_and_errors_are_leased_and_found() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        value = '"' * (limits.HEADER_BYTES - 100)  # each is two bytes of JSON
        task = Task(payload=b"x" * limits.INLINE_BYTES, headers={"h": value}, tag="t" * limits.TAG_BYTES)
        await queue.add_many([task] * ROWS)
        for entity in world.fake.of_kind(keys.TASK):
            old = from_entity(entity)
            failed = row.released(old, due=old.eta, error="e" * limits.ERROR_BYTES)
            await world.store.commit([row.update(old, failed)])
        leases = await queue.lease(ROWS, seconds=60)
        assert len(leases) == ROWS
        assert None not in await queue.held_many([(lease.name, lease.token) for lease in leases])

    run(body)
