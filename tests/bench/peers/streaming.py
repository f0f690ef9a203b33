"""The streaming pull of the Pub/Sub samples, its callback adding each vote to a sharded counter: the client's own
defaults for flow control and threads. A transaction that loses against another is tried five times, as in Datastore's
samples; then its message comes again.
"""

import json
import threading

from google.api_core.exceptions import Conflict
from google.cloud import datastore, pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message

from tests.bench.peers.app_engine import add

ATTEMPTS = 5


def work(project: str, subscription: str, messages: int) -> None:
    """Count so many messages that wait on the subscription."""
    client = datastore.Client(project=project)
    left = threading.Semaphore(0)

    def callback(message: Message) -> None:
        for _ in range(ATTEMPTS):
            try:
                add(client, subscription, json.loads(message.data)["option"], 1)
            except Conflict:
                continue
            message.ack()
            left.release()
            return
        message.nack()

    with pubsub_v1.SubscriberClient() as subscriber:
        future = subscriber.subscribe(subscriber.subscription_path(project, subscription), callback=callback)
        for _ in range(messages):
            left.acquire()
        future.cancel()
        future.result()
