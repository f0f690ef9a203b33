"""The bugs planted in the task queues: in leasing, settling, enqueueing, the outbox, and the runs of task functions."""

from tests.simulation.bugs import Bug, Edit

_QUEUES, _FUNCTIONS = "tests.simulation.queues", "tests.simulation.task_functions"
_UPSERT = '__import__("tally.ports").ports.Upsert'


def _bug(name: str, seed: int, simulation: str, *edits: tuple[str, str, str]) -> Bug:
    return Bug(name, seed, tuple(Edit(f"tally.tasks.{module}", old, new) for module, old, new in edits), simulation)


BUGS = (
    _bug(
        "a task settled by a lease that no longer holds it",
        0,
        _QUEUES,
        ("settling", "for lease in leases if lease.expires_at > now}", "for lease in leases}"),
        ("settling", "    if found.token == held.token:\n", "    if True:\n"),
        ("settling", 'return "done" if wanted.token and found.eta == wanted.eta else None', "return None"),
    ),
    _bug(
        "a task written without the guard of its version",
        1,
        _QUEUES,
        (
            "row",
            "Update(entity=to_entity(new), base_version=old.version, on_conflict=OnConflict.FAIL)",
            f"{_UPSERT}(to_entity(new))",
        ),
    ),
    _bug(
        "settled by whomever counts as settled by us",
        0,
        _QUEUES,
        ("settling", "for lease in leases if lease.expires_at > now}", "for lease in leases}"),
        ("settling", "found.settled_by == held.token and found.state", "found.state"),
    ),
    _bug(
        "a settlement without a reply counts as done",
        1,
        _QUEUES,
        ("settling", '{key: ("unknown", held)', '{key: ("done", held)'),
        (
            "settling",
            "        except Unavailable:\n            await rows.pause(attempt)\n",
            "        except Unavailable:\n            return {**results, **_written(left, [0] * len(left))}\n",
        ),
    ),
    _bug(
        "an enqueue without a reply counts as added",
        3,
        _QUEUES,
        (
            "enqueue",
            "        except Unavailable:\n            pass\n        else:\n",
            "        except Unavailable:\n"
            "            for key in list(batch.left):\n                batch.settle(key, 'added')\n"
            "        else:\n",
        ),
    ),
    _bug(
        "the name of a task that is done is free at once",
        8,
        _QUEUES,
        ("row", "NAMED_TOMBSTONE = 86_400 * SECOND", "NAMED_TOMBSTONE = -SECOND"),
        ("enqueue", "        if row.added_by == enqueue:\n", "        if False:\n"),
    ),
    _bug(
        "a dead lease is not given to another",
        0,
        _QUEUES,
        ("row", "        eta=until,\n", "        eta=1 << 60,\n"),
    ),
    _bug(
        "an outbox entry is dropped before its task is added",
        0,
        _QUEUES,
        (
            "outbox",
            '            await self._queue(fields["queue"]).add(named)\n',
            "            await self._store.commit([Delete(key=entity.key)])\n"
            '            await self._queue(fields["queue"]).add(named)\n',
        ),
    ),
    _bug(
        "a task from the outbox has no name of its own",
        0,
        _QUEUES,
        ("outbox", 'replace(task, name=f"outbox-{name}")', "task"),
    ),
    _bug(
        "a run is claimed while another is at it",
        1,
        _FUNCTIONS,
        ("run", "if run.state is State.RUNNING and now < run.until:", "if False:"),
    ),
    _bug(
        "a claim is not kept alive",
        1,
        _FUNCTIONS,
        ("run", "until=max(run.until, now + lease), progress", "progress"),
    ),
    _bug(
        "a leased call is completed before it runs",
        0,
        _FUNCTIONS,
        (
            "executor",
            "                again = await self._runner.run(_delivery(held.lease))\n",
            "                await queue.complete(held.lease)\n"
            "                again = await self._runner.run(_delivery(held.lease))\n",
        ),
    ),
    _bug(
        "the retry of a pushed call is not sent when its sender died",
        1,
        _FUNCTIONS,
        (
            "run",
            "    if hop is not None and hop < run.hop:\n",
            "    if hop is not None and hop < run.hop:\n        return Over(run)\n    if False:\n",
        ),
    ),
)
