"""One round: real processes on a real backend, clients that vote, trouble for some seconds, then the count.

On the emulators every call of the product goes through the proxy; the harness itself asks them directly.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from emulator.http_client import Connection
from emulator.local import Local
from tally import bootstrap, config
from tally.limits import ACK_DEADLINE_SECONDS
from tests.chaos import judge, schedule
from tests.chaos.proxy import Plan, proxy
from tests.chaos.site import Site
from tests.chaos.traffic import OPTIONS, POLLS, Broken, Traffic

CLIENTS = 12
SETTLED_WITHIN = 60.0
_SILENCE = 1.5
SERVICES = {"PUBSUB_EMULATOR_HOST": "pubsub", "DATASTORE_EMULATOR_HOST": "datastore"}
# A commit, a publish and an ack may each be applied unheard, be refused, vanish or come late.
RATES = {
    f"{method}:{fault}": rate
    for method, rates in {
        "Publish": {"slow": 0.03, "refused": 0.05, "request-lost": 0.02, "failed-after": 0.05, "reply-lost": 0.02},
        "Pull": {"slow": 0.02, "refused": 0.03, "request-lost": 0.02, "failed-after": 0.02, "reply-lost": 0.02},
        "Acknowledge": {"slow": 0.02, "refused": 0.05, "request-lost": 0.02, "failed-after": 0.05, "reply-lost": 0.02},
        "ModifyAckDeadline": {"refused": 0.05, "request-lost": 0.02, "failed-after": 0.05, "reply-lost": 0.05},
        "Commit": {"slow": 0.05, "refused": 0.05, "request-lost": 0.02, "failed-after": 0.1, "reply-lost": 0.05},
        "Lookup": {"slow": 0.03, "refused": 0.03, "request-lost": 0.02, "failed-after": 0.02, "reply-lost": 0.02},
    }.items()
    for fault, rate in rates.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`wrong` is empty when all held; `fired` has how often each thing happened."""

    seed: int
    backend: str
    wrong: tuple[str, ...]
    fired: Mapping[str, int]
    ballots: int
    lost: int
    doubled: int
    seconds: float


def on_emulators(hosts: Mapping[str, str], state: Path, seed: int) -> Local:
    """Return a backend on running emulators, in a project that no other round has."""
    project = f"chaos-{seed}-{time.time_ns()}"
    environ = {**os.environ, **hosts, "TALLY_BACKEND": "emulator", "TALLY_PROJECT": project, "TALLY_STATE": str(state)}
    return Local(backend="emulator", environ=environ, logs=state / "logs")


async def play(here: Local, seed: int, *, length: float) -> Outcome:
    """Play a round with `length` seconds of trouble."""
    begun = time.monotonic()
    await prepare(here)
    async with _faulty(here, seed) as (faulty, plans):
        site = Site(faulty, seed)
        traffic = Traffic(site.addresses, seed)
        counts: dict[str, dict[str, int]] = {}
        try:
            await site.start()
            quiet_at = await _disturb(site, traffic, plans, Random(f"{seed}:services"), length)
            counts = await _settle(site, traffic, quiet_at)
            await asyncio.gather(
                site.stop(), judge.check_the_ledger(here, traffic, site.wrong), judge.check_letters(here, site.wrong)
            )
        except (Broken, TimeoutError, OSError, EOFError) as error:
            site.wrong.append(str(error) or f"{error!r}: there was no answer in time")
        except BaseExceptionGroup as group:
            broken, others = group.split(Broken)
            if broken is None or others is not None:
                raise
            site.wrong += map(str, broken.exceptions)
        finally:
            site.kill()
    site.wrong += [f"{log}: a traceback" for log in site.tracebacks()]
    lost, doubled = _compare(traffic.counts, counts)
    fired = site.fired + Counter({"redelivered": site.redelivered(), "votes sent again": traffic.retries})
    for plan in plans.values():
        fired += plan.fired
    return Outcome(
        seed=seed,
        backend=here.backend,
        wrong=tuple(site.wrong),
        fired=fired,
        ballots=traffic.ballots.total(),
        lost=lost,
        doubled=doubled,
        seconds=time.monotonic() - begun,
    )


