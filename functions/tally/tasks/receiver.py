"""Runs what a push queue sends to the function `run_task`."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tally.errors import Forbidden
from tally.ports import CallerVerifier
from tally.tasks.call import Carrier
from tally.tasks.push import from_headers
from tally.tasks.runner import Runner


class PushReceiver:
    """Runs what Cloud Tasks pushes in. The answer is 200 whatever became of the run: a retry is a task of its own.

    `verifier` None trusts every caller: for local work. Else the bearer token's audience must be `audience`, and its
    account one of `callers`.
    """

    def __init__(
        self,
        runner: Runner,
        carrier: Callable[[str], Carrier],
        *,
        verifier: CallerVerifier | None,
        audience: str,
        callers: frozenset[str],
    ) -> None:
        self._runner = runner
        self._carrier = carrier
        self._verifier = verifier
        self._audience = audience
        self._callers = callers

    async def receive(self, queue: str, headers: Mapping[str, str], payload: bytes) -> None:
        """Run a delivery; `headers` have lower-case names. Returns when it is settled.

        Raises Forbidden, InvalidInput, or BackendError: then the sender shall send it again.
        """
        await self._check_caller(headers.get("authorization", ""))
        delivery = from_headers(queue, headers, payload)
        again = await self._runner.run(delivery)
        if again is not None:
            await self._carrier(queue).carry(replace(delivery, due=again.at, hop=again.hop))

    async def _check_caller(self, authorization: str) -> None:
        if self._verifier is None:
            return
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Forbidden("no bearer token: only Cloud Tasks may call this")
        account = await self._verifier.verify(token.strip(), self._audience)
        if account not in self._callers:
            raise Forbidden(f"account {account} may not run tasks here")
