"""The topics and subscriptions that an emulator needs, since nothing deploys them there. Never on the cloud.

The votes subscription has no dead-letter policy: after an outage it would take good votes away. Nor, unlike the one
that is deployed, a retry policy: with one, the emulator (0.8) no longer delivers what has been let go of three times.
"""

from typing import Final

from google.pubsub_v1 import types

from tally.errors import Refused
from tally.gcp import calls
from tally.gcp.clients import Clients
from tally.gcp.pubsub import subscription_path, topic_path
from tally.limits import ACK_DEADLINE_SECONDS

_WEEK: Final = 7 * 24 * 3_600


async def create(clients: Clients, project: str, *, topic: str, subscription: str) -> None:
    """Create a topic with one pull subscription, where they are missing; safe when several processes do it at once."""
    path = topic_path(project, topic)
    await _unless_it_exists(clients.publisher.create_topic, types.Topic(name=path))
    await _unless_it_exists(
        clients.subscriber.create_subscription,
        types.Subscription(
            name=subscription_path(project, subscription),
            topic=path,
            ack_deadline_seconds=ACK_DEADLINE_SECONDS,
            message_retention_duration={"seconds": _WEEK},
            expiration_policy={},  # present and without a time to live: never
        ),
    )


async def _unless_it_exists(method: calls.Method, request: object) -> None:
    try:
        await calls.call(calls.ADMIN, method, request)
    except Refused as error:
        if error.status != "ALREADY_EXISTS":
            raise
