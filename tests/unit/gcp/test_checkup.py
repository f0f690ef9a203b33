from typing import Any

import pytest
from google.pubsub_v1 import types

from tally.gcp.checkup import judge

TOPIC = "projects/p/topics/votes"
GOOD: dict[str, Any] = {
    "topic": TOPIC,
    "ack_deadline_seconds": 10,
    "message_retention_duration": {"seconds": 7 * 86_400},
    "expiration_policy": {},
}


def test_a_subscription_as_it_should_be_is_ok() -> None:
    assert [finding.level for finding in judge("votes", types.Subscription(GOOD), TOPIC, of_votes=True)] == ["ok"]


@pytest.mark.parametrize(
    ("change", "level", "mend"),
    [
        ({"topic": "_deleted-topic_"}, "wrong", "create votes-2"),
        ({"push_config": {"push_endpoint": "https://x"}}, "wrong", '--push-endpoint=""'),
        ({"filter": 'attributes.v = "1"'}, "wrong", "create votes-2"),
        ({"dead_letter_policy": {"dead_letter_topic": "t"}}, "wrong", "--clear-dead-letter-policy"),
        ({"expiration_policy": None}, "wrong", "--expiration-period=never"),
        ({"expiration_policy": {"ttl": {"seconds": 31 * 86_400}}}, "wrong", "--expiration-period=never"),
        ({"message_retention_duration": {"seconds": 600}}, "note", "--message-retention-duration=7d"),
        ({"ack_deadline_seconds": 60}, "note", "--ack-deadline=10"),
    ],
)
def test_each_fault_of_a_subscription_has_its_command(change: dict[str, Any], level: str, mend: str) -> None:
    found = types.Subscription({key: value for key, value in (GOOD | change).items() if value is not None})
    (finding,) = judge("votes", found, TOPIC, of_votes=True)
    assert finding.level == level
    assert mend in finding.mend


def test_dead_letters_may_have_a_longer_deadline() -> None:
    found = types.Subscription(GOOD | {"ack_deadline_seconds": 60})
    assert [finding.level for finding in judge("votes-dead", found, TOPIC, of_votes=False)] == ["ok"]
