"""The Publisher and the Puller on Pub/Sub and on its emulator: unary calls only.

Streaming pull and its callbacks cost ten times as much a message, and hide which messages are held.
"""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from google.pubsub_v1 import types

from tally import logs
from tally.clock import SECOND
from tally.errors import Refused, Rejected, Unavailable
from tally.gcp import calls
from tally.gcp.clients import Clients
from tally.message_limits import check_ack_deadline, check_ack_ids, check_publish, check_pull
from tally.ports import Outgoing, Received

_PublishRequest: Final = types.PublishRequest.pb()
_PullRequest: Final = types.PullRequest.pb()
_AcknowledgeRequest: Final = types.AcknowledgeRequest.pb()
_ModifyAckDeadlineRequest: Final = types.ModifyAckDeadlineRequest.pb()
_NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})


class PubSubPublisher:
    def __init__(self, clients: Clients, project: str) -> None:
        self._clients = clients
        self._project = project

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        check_publish(messages)
        request = _PublishRequest(topic=topic_path(self._project, topic))
        for data, attributes in messages:
            request.messages.add(data=data, attributes=attributes)
        reply = await calls.call(calls.PUBLISH, self._clients.publisher.publish, types.PublishRequest.wrap(request))
        return tuple(types.PublishResponse.pb(reply).message_ids)


class PubSubPuller:
    def __init__(self, clients: Clients, project: str, subscription: str) -> None:
        self._clients = clients
        self._path = subscription_path(project, subscription)

    async def pull(self, max_messages: int) -> Sequence[Received]:
        check_pull(max_messages)
        request = types.PullRequest.wrap(_PullRequest(subscription=self._path, max_messages=max_messages))
        try:
            reply = await calls.call(calls.PULL, self._clients.subscriber.pull, request)
        except Unavailable as error:
            if error.status == "DEADLINE_EXCEEDED":  # an idle subscription
                return ()
            raise
        return received(types.PullResponse.pb(reply))

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        check_ack_ids(ack_ids)
        request = types.AcknowledgeRequest.wrap(_AcknowledgeRequest(subscription=self._path, ack_ids=ack_ids))
        await self._settle(calls.ACKNOWLEDGE, self._clients.subscriber.acknowledge, request, len(ack_ids))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        check_ack_ids(ack_ids)
        check_ack_deadline(seconds)
        request = types.ModifyAckDeadlineRequest.wrap(
            _ModifyAckDeadlineRequest(subscription=self._path, ack_ids=ack_ids, ack_deadline_seconds=seconds)
        )
        await self._settle(calls.EXTEND, self._clients.subscriber.modify_ack_deadline, request, len(ack_ids))

    async def _settle(self, policy: calls.Policy, method: Any, request: object, number: int) -> None:
        try:
            await calls.call(policy, method, request)
        except (Rejected, Refused) as error:
            # Some id has expired: its message comes again, and no more than that is lost.
            if error.status not in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"):
                raise
            logs.event("ack-ids-refused", level=logging.WARNING, call=policy.name, ids=number, status=error.status)


def topic_path(project: str, topic: str) -> str:
    return f"projects/{project}/topics/{topic}"


def subscription_path(project: str, subscription: str) -> str:
    return f"projects/{project}/subscriptions/{subscription}"


def received(response: Any) -> list[Received]:
    """Return the messages of a protobuf PullResponse. Written as one body: it runs once a message."""
    messages = []
    for delivery in response.received_messages:
        message = delivery.message
        attributes, published = message.attributes, message.publish_time
        messages.append(
            Received(
                delivery.ack_id,
                message.message_id,
                published.seconds * SECOND + published.nanos // 1_000,
                message.data,
                dict(attributes) if attributes else _NO_ATTRIBUTES,
            )
        )
    return messages
