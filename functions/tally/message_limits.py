"""What one request to a message service may hold, checked alike on every backend before anything is sent.

The service's answer to an acknowledgement of too many ids looks like that to an expired one, which is no error at all:
without these checks the messages would come again for ever. Each check raises Rejected, naming the value and the limit.
"""

from collections.abc import Sequence

from tally.errors import Rejected
from tally.limits import ACK_DEADLINE_SECONDS_MAX, ACK_IDS, PUBLISH_BYTES, PUBLISH_MESSAGES, PULL_MESSAGES
from tally.ports import Outgoing


def check_publish(messages: Sequence[Outgoing]) -> None:
    size = sum(len(message.data) for message in messages)
    if not 0 < len(messages) <= PUBLISH_MESSAGES or size > PUBLISH_BYTES:
        raise _rejected(
            f"{len(messages)} messages of {size} bytes in one publish",
            f"1 to {PUBLISH_MESSAGES} messages, and at most {PUBLISH_BYTES} bytes",
        )


def check_pull(max_messages: int) -> None:
    if not 0 < max_messages <= PULL_MESSAGES:
        raise _rejected(f"a pull of {max_messages} messages", f"1 to {PULL_MESSAGES}")


def check_ack_ids(ack_ids: Sequence[str]) -> None:
    if not 0 < len(ack_ids) <= ACK_IDS:
        raise _rejected(f"{len(ack_ids)} ack ids in a request", f"1 to {ACK_IDS}")


def check_ack_deadline(seconds: int) -> None:
    if not 0 <= seconds <= ACK_DEADLINE_SECONDS_MAX:
        raise _rejected(f"an ack deadline of {seconds} s", f"0 to {ACK_DEADLINE_SECONDS_MAX}")


def _rejected(what: str, wanted: str) -> Rejected:
    return Rejected(f"{what}: want {wanted}", status="INVALID_ARGUMENT")
