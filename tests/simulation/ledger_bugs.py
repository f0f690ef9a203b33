"""The bugs planted in the ledger: its guard, commits, folds, and what a worker keeps of it."""

from tests.simulation.bugs import Bug, Edit, votes

_NO_PROBE = votes("guard", "    try:\n        await _probe(store, shard)\n", "    return\n    try:\n        pass\n")

BUGS = (
    Bug(
        "ballots in the set before the commit's reply",
        0,
        (
            votes(
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
            votes(
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
            votes(
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
        (votes("ledger", "on_conflict=OnConflict.FAIL", "on_conflict=OnConflict.KEEP_STORED"),),
    ),
    Bug(
        "stale commits not asked to fail, and no probe nor check of the reply",
        0,
        (
            votes("ledger", "on_conflict=OnConflict.FAIL", "on_conflict=OnConflict.KEEP_STORED"),
            votes("counter", "        if answer.conflict_detected:\n", "        if False:\n"),
            _NO_PROBE,
        ),
    ),
    Bug(
        "segment key as the guard",
        0,
        (
            votes("ledger", "            if base_version\n", "            if False\n"),
            votes("ledger", "            else Insert(shard)\n", "            else Upsert(shard)\n"),
            votes(
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
            votes(
                "counter",
                "        answer = await self._store.commit(writes)\n",
                "        try:\n"
                "            answer = await self._store.commit(writes)\n"
                "        except Unavailable:\n"
                "            self._held = plan.after(held, held.version, self._revote)\n"
                "            raise\n",
            ),
            votes(
                "counter",
                "from tally.errors import TallyError, UnsafeStore\n",
                "from tally.errors import TallyError, Unavailable, UnsafeStore\n",
            ),
        ),
    ),
    Bug(
        "copies within one batch counted twice",
        0,
        (votes("ledger", "    fresh = best(records, revote)[", "    fresh = records["),),
    ),
    Bug(
        "ties by arrival",
        0,
        (
            votes(
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
        (votes("ledger", "    return known & ~beats(records.rank, rank, revote)\n", "    return known\n"),),
    ),
    Bug(
        "catch-up drops what it knows",
        0,
        (
            votes(
                "records",
                "        records = records[~(held & beats(rank, records.rank, revote))]\n",
                "        records = records[~held]\n",
            ),
        ),
    ),
    Bug(
        "a superseded record's count stays",
        0,
        (votes("ledger", " - np.bincount(old.options, minlength=width)\n", "\n"),),
    ),
    Bug(
        "a fold drops a segment",
        0,
        (votes("ledger", "        written = join([fresh, moved[~superseded]])\n", "        written = fresh\n"),),
    ),
    Bug(
        "a fold reads half of a segment",
        0,
        (
            votes(
                "ledger",
                "        moved = live(held.runs, folded)\n",
                "        moved = live(held.runs, folded)\n        moved = moved[: len(moved) // 2 + 1]\n",
            ),
        ),
    ),
    Bug(
        "a later format taken for known",
        7,
        (votes("ledger", "    if isinstance(written, int) and written > FORMAT:\n", "    if False:\n"),),
    ),
    Bug(
        "no catch-up after a refused commit",
        0,
        (votes("counter", "        self._behind = True\n", "        self._behind = False\n"),),
    ),
    Bug(
        "what one commit cannot take is taken for settled",
        5,
        (
            votes(
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
            votes(
                "ledger", "    fresh = best(records, revote)[:SEGMENT_RECORDS]\n", "    fresh = best(records, revote)\n"
            ),
        ),
    ),
)
