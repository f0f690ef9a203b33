"""HTTP: single votes and lists, durable, beside a handler that does nothing and the usual sync function."""

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec

from emulator.local import Local
from emulator.process import Process, Program
from tally import config
from tally.votes import prices
from tests.bench import load
from tests.bench.measure import Budget, Outcome, Run, alternate, group_cpu, rates, ratio
from tests.bench.stage import OPTIONS, Stage, make_poll, opened

SECTION = "http"
PEERS = Path(__file__).parent / "peers"
USUAL_CONNECTIONS = 32  # more than it has threads


async def run(stage: Stage) -> Outcome:
    here = stage.local(stage.environ())
    async with _polls(here) as (public, poll):
        with here.started(_peer(here, "noop.py", "noop")) as noop, here.started(_sync(here)) as sync:
            path = f"/v1/polls/{poll}/votes"
            count = stage.votes(20_000, least=5_000)

            async def ours() -> Run:
                return await _load(public, singles(public.address, path, count))

            async def nothing() -> Run:
                return await _load(noop, singles(noop.address, path, count))

            async def usual() -> Run:
                requests = singles(sync.address, path, stage.votes(2_000, least=200))
                return await _load(sync, requests, connections=USUAL_CONNECTIONS)

            async def lists() -> Run:
                requests = _lists(public.address, path, max(8, count // 500))
                return await _load(public, requests, connections=4, votes=1_000)

            await ours()
            await nothing()
            contenders = {"ours": ours, "nothing": nothing, "usual": usual, "lists": lists}
            runs = await alternate(max(3, stage.repetitions), contenders)  # a lone turn would tell of the machine
    return _outcome(runs)


def _outcome(runs: Mapping[str, Sequence[Run]]) -> Outcome:
    to_nothing = ratio(SECTION, "single votes ÷ a handler that does nothing", runs["ours"], runs["nothing"])
    to_usual = ratio(SECTION, "single votes ÷ the usual sync function", runs["ours"], runs["usual"])
    stream = 2 * prices.PUBSUB_LEAST_BYTES * prices.PUBSUB_BYTE * 1_000_000
    usually = (
        f"waits for the future; the framework's default threads; {USUAL_CONNECTIONS} connections; "
        f"${stream:.2f} a million for the messages, uncounted"
    )
    figures = (
        rates(SECTION, "a handler that does nothing", "requests/s", runs["nothing"]),
        rates(SECTION, "single votes, durable", "votes/s", runs["ours"]),
        rates(SECTION, "lists of 1,000, durable", "votes/s", runs["lists"]),
        rates(SECTION, "the usual sync function", "votes/s", runs["usual"], note=usually),
        to_nothing,
        to_usual,
    )
    budgets = (
        Budget(name="single-vote HTTP ÷ a handler that does nothing", figure=to_nothing, bound=0.85, aim=0.95),
        Budget(name="single-vote HTTP ÷ the usual sync function", figure=to_usual, bound=5, aim=8),
    )
    return Outcome(figures=figures, budgets=budgets)


async def _load(server: Process, requests: Sequence[bytes], *, connections: int = 256, votes: int = 1) -> Run:
    """Send requests of so many votes each; the CPU is the server's.

    By default on enough connections that the server's work is the limit, and not the time that a publish takes.
    """
    before = group_cpu(server.pid)
    rate = await load.send(server.address, requests, connections=connections)
    return Run(rate * votes, (group_cpu(server.pid) - before) / len(requests) / votes * 1e6)


@contextlib.asynccontextmanager
async def _polls(here: Local) -> AsyncIterator[tuple[Process, str]]:
    """Serve function `public` with a poll in its store."""
    backend = await opened(config.load(here.environ))
    poll = await make_poll(backend)
    await backend.close()
    with here.started(here.function("public")) as public:
        yield public, poll.id


def _peer(here: Local, file: str, target: str) -> Program:
    framework = str(Path(sys.executable).parent / "functions-framework")
    source = str(PEERS / file)
    return Program(
        name=f"peer-{target}",
        command=lambda port: [framework, "--target", target, "--source", source, "--port", str(port)],
        ready_path="/live",
        environ=here.environ,
    )


def _sync(here: Local) -> Program:
    return _peer(here, "sync_publish.py", "vote")


def singles(address: str, path: str, count: int) -> list[bytes]:
    run = uuid4().hex[:6]
    return [
        load.post(
            address,
            path,
            b'{"option":"%s","voter":"%s-%d"}' % (OPTIONS[number % 5].encode(), run.encode(), number),
        )
        for number in range(count)
    ]


def _lists(address: str, path: str, count: int) -> Sequence[bytes]:
    run = uuid4().hex[:6]
    return [
        load.post(
            address,
            path,
            msgspec.json.encode(
                {
                    "votes": [
                        {"option": OPTIONS[number % 5], "voter": f"{run}-{place}-{number}"} for number in range(1_000)
                    ]
                }
            ),
        )
        for place in range(count)
    ]
