"""The planted bugs: one for each sentence of the pipeline's failure table, as edits of the shipped source.

`seed` is the first seed known to catch it. Some bugs cannot live with the worker's probe of the version guard, which
refuses to start on them: those take the probe out too, so that the ledger itself is put to the test.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    module: str
    old: str
    new: str


class Bug(NamedTuple):
    name: str
    seed: int
    edits: tuple[Edit, ...]
    simulation: str = "tests.simulation.run"  # the module whose `simulate(seed).wrong` is to find it

    @property
    def modules(self) -> set[str]:
        return {edit.module for edit in self.edits}


def _votes(module: str, old: str, new: str) -> Edit:
    return Edit(f"tally.votes.{module}", old, new)


_NO_PROBE = _votes("guard", "    try:\n        await _probe(store, shard)\n", "    return\n    try:\n        pass\n")

BUGS = (
    Bug(
        "acknowledged before the commit",
        0,
        (
            _votes(
                "lane",
                "        done = await self.counter.commit(batch.records)\n",
                "        self._desk.settle(batch.owner)\n        done = await self.counter.commit(batch.records)\n",
            ),
        ),
    ),
    Bug(
        "dedup by message id",
        0,
        (
            _votes(
                "inbox",
                "            if votes is None:\n                continue\n",
                "            if votes is None:\n                continue\n"
                "            seen = self.__dict__.setdefault('seen', set())\n"
                "            votes = 0 if message.message_id in seen else votes\n"
                "            seen.add(message.message_id)\n",
            ),
        ),
    ),
    Bug(
        "ballots in the set before the commit's reply",
        0,
        (
            _votes(
                "counter",
                "        answer = await self._store.commit(writes)\n",
                "        early = plan.after(held, 0, self._revote)\n"
                "        self._held = Partition(version=held.version, shard=held.shard, runs=early.runs)\n"
                "        answer = await self._store.commit(writes)\n",
            ),
        ),
    ),
    Bug(
        "version moved before the set is read",
        1,
        (
            _votes(
                "counter",
                "            missing = False\n",
                "            missing = False\n"
                "            self._held = Partition(version=entity.version, shard=shard, runs=held.runs)\n",
            ),
        ),
    ),
    Bug(
        "partition dropped while its commit is in flight",
        0,
        (
            _votes(
                "counter",
                "        self._held = plan.after(held, answer.versions[0], self._revote)\n",
                "        self._held = plan.after(Partition(), answer.versions[0], self._revote)\n",
            ),
        ),
    ),
    Bug(
        "deferred keys taken for missing",
        1,
        (Edit("tally.ports", "        pending = list(answer.deferred)\n", "        pending = []\n"),),
    ),
    Bug(
        "stale commits not asked to fail",
        0,
        (_votes("ledger", "on_conflict=OnConflict.FAIL", "on_conflict=OnConflict.KEEP_STORED"),),
    ),
    Bug(
        "stale commits not asked to fail, and no probe nor check of the reply",
        0,
        (
            _votes("ledger", "on_conflict=OnConflict.FAIL", "on_conflict=OnConflict.KEEP_STORED"),
            _votes("counter", "        if answer.conflict_detected:\n", "        if False:\n"),
            _NO_PROBE,
        ),
    ),
    Bug(
        "segment key as the guard",
        0,
        (
            _votes("ledger", "            if base_version\n", "            if False\n"),
            _votes("ledger", "            else Insert(shard)\n", "            else Upsert(shard)\n"),
            _votes(
                "ledger",
                "from tally.ports import Delete, Entity, Insert, Key, OnConflict, Update, Write\n",
                "from tally.ports import Delete, Entity, Insert, Key, OnConflict, Update, Upsert, Write\n",
            ),
            _NO_PROBE,
        ),
    ),
    Bug(
        "cache advanced after an unknown outcome",
        0,
        (
            _votes(
                "counter",
                "        answer = await self._store.commit(writes)\n",
                "        try:\n"
                "            answer = await self._store.commit(writes)\n"
                "        except Unavailable:\n"
                "            self._held = plan.after(held, held.version, self._revote)\n"
                "            raise\n",
            ),
            _votes(
                "counter",
                "from tally.errors import TallyError, UnsafeStore\n",
                "from tally.errors import TallyError, Unavailable, UnsafeStore\n",
            ),
        ),
    ),
    Bug(
        "unknown outcome taken for success",
        0,
        (
            _votes(
                "lane",
                "            except TallyError as error:\n                await self._failed(error)\n\n",
                "            except TallyError as error:\n"
                "                self._remove(batch, np.ones(len(batch), np.bool_))\n"
                "                self._desk.settle(batch.owner)\n\n",
            ),
        ),
    ),
    Bug(
        "a message's count of open votes is one too low",
        0,
        (_votes("inbox", "expires, votes, letters)\n", "expires, max(votes - 1, 0), letters)\n"),),
    ),
    Bug(
        "copies within one batch counted twice",
        0,
        (_votes("ledger", "    fresh = best(records, revote)[", "    fresh = records["),),
    ),
    Bug(
        "ties by arrival",
        0,
        (
            _votes(
                "records",
                '    return rank < held if revote == "keep" else rank > held\n',
                "    rank, held = rank >> np.uint64(OPTION_BITS), held >> np.uint64(OPTION_BITS)\n"
                '    return rank < held if revote == "keep" else rank > held\n',
            ),
        ),
    ),
    Bug(
        "a known ballot's better copy is dropped",
        0,
        (_votes("ledger", "    return known & ~beats(records.rank, rank, revote)\n", "    return known\n"),),
    ),
    Bug(
        "catch-up drops what it knows",
        0,
        (
            _votes(
                "records",
                "        records = records[~(held & beats(rank, records.rank, revote))]\n",
                "        records = records[~held]\n",
            ),
        ),
    ),
    Bug(
        "a superseded record's count stays",
        0,
        (_votes("ledger", " - np.bincount(old.options, minlength=width)\n", "\n"),),
    ),
    Bug(
        "a fold drops a segment",
        0,
        (_votes("ledger", "        written = join([fresh, moved[~superseded]])\n", "        written = fresh\n"),),
    ),
    Bug(
        "a fold reads half of a segment",
        0,
        (
            _votes(
                "ledger",
                "        moved = live(held.runs, folded)\n",
                "        moved = live(held.runs, folded)\n        moved = moved[: len(moved) // 2 + 1]\n",
            ),
        ),
    ),
    Bug(
        "the ack deadline is not extended",
        8,
        (_votes("inbox", "if held.expires - now < _HALF_DEADLINE]\n", "if held.expires < 0]\n"),),
    ),
    Bug(
        "late votes judged by the worker's clock",
        5,
        (
            _votes(
                "verdict",
                "        at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
                "        published_at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
            ),
            _votes(
                "admission",
                "        verdicts, records = verdict.judge(known.poll, columns, published)\n",
                "        now = np.full(len(columns), self._lanes._clock.now(), np.uint64)\n"
                "        verdicts, records = verdict.judge(known.poll, columns, now)\n",
            ),
        ),
    ),
    Bug(
        "an early close without grace",
        0,
        (
            _votes(
                "verdict",
                "        at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
                "        at >= np.uint64(poll.closes_at),\n",
            ),
        ),
    ),
    Bug(
        "an option withdrawn without grace",
        3,
        (_votes("verdict", "        at > withdrawn_at + np.uint64(GRACE),\n", "        at >= withdrawn_at,\n"),),
    ),
    Bug(
        "votes refused by an old definition",
        3,
        (_votes("admission", "        if known.sent < pulled_at:\n", "        if False:\n"),),
    ),
    Bug(
        "a definition that cannot be read taken for none",
        0,
        (
            _votes(
                "known_polls",
                "                    future.set_exception(error)\n"
                "                    future.exception()  # whoever waits gets it; nobody may be left to\n",
                "                    future.set_result(Known(None, sent))\n",
            ),
        ),
    ),
    Bug(
        "one future shared by the requests of a batch",
        0,
        (
            _votes(
                "microbatch",
                "        done = self._loop.create_future()\n",
                "        done = current.waiters[0].done if current.waiters else self._loop.create_future()\n",
            ),
        ),
    ),
    Bug(
        "202 although the publish failed",
        0,
        (
            _votes(
                "microbatch",
                '            event("publish-failed",',
                '            failure = None\n            event("publish-failed",',
            ),
        ),
    ),
    Bug(
        "dead letters acknowledged before they are published",
        0,
        (_votes("inbox", "        if held.letters:\n", "        if False:\n"),),
    ),
    Bug(
        "a bad vote takes its neighbours with it",
        0,
        (
            _votes(
                "decoder",
                "        count = len(group.choices)\n        if len(ballots) != count * BALLOT_BYTES",
                "        count = len(group.choices)\n        if count or len(ballots) != count * BALLOT_BYTES",
            ),
        ),
    ),
    Bug(
        "a message of a later version taken for garbage",
        2,
        (_votes("decoder", "        if version > VERSION:\n", "        if False:\n"),),
    ),
    Bug(
        "shutdown acknowledges what it should give back",
        7,
        (
            _votes(
                "inbox",
                "                await self._puller.extend(part, 0)\n",
                "                await self._puller.acknowledge(part)\n",
            ),
        ),
    ),
    Bug(
        "a later format taken for known",
        7,
        (_votes("ledger", "    if isinstance(written, int) and written > FORMAT:\n", "    if False:\n"),),
    ),
    Bug(
        "a purged ledger made again",
        3,
        (
            _votes(
                "lanes",
                "known.poll is not None and self._clock.now() < known.poll.deleted_at + _PURGEABLE_AFTER\n",
                "True\n",
            ),
        ),
    ),
    Bug(
        "a rejected commit's votes all taken for poison",
        0,
        (
            _votes(
                "lane",
                "            self._limit = (min(self._limit, len(batch)) + 1) // 2\n",
                "            self._remove(batch, np.ones(len(batch), np.bool_))\n"
                '            self._desk.refuse(self, batch, "store-rejected")\n',
            ),
        ),
    ),
    Bug(
        "a vote blamed although its whole partition is rejected",
        5,
        (
            _votes(
                "lane",
                "        if refused_at is not None and refused_at < self.counter.sequence:",
                "        if True:",
            ),
        ),
    ),
    Bug(
        "a poisoned vote tried for ever",
        5,
        (
            _votes(
                "lane",
                "        if refused_at is not None and refused_at < self.counter.sequence:",
                "        if False:",
            ),
        ),
    ),
    Bug(
        "no catch-up after a refused commit",
        0,
        (_votes("counter", "        self._behind = True\n", "        self._behind = False\n"),),
    ),
    Bug(
        "what one commit cannot take is taken for settled",
        5,
        (
            _votes(
                "counter",
                "        return ledger.settled(self._held, records, self._revote)\n",
                "        return done | True\n",
            ),
        ),
    ),
    Bug(
        "a commit takes more than a segment holds",
        5,
        (
            _votes(
                "ledger", "    fresh = best(records, revote)[:SEGMENT_RECORDS]\n", "    fresh = best(records, revote)\n"
            ),
        ),
    ),
    # Found by the simulation, then mended: planted again, so that it stays found.
    Bug(
        "SIGTERM waits for the probe of the version guard",
        1,
        (
            _votes(
                "worker",
                "            await asyncio.wait((probing, stopping), return_when=asyncio.FIRST_COMPLETED)\n",
                "            await asyncio.wait((probing,))\n",
            ),
        ),
    ),
)
