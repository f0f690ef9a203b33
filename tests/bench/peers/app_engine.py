"""The App Engine pattern moved to Pub/Sub: pull 100, count per option, one transaction per option on a random one of
ten shards, acknowledge. Idiomatic for the official clients; at-least-once delivery makes it count copies.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from unittest import mock

from google.cloud import datastore, pubsub_v1

SHARDS = 10


def count(environ: Mapping[str, str], votes: int) -> float:
    """Count this many one-vote messages that wait on the subscription; return votes a second."""
    with mock.patch.dict(os.environ, environ):
        subscriber = pubsub_v1.SubscriberClient()
        client = datastore.Client(project=environ["TALLY_PROJECT"])
    subscription = subscriber.subscription_path(environ["TALLY_PROJECT"], environ["TALLY_SUBSCRIPTION"])
    done = 0
    begun = time.perf_counter()
    with subscriber:
        while done < votes:
            response = subscriber.pull(subscription=subscription, max_messages=100, timeout=30)
            counts = Counter(received.message.data.decode() for received in response.received_messages)
            for item, increment in counts.items():
                _add(client, environ["TALLY_TOPIC"], item, increment)
            if response.received_messages:
                ack_ids = [received.ack_id for received in response.received_messages]
                subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids)
            done += len(response.received_messages)
    return votes / (time.perf_counter() - begun)


def _add(client: datastore.Client, poll: str, item: str, increment: int) -> None:
    key = client.key("CounterShard", f"{poll}-{item}-{random.randrange(SHARDS)}")
    with client.transaction():
        shard = client.get(key) or datastore.Entity(key)
        shard["count"] = shard.get("count", 0) + increment
        client.put(shard)