@contextlib.asynccontextmanager
async def _faulty(here: Local, seed: int) -> AsyncIterator[tuple[Local, dict[str, Plan]]]:
    """Put a proxy before each emulator; embedded has none."""
    plans: dict[str, Plan] = {}
    hosts: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as running:
        for variable, service in SERVICES.items():
            if here.backend == "emulator":
                plans[service] = Plan(seed, RATES, delay=1.0, silence=_SILENCE)
                hosts[variable] = await running.enter_async_context(proxy(here.environ[variable], plans[service]))
        yield dataclasses.replace(here, environ={**here.environ, **hosts}), plans


async def prepare(here: Local) -> None:
    """Make the topics, and the polls by function `admin`."""
    backend = await bootstrap.open_backend(config.load(here.environ))
    await backend.prepare()
    await backend.close()
    with here.started(here.function("admin")) as admin:
        await make_polls(admin.address)


async def make_polls(address: str) -> None:
    """Make the polls that clients vote in."""
    async with Connection(address) as connection:
        for poll in POLLS:
            options = [{"id": option, "label": option} for option in OPTIONS]
            body = msgspec.json.encode({"title": "?", "options": options, **poll})
            made = await connection.request("POST", "/v1/polls", body)
            assert made.status == 201, made.body


async def _disturb(site: Site, traffic: Traffic, plans: Mapping[str, Plan], random: Random, length: float) -> float:
    """Let clients vote while there is trouble, then until each has its 202.

    Return when nobody died any more and no reply was lost: what was leased to nobody comes again from then on.
    """
    enough, begun = asyncio.Event(), time.monotonic()
    async with asyncio.timeout(length + SETTLED_WITHIN), asyncio.TaskGroup() as group:
        for client in range(CLIENTS):
            group.create_task(traffic.vote(client, enough))
        group.create_task(traffic.watch(enough))
        outages = schedule.of_services(random, list(plans), length)
        deeds = [site.suffer(begun, length), *[_cut_off(plans[each.deed], begun, each, site.fired) for each in outages]]
        trouble = [asyncio.create_task(deed) for deed in deeds]
        try:
            await asyncio.sleep(length)
            for plan in plans.values():
                plan.quiet = True
            await asyncio.gather(*trouble)
        finally:
            enough.set()
            for task in trouble:
                task.cancel()
    return max([begun + length + _SILENCE, *[post.ended_at for post in site.posts]])


async def _cut_off(plan: Plan, begun: float, action: schedule.Action, fired: Counter[str]) -> None:
    await asyncio.sleep(begun + action.at - time.monotonic())
    fired["service out of reach"] += 1
    plan.unreachable = True
    await asyncio.sleep(action.seconds)
    plan.unreachable = False


async def _settle(site: Site, traffic: Traffic, quiet_at: float) -> dict[str, dict[str, int]]:
    """Wait until all is counted, what the dead held has come again and nobody holds anything; return the results."""
    begun, leases_end = time.monotonic(), quiet_at + ACK_DEADLINE_SECONDS + 1
    counts: dict[str, dict[str, int]] = {}
    async with asyncio.timeout(2 * SETTLED_WITHIN):
        while True:
            counts = {poll: await judge.results(site.addresses()[0], poll) for poll in traffic.counts}
            held = await _held(site)
            if time.monotonic() > leases_end and counts == traffic.counts and not held:
                return counts
            if time.monotonic() > begun + SETTLED_WITHIN:
                site.wrong.append(f"{held} messages are held; {counts} were counted, {traffic.counts} accepted")
                return counts
            await asyncio.sleep(0.25)


async def _held(site: Site) -> int:
    """Return how many messages the workers hold."""
    held = 0
    for post in site.workers:
        if post.up is not None:
            held += msgspec.convert((await judge.health(post.up))["held"], int)
    return held


def _compare(sent: Mapping[str, Mapping[str, int]], counted: Mapping[str, Mapping[str, int]]) -> tuple[int, int]:
    """Return how many votes are missing, and how many too many, option by option."""
    differences: Sequence[int] = [
        number - counted.get(poll, {}).get(option, 0)
        for poll, options in sent.items()
        for option, number in options.items()
    ]
    return sum(max(0, number) for number in differences), sum(max(0, -number) for number in differences)
