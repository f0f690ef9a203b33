"""The bugs planted on the way of a vote: the function, messages, the worker's rounds, definitions, dead letters."""

from tests.simulation.bugs import Bug, votes

BUGS = (
    Bug(
        "acknowledged before the commit",
        0,
        (
            votes(
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
            votes(
                "inbox",
                "                self._bytes -= len(message.data)\n                continue\n",
                "                self._bytes -= len(message.data)\n                continue\n"
                "            seen = self.__dict__.setdefault('seen', set())\n"
                "            votes = 0 if message.message_id in seen else votes\n"
                "            seen.add(message.message_id)\n",
            ),
        ),
    ),
    Bug(
        "unknown outcome taken for success",
        0,
        (
            votes(
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
        (votes("inbox", "expires, votes, letters)\n", "expires, max(votes - 1, 0), letters)\n"),),
    ),
    Bug(
        "the ack deadline is not extended",
        8,
        (votes("inbox", "if held.expires - now < _HALF_DEADLINE]\n", "if held.expires < 0]\n"),),
    ),
    Bug(
        "late votes judged by the worker's clock",
        5,
        (
            votes(
                "verdict",
                "        at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
                "        published_at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
            ),
            votes(
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
            votes(
                "verdict",
                "        at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),\n",
                "        at >= np.uint64(poll.closes_at),\n",
            ),
        ),
    ),
    Bug(
        "an option withdrawn without grace",
        3,
        (votes("verdict", "        at > withdrawn_at + np.uint64(GRACE),\n", "        at >= withdrawn_at,\n"),),
    ),
    Bug(
        "votes refused by an old definition",
        3,
        (votes("admission", "        if known.sent < pulled_at:\n", "        if False:\n"),),
    ),
    Bug(
        "a definition that cannot be read taken for none",
        0,
        (
            votes(
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
            votes(
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
            votes(
                "microbatch",
                '            event("publish-failed",',
                '            failure = None\n            event("publish-failed",',
            ),
        ),
    ),
    Bug(
        "dead letters acknowledged before they are published",
        0,
        (votes("inbox", "            if not held.letters:\n", "            if True:\n"),),
    ),
    Bug(
        "a bad vote takes its neighbours with it",
        0,
        (
            votes(
                "decoder",
                "        if len(group.ballots) != count * BALLOT_BYTES",
                "        if count or len(group.ballots) != count * BALLOT_BYTES",
            ),
        ),
    ),
    Bug(
        "a message of a later version taken for garbage",
        2,
        (votes("decoder", "        if version > VERSION:\n", "        if False:\n"),),
    ),
    Bug(
        "shutdown acknowledges what it should give back",
        7,
        (
            votes(
                "inbox",
                "                await self._puller.extend(part, 0)\n",
                "                await self._puller.acknowledge(part)\n",
            ),
        ),
    ),
    Bug(
        "a purged ledger made again",
        3,
        (
            votes(
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
            votes(
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
            votes(
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
            votes(
                "lane",
                "        if refused_at is not None and refused_at < self.counter.sequence:",
                "        if False:",
            ),
        ),
    ),
    Bug(
        "SIGTERM waits for the probe of the version guard",
        1,
        (
            votes(
                "worker",
                "            await asyncio.wait((probing, stopping), return_when=asyncio.FIRST_COMPLETED)\n",
                "            await asyncio.wait((probing,))\n",
            ),
        ),
    ),
)
