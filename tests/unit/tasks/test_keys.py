"""Keys and indexes are spread: names and times in sequence, as programs make them, do not meet in one place."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest

from tally.tasks import keys
from tally.tasks.call import Delivery
from tally.tasks.outbox import entry
from tally.tasks.row import Row, dead, done, leased, made, to_entity
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop

TASKS, SHARDS = 3_200, 16
START = 1_900_000_000_000_000
NAMES: dict[str, Callable[[int], str]] = {
    "counted": str,
    "counted with zeros": lambda n: f"invoice-{n:08d}",
    "by the second": lambda n: f"2030-03-17T17-{n // 60:02d}-{n % 60:02d}",
    "by the poll": lambda n: f"poll-{n % 7}-close-{n // 7}",
}


def even(places: Iterable[object], parts: int) -> bool:
    """Say whether each of so many parts has about its share: within six standard deviations of it."""
    counts = Counter(places)
    share = sum(counts.values()) / parts
    return len(counts) == parts and all(abs(count - share) < 6 * share**0.5 for count in counts.values())


def rows(name: Callable[[int], str] | None) -> list[Row]:
    random = Random(1)
    return [
        made(
            Task(name=None if name is None else name(n)),
            queue="mail",
            shards=SHARDS,
            now=START + n,
            added_by="e",
            nameless=f"{random.getrandbits(128):032x}",
        )
        for n in range(TASKS)
    ]


@pytest.mark.parametrize("name", [*NAMES.values(), None], ids=[*NAMES, "none"])
def test_the_tasks_of_a_queue_are_spread_over_its_shards_and_keys(name: Callable[[int], str] | None) -> None:
    made_rows = rows(name)
    assert even((row.shard for row in made_rows), SHARDS)
    keyed = [str(row.key[0][1]).removeprefix("mail:")[:1] for row in made_rows]
    assert even(keyed, 16)


@pytest.mark.parametrize("shards", [1, 5, 64])
def test_any_number_of_shards_is_used_evenly(shards: int) -> None:
    assert even((keys.task("mail", f"n-{n}", shards).shard for n in range(TASKS)), shards)


def test_two_queues_put_the_same_name_into_shards_of_their_own_choice() -> None:
    same = [keys.task("a", f"n-{n}", SHARDS).shard == keys.task("b", f"n-{n}", SHARDS).shard for n in range(TASKS)]
    assert sum(same) < 2 * TASKS / SHARDS


STATES: dict[str, Callable[[Row, int], Row]] = {
    "waiting": lambda row, now: row,
    "leased": lambda row, now: leased(row, token="t", now=now, until=now + 60),
    "dead": lambda row, now: dead(row, now=now, error="e", by="t"),
    "done": lambda row, now: done(row, now=now, by="t"),
}


@pytest.mark.parametrize("state", STATES)
def test_no_index_of_a_row_grows_at_one_end(state: str) -> None:
    """Each row comes later than the one before; still it goes to any of the shards' places in each index."""
    entities = [to_entity(STATES[state](row, START + 1_000 * n)) for n, row in enumerate(rows(NAMES["counted"]))]
    indexed = entities[0].indexed
    assert indexed
    for name in indexed:
        values = [str(entity.properties[name]) for entity in entities]
        assert even((value.split(":")[1] for value in values), SHARDS)
        assert _at_the_end(values) < 4 * TASKS / SHARDS
    if "expire_at" in entities[0].properties:
        assert "expire_at" not in indexed


def _at_the_end(values: Sequence[str]) -> int:
    """Count the values that were greater than all before them."""
    top, found = "", 0
    for value in values:
        found += value > top
        top = max(top, value)
    return found


def test_the_names_of_deliveries_and_what_expires_are_spread() -> None:
    names = [Delivery(queue="mail", id=f"run-{n}", payload=b"", epoch=START + n, hop=0).name for n in range(TASKS)]
    assert even((name[:1] for name in names), 16)
    expiring = [keys.expires(keys.run(f"run-{n}"), START + n) for n in range(TASKS)]
    assert even((place.split(":")[0] for place in expiring), keys.EXPIRY_SHARDS)


def test_the_entries_of_the_outbox_are_spread(tally_loop: VirtualLoop) -> None:
    async def main() -> list[str]:
        clock, random = VirtualClock(), Random(1)
        entities = [entry("mail", Task(), clock=clock, random=random).write.entity for _ in range(800)]
        assert {entity.indexed for entity in entities} == {frozenset({"waiting"})}
        return [str(entity.properties["waiting"]) for entity in entities]

    assert even((place.split(":")[0] for place in tally_loop.run(main())), 16)
