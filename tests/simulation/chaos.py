"""What befalls processes, clocks and services while votes come in."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from tally.clock import SECOND
from tally.errors import Rejected, Unavailable
from tally.ports import Upsert
from tests.simulation.processes import Function, Worker
from tests.simulation.world import CLOCK_SKEW, World

SLOWER_SECONDS = 1.5
HARMS_PER_SECOND = 0.8


class Chaos:
    """Harms the hosts, their clocks and the services at seeded moments, and has them started again."""

    def __init__(self, world: World, functions: list[Function], workers: list[Worker]) -> None:
        self._world = world
        self._hosts: list[Function | Worker] = [*functions, *workers]
        self._functions = functions
        self._dice = world.random("chaos")
        self._poisons: list[Unavailable | Rejected] = [
            Unavailable("poisoned", status="PERMISSION_DENIED"),
            Unavailable("poisoned", status="INTERNAL"),
            Rejected("poisoned", status="INVALID_ARGUMENT"),
        ]
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self, until: float) -> None:
        harms = (
            (4, self._kill),
            (4, self._light_fuse),
            (3, self._freeze),
            (2, self._terminate),
            (1, self._step_clock),
            (2, self._break_service),
            (2, self._poison),
            (1, self._upgrade),
        )
        weights, choices = zip(*harms, strict=True)
        while self._world.loop.time() < until:
            await asyncio.sleep(self._dice.expovariate(HARMS_PER_SECOND))
            (harm,) = self._dice.choices(choices, weights)
            self._start(harm())

    async def send_workers_away(self, seconds: float) -> None:
        """Kill all workers, and start none for some time."""
        self._world.note("no worker is left", "outage:workers")
        away = [host for host in self._hosts if isinstance(host, Worker)]
        self._hosts = [host for host in self._hosts if host not in away]
        for worker in away:
            if worker.process:
                worker.process.kill()
        await asyncio.sleep(seconds)
        self._hosts += away

    async def supervise(self) -> None:
        """Start again what died, after a while."""
        while True:
            await asyncio.sleep(self._dice.uniform(0.2, 2))
            for host in self._hosts:
                if not host.up:
                    if host.process is not None and (host.process.fuse or 0) < 0:
                        self._world.note(f"{host.process.name} died", "process:killed-between-awaits")
                    host.start()
                    self._world.note(f"start {host.process}")

    async def settle(self) -> None:
        """Wait until every harm is over."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    def _start(self, harm: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(harm)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _victim(self) -> Function | Worker | None:
        host = self._dice.choice(self._hosts)
        return host if host.up and host.process is not None and not host.process.frozen else None

    async def _kill(self) -> None:
        if (host := self._victim()) and host.process:
            self._world.note(f"kill {host.process}", "process:killed")
            host.process.kill()

    async def _light_fuse(self) -> None:
        if (host := self._victim()) and host.process:
            host.process.fuse = self._dice.randrange(1, 400)

    async def _freeze(self) -> None:
        host = self._victim()
        if host is None or host.process is None:
            return
        zombie = host.process
        self._world.note(f"freeze {zombie}", "process:frozen")
        zombie.freeze()
        if replaced := self._dice.random() < 0.5:
            host.start()
        await asyncio.sleep(self._dice.uniform(1, 20))
        if not zombie.dead:
            self._world.note(f"thaw {zombie}", "process:came-back")
            self._world.loop.thaw(zombie)
        if replaced:
            await asyncio.sleep(self._dice.uniform(1, 6))
            zombie.kill()

    async def _terminate(self) -> None:
        if (host := self._victim()) and host.process:
            self._world.note(f"terminate {host.process}", "process:terminated")
            await host.terminate()

    async def _step_clock(self) -> None:
        host = self._dice.choice(self._functions)
        skew = round(self._dice.uniform(-CLOCK_SKEW, CLOCK_SKEW) * SECOND)
        self._world.note(f"step the clock of {host.name} to {skew / SECOND:+.1f} s", "clock:stepped")
        host.clock.step(skew - host.clock.skew)

    async def _break_service(self) -> None:
        plan = self._world.plan
        name, calls = self._dice.choice(
            (("store", ("get", "commit")), ("pubsub", ("publish", "pull", "acknowledge", "extend")), ("slow", ()))
        )
        self._world.note(f"{name} breaks down", f"outage:{name}")
        if name == "slow":
            plan.latency += SLOWER_SECONDS
        for call in calls:
            plan.break_down(call, Unavailable(f"{name} is down", status="UNAVAILABLE"))
        await asyncio.sleep(self._dice.uniform(1, 12))
        for call in calls:
            plan.break_down(call, None)
        if name == "slow":
            plan.latency -= SLOWER_SECONDS
        self._world.note(f"{name} is back")

    async def _poison(self) -> None:
        """Refuse every commit of one partition for a while; with INVALID_ARGUMENT once: it may well blame the votes."""
        shard = (("Shard", f"main:{self._dice.randrange(4)}"),)
        if shard in self._world.poisoned_shards:
            return
        error = self._poisons.pop() if len(self._poisons) > 1 else self._poisons[0]
        self._world.note(f"poison {shard}: {error.status}", "partition:poisoned")
        self._world.poisoned_shards[shard] = error
        await asyncio.sleep(self._dice.uniform(1, 15))
        del self._world.poisoned_shards[shard]

    async def _upgrade(self) -> None:
        """Let a worker of a later version have a ledger, then roll it back: ours must leave it alone meanwhile."""
        store, newer = self._world.store, self._world.truth.newer_shards
        shards = [shard for shard in store.of_kind("Shard") if not str(shard.key[0][1]).startswith("~")]
        if not shards or (shard := self._dice.choice(shards)).key in newer:
            return
        self._world.note(f"{shard.key} has a later format", "shard:newer-format")
        newer.add(shard.key)
        await store.write([Upsert(replace(shard, properties={**shard.properties, "format": 2}))])
        await asyncio.sleep(self._dice.uniform(1, 12))
        newer.remove(shard.key)
        await store.write([Upsert(shard)])
        self._world.note(f"{shard.key} is rolled back")
