from collections.abc import Callable

import pytest

from tally import limits, message_limits
from tally.errors import Rejected
from tally.ports import Outgoing


@pytest.mark.parametrize(
    ("check", "at", "past"),
    [
        pytest.param(
            message_limits.check_ack_deadline,
            limits.ACK_DEADLINE_SECONDS_MAX,
            limits.ACK_DEADLINE_SECONDS_MAX + 1,
            id="ACK_DEADLINE_SECONDS_MAX",
        ),
        pytest.param(message_limits.check_pull, limits.PULL_MESSAGES, limits.PULL_MESSAGES + 1, id="PULL_MESSAGES"),
        pytest.param(message_limits.check_ack_ids, ["a"] * limits.ACK_IDS, ["a"] * (limits.ACK_IDS + 1), id="ACK_IDS"),
        pytest.param(
            message_limits.check_publish,
            [Outgoing(b"a", {})] * limits.PUBLISH_MESSAGES,
            [Outgoing(b"a", {})] * (limits.PUBLISH_MESSAGES + 1),
            id="PUBLISH_MESSAGES",
        ),
        pytest.param(
            message_limits.check_publish,
            [Outgoing(bytes(1_000_000), {})] * 9,
            [*[Outgoing(bytes(1_000_000), {})] * 9, Outgoing(b"a", {})],
            id="PUBLISH_BYTES",
        ),
    ],
)
def test_a_request_at_its_limit_goes_and_one_past_it_is_rejected(
    check: Callable[[object], None], at: object, past: object
) -> None:
    check(at)
    with pytest.raises(Rejected, match="want"):
        check(past)
