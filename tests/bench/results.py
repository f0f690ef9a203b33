"""Reading: results of 16 and 256 partitions; how many votes a second come to them by HTTP, and how soon each."""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from emulator.http_client import Connection
from tally import config
from tally.votes.poll import Poll
from tests.bench import load
from tests.bench.measure import Figure, Outcome, single
from tests.bench.stage import OPTIONS, Stage, make_poll, make_votes, opened, pack, publish, until

SECTION = "results"
RATES = (100, 1_000, 4_000)


async def run(stage: Stage) -> Outcome:
    environ = stage.environ()
    here, settings = stage.local(environ), config.load(environ)
    backend = await opened(settings)
    polls = [await make_poll(backend, partitions) for partitions in (16, 256)]
    live = await make_poll(backend)
    figures = list[Figure]()
    with here.started(here.function("public")) as public, here.started(here.worker()):
        for poll in polls:
            await publish(backend, settings.topic, pack(make_votes(poll, range(10_000)), 1_000))
        for poll in polls:
            await _until(public.address, poll.id, 10_000)
            request = load.get(public.address, f"/v1/polls/{poll.id}/results")
            requests = [request] * stage.votes(32_000 // poll.partitions, least=32)
            rate = await load.send(public.address, requests, connections=8, status=200)
            figures.append(single(SECTION, f"results, {poll.partitions} partitions", "requests/s", rate))
        sent = stage.votes(20_000, least=5_000)
        begun = time.perf_counter()
        await load.send(public.address, _votes(public.address, live, 0, sent), connections=256)
        await _until(public.address, live.id, sent)
        rate = sent / (time.perf_counter() - begun)
        figures.append(single(SECTION, "HTTP to results, as fast as it goes", "votes/s", rate))
        for votes in RATES[-1:] if stage.quick else RATES:
            seconds = max(3, int(8 * stage.scale))
            latencies = await _end_to_end(public.address, live, sent, votes, seconds)
            sent += votes * seconds
            for percent in (50, 95, 99):
                late = latencies[min(len(latencies) - 1, len(latencies) * percent // 100)]
                figures.append(single(SECTION, f"HTTP to results at {votes:,} votes/s, p{percent}", "ms", late * 1_000))
    await backend.close()
    return Outcome(figures=tuple(figures))


async def _end_to_end(address: str, poll: Poll, before: int, rate: int, seconds: int) -> list[float]:
    """Send votes at a rate; return how long each took to be in the results, shortest first.

    The k-th vote sent is taken to be in once the total is k: what overtakes it makes the figures worse, not better.
    """
    sent, seen = list[float](), list[float]()
    total = rate * seconds

    async def watch() -> None:
        async with Connection(address) as connection:
            while len(seen) < total:
                reply = await connection.request("GET", f"/v1/polls/{poll.id}/results")
                count = msgspec.convert(msgspec.json.decode(reply.body)["total"], int) - before
                seen.extend([time.perf_counter()] * (count - len(seen)))
                await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    step = max(1, rate // 50)
    begun = time.perf_counter()
    tasks = list[asyncio.Task[float]]()
    for start in range(0, total, step):
        await asyncio.sleep(begun + start / rate - time.perf_counter())
        sent.extend([time.perf_counter()] * step)
        tasks.append(
            asyncio.create_task(
                load.send(address, _votes(address, poll, before + start, step), connections=min(step, 16))
            )
        )
    await asyncio.gather(*tasks)
    await asyncio.wait_for(watching, 60)
    return sorted(done - start for start, done in zip(sent, seen, strict=False))


def _votes(address: str, poll: Poll, first: int, count: int) -> Sequence[bytes]:
    path = f"/v1/polls/{poll.id}/votes"
    return [
        load.post(address, path, b'{"option":"%s","voter":"v-%d"}' % (OPTIONS[number % 5].encode(), number))
        for number in range(first, first + count)
    ]


async def _until(address: str, poll: str, total: int) -> None:
    async with Connection(address) as connection:

        async def reached() -> bool:
            reply = await connection.request("GET", f"/v1/polls/{poll}/results")
            return msgspec.convert(msgspec.json.decode(reply.body)["total"], int) == total

        await until(reached)
