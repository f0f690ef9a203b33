"""One entity a voter: pull 100, write the voters' entities in one commit, acknowledge; entities are counted at the end.

Exact, for a copy writes the same entity again; at one write a vote.
"""

import json

from google.cloud import datastore, pubsub_v1


def work(project: str, subscription: str, messages: int) -> None:
    """Count so many messages that wait on the subscription."""
    client = datastore.Client(project=project)
    with pubsub_v1.SubscriberClient() as subscriber:
        path = subscriber.subscription_path(project, subscription)
        done = 0
        while done < messages:
            response = subscriber.pull(subscription=path, max_messages=100, timeout=30)
            votes = [json.loads(received.message.data) for received in response.received_messages]
            client.put_multi({vote["voter"]: _entity(client, subscription, vote) for vote in votes}.values())
            if votes:
                ack_ids = [received.ack_id for received in response.received_messages]
                subscriber.acknowledge(subscription=path, ack_ids=ack_ids)
            done += len(response.received_messages)


def _entity(client: datastore.Client, poll: str, vote: dict[str, str]) -> datastore.Entity:
    entity = datastore.Entity(client.key("Ballot", f"{poll}-{vote['voter']}"))
    entity.update(poll=poll, option=vote["option"])
    return entity


def total(project: str, poll: str) -> int:
    query = datastore.Client(project=project).query(kind="Ballot")
    query.add_filter(filter=datastore.query.PropertyFilter("poll", "=", poll))
    query.keys_only()
    return sum(1 for _ in query.fetch())
