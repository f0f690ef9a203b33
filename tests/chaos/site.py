"""The product's processes in a round. Each has a post; whoever dies there is replaced, at another port."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from emulator.demo import pulled
from emulator.local import Local
from emulator.process import Process, Program, StartError
from tally.limits import ACK_DEADLINE_SECONDS
from tests.chaos import schedule
from tests.chaos.schedule import Action

WORKERS, FUNCTIONS = 3, 2
STARTS = 5
EXIT_SECONDS = 20.0  # a worker ends within 8 s of SIGTERM; this machine may be busy
_FIRST_DEEDS: tuple[schedule.Deed, ...] = ("freeze", "kill", "terminate")


class Post:
    """A place for one process at a time. `ended_at`: when the last of them died; `wrong`: what no trouble excuses."""

    def __init__(self, program: Program, here: Local, fired: Counter[str], wrong: list[str]) -> None:
        self.processes: list[Process] = []
        self.up: Process | None = None
        self.ended_at = 0.0
        self._program = program
        self._here = here
        self._fired = fired
        self._wrong = wrong

    async def start(self) -> None:
        """Start a process; one that is not up because a service is not is started again, as the platform does."""
        for _ in range(STARTS):
            process = Process(self._program, self._here.logs)  # in the main thread: it dies with its parent
            self.processes.append(process)
            try:
                await asyncio.to_thread(process.wait_until_ready)
            except StartError as error:
                process.kill()
                failure = error
                self._fired["start failed"] += 1
                continue
            self.up = process
            return
        raise failure

    async def suffer(self, begun: float, actions: Sequence[Action]) -> None:
        for action in actions:
            await asyncio.sleep(begun + action.at - time.monotonic())
            if action.deed == "freeze":
                await self._freeze(action.seconds)
            else:
                await self._end(action.deed)

    async def stop(self) -> None:
        """End it as a deployment does, and see that it ends by itself and in time."""
        process, self.up = self.up, None
        if process is None:
            return
        process.signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, EXIT_SECONDS)
        if code != 0:
            self._wrong.append(f"{process.log.name}: exit code {code} after SIGTERM")
        process.kill()

    async def _end(self, deed: str) -> None:
        process = self._living()
        self._count(deed)
        if deed == "kill":
            self.up = None
            process.kill()
        else:
            await self.stop()
        self.ended_at = time.monotonic()
        await self.start()

    async def _freeze(self, seconds: float) -> None:
        process = self._living()
        self._count("freeze")
        if seconds > ACK_DEADLINE_SECONDS:
            self._fired["freeze past the deadline"] += 1
        process.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            process.signal(signal.SIGCONT)

    def _living(self) -> Process:
        assert self.up is not None
        if not self.up.running:
            self._wrong.append(f"{self.up.log.name}: ended by itself")
        return self.up

    def _count(self, deed: str) -> None:
        self._fired[f"{self._program.name.partition('-')[0]} {deed}"] += 1


class Site:
    """Functions under the Functions Framework, and workers."""

    def __init__(self, here: Local, seed: int) -> None:
        self.fired: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._seed = seed
        self.functions = [Post(here.function("public"), here, self.fired, self.wrong) for _ in range(FUNCTIONS)]
        self.workers = [Post(here.worker("--verbose"), here, self.fired, self.wrong) for _ in range(WORKERS)]

    @property
    def posts(self) -> list[Post]:
        return [*self.functions, *self.workers]

    def addresses(self) -> list[str]:
        """Return where functions can be asked; one that is frozen is among them."""
        return [post.up.address for post in self.functions if post.up is not None]

    async def start(self) -> None:
        await asyncio.gather(*[post.start() for post in self.posts])

    async def suffer(self, begun: float, length: float) -> None:
        """Do to each process what the seed says; return when all are up again."""
        async with asyncio.TaskGroup() as group:
            for place, post in enumerate(self.workers):
                random = Random(f"{self._seed}:worker:{place}")
                first = _FIRST_DEEDS[place % len(_FIRST_DEEDS)]
                group.create_task(post.suffer(begun, schedule.of_process(random, first, length, long=place == 0)))
            for place, post in enumerate(self.functions):
                random = Random(f"{self._seed}:function:{place}")
                first = ("kill", random.choice(_FIRST_DEEDS))[place % 2]
                group.create_task(post.suffer(begun, schedule.of_process(random, first, length)))

    async def stop(self) -> None:
        for post in self.posts:
            if post.up is not None and not post.up.running:
                self.wrong.append(f"{post.up.log.name}: ended by itself")
                post.up = None
        await asyncio.gather(*[post.stop() for post in self.posts])

    def kill(self) -> None:
        """Leave nothing running."""
        for post in self.posts:
            for process in post.processes:
                process.kill()

    def redelivered(self) -> int:
        """Return how many deliveries were not a message's first, by the workers' logs."""
        logs = [process.log for post in self.workers for process in post.processes]
        ids = Counter(identity for log in logs for identity in pulled(log))
        return ids.total() - len(ids)

    def tracebacks(self) -> list[str]:
        """Return the logs with an error that nobody expected."""
        logs = [process.log for post in self.posts for process in post.processes]
        return [log.name for log in logs if b"Traceback" in log.read_bytes()]
