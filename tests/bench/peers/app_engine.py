"""The App Engine pattern moved to Pub/Sub: pull 100, count per option, one transaction per option on a random one of
ten shards, acknowledge. A message that is delivered again counts again.
"""

import json
import random
from collections import Counter

from google.cloud import datastore, pubsub_v1

SHARDS = 10


def work(project: str, subscription: str, messages: int) -> None:
    """Count so many messages that wait on the subscription."""
    client = datastore.Client(project=project)
    with pubsub_v1.SubscriberClient() as subscriber:
        path = subscriber.subscription_path(project, subscription)
        done = 0
        while done < messages:
            response = subscriber.pull(subscription=path, max_messages=100, timeout=30)
            counts = Counter(json.loads(received.message.data)["option"] for received in response.received_messages)
            for option, votes in counts.items():
                add(client, subscription, option, votes)
            if response.received_messages:
                ack_ids = [received.ack_id for received in response.received_messages]
                subscriber.acknowledge(subscription=path, ack_ids=ack_ids)
            done += len(response.received_messages)


def add(client: datastore.Client, poll: str, option: str, votes: int) -> None:
    key = client.key("CounterShard", f"{poll}-{option}-{random.randrange(SHARDS)}")
    with client.transaction():
        shard = client.get(key) or datastore.Entity(key)
        shard.update(poll=poll, count=shard.get("count", 0) + votes)
        client.put(shard)


def total(project: str, poll: str) -> int:
    client = datastore.Client(project=project)
    query = client.query(kind="CounterShard")
    query.add_filter(filter=datastore.query.PropertyFilter("poll", "=", poll))
    return sum(shard["count"] for shard in query.fetch())
