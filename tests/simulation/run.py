"""Runs one seed to quiescence and judges it."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from tally.ports import Delete
from tally.votes.poll import FOREVER
from tests.simulation import oracles
from tests.simulation.chaos import Chaos
from tests.simulation.processes import Function, Worker, describe
from tests.simulation.traffic import SIDE, Traffic
from tests.simulation.world import World

FUNCTIONS, WORKERS = 2, 3
CHAOS_SECONDS = 18.0
QUIET_SECONDS = 600.0
PURGE_SECONDS = 32 * 86_400.0
AWAY_SECONDS = 90.0  # more than the grace: what then comes in was cast in time all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`wrong` is empty if all held. `fired`: faults and events by name. Of the `ballots` cast `counted` count."""

    seed: int
    wrong: tuple[str, ...]
    fired: Counter[str]
    ballots: int
    counted: int
    commits: int
    virtual_seconds: float
    seconds: float
    log: tuple[str, ...] = ()


def simulate(seed: int, *, log: bool = False) -> Outcome:
    begun = perf_counter()
    world = World(seed, log=log)
    functions = [Function(world, number) for number in range(1, FUNCTIONS + 1)]
    workers = [Worker(world, number) for number in range(1, WORKERS + 1)]
    traffic = Traffic(world, functions)
    with _no_collection(), world.scale(), world.loop as loop, world.logging():
        try:
            loop.run(_run(world, functions, workers, traffic))
        except Exception as error:
            world.truth.say(f"the run broke down: {describe(error)}, from {error.__cause__!r}")
        virtual = loop.time()
    wrong = (*world.truth.wrong, *world.verdict)
    if world.truth.largest_segment == world.segment_records:
        world.plan.fired["segment:filled"] += 1
    if world.truth.largest_segment > world.segment_records:
        wrong += (f"a segment of {world.truth.largest_segment} records, over {world.segment_records}",)
    if world.truth.folds:
        world.plan.fired["ledger:folded"] += world.truth.folds
    return Outcome(
        seed=seed,
        wrong=wrong,
        fired=world.plan.fired,
        ballots=len({(poll, ballot) for poll, ballot, _ in traffic.submitted}),
        counted=len(world.truth.committed),
        commits=world.truth.commits,
        virtual_seconds=virtual,
        seconds=perf_counter() - begun,
        log=tuple(world.log or ()),
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector out: it would finalize tasks at moments of its own, and takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def _run(world: World, functions: list[Function], workers: list[Worker], traffic: Traffic) -> None:
    hosts: list[Function | Worker] = [*functions, *workers]
    for host in hosts:
        host.start()
    chaos = Chaos(world, functions, workers)
    supervisor = asyncio.create_task(chaos.supervise())
    voting = asyncio.create_task(traffic.run())
    await chaos.run(CHAOS_SECONDS)
    await chaos.settle()
    if world.random("away").random() < 0.15:
        await chaos.send_workers_away(AWAY_SECONDS)
    world.note("quiet from here on")
    world.plan.quiet = True
    await asyncio.wait([voting], timeout=QUIET_SECONDS)
    if not voting.done():
        world.truth.say("clients still wait for an answer")
    else:
        voting.result()
    await _quiesce(world, traffic)
    supervisor.cancel()
    world.verdict = oracles.judge(world.truth, world.store, traffic) + await oracles.audit(world.store, world.clock)
    if world.truth.polls[SIDE]["deleted_at"] < FOREVER and world.random("purge").random() < 0.3:
        await _purge(world, workers, traffic)
    for worker in workers:
        if worker.up:
            await worker.terminate()


async def _quiesce(world: World, traffic: Traffic) -> None:
    """Wait until nothing is left in the subscription but what waits for later versions."""
    for second in range(int(QUIET_SECONDS)):
        if unsettled(world) <= len(world.truth.newer) and not world.network.late:
            return
        if world.truth.poisoned and second % 10 == 9:
            await traffic.neighbour_of_poison(second)
        await asyncio.sleep(1)
    world.truth.say(f"livelock: {unsettled(world)} messages are not settled")


def unsettled(world: World) -> int:
    return sum(votes.unsettled for votes in world.votes)


async def _purge(world: World, workers: list[Worker], traffic: Traffic) -> None:
    """Purge the deleted poll's ledger when its time has come, and replay votes to it: it must not come back.

    One worker has been frozen all the while and still holds the ledger.
    """
    zombie, *others = workers
    for worker in others:
        if worker.process:
            worker.process.kill()
    if zombie.process:
        zombie.process.freeze()
    await asyncio.sleep(PURGE_SECONDS)
    world.note("the ledger of the deleted poll is purged", "ledger:purged")
    ledger = [key for key in world.store.entities if str(key[0][1]).startswith(f"{SIDE}:")]
    await world.store.write([Delete(key=key) for key in ledger])
    if zombie.process:
        world.loop.thaw(zombie.process)
    for worker in others:  # so that each stream has one, should the zombie die after all
        worker.start()
    await traffic.replay_to_deleted()
    await _quiesce(world, traffic)
    if any(str(key[0][1]).startswith(f"{SIDE}:") for key in world.store.entities):
        world.truth.say("a purged ledger came back")
