"""Every kind and key of the vote pipeline."""

from tally.ports import Key

POLL = "Poll"
SHARD = "Shard"
SEGMENT = "Segment"


def poll(poll_id: str) -> Key:
    return ((POLL, poll_id),)


def shard(poll_id: str, partition: int) -> Key:
    return ((SHARD, f"{poll_id}:{partition}"),)


def segment(shard_key: Key, sequence: int) -> Key:
    """Return the key of the segment that commit number `sequence` (from 1) of a shard wrote."""
    return (*shard_key, (SEGMENT, sequence))
