"""Every limit, in one table: checked by us, since the emulators check little. `TABLE` makes the README's table.

A `Limit` is an int that knows its unit and what it bounds.
"""


class Limit(int):
    unit: str
    bounds: str

    def __new__(cls, value: int, unit: str, bounds: str) -> "Limit":
        limit = super().__new__(cls, value)
        limit.unit = unit
        limit.bounds = bounds
        return limit


# Polls
OPTIONS = Limit(1_000, "options", "options of a poll, withdrawn ones included")
OPTION_ID_BYTES = Limit(128, "bytes", "an option's id")
LABEL_BYTES = Limit(300, "bytes", "an option's label")
TITLE_BYTES = Limit(1_500, "bytes", "a poll's title")
PARTITIONS = Limit(256, "partitions", "partitions of a poll")
VOTES_PER_PARTITION = Limit(3_000_000, "votes", "expected_votes a partition")

# Requests
VOTER_BYTES = Limit(256, "bytes", "a voter's id")
KEY_BYTES_MIN = Limit(16, "bytes", "an idempotency key, at least")
KEY_BYTES = Limit(128, "bytes", "an idempotency key")
VOTES_PER_REQUEST = Limit(1_000, "votes", "one list of votes")
VOTE_BODY_BYTES = Limit(64_000, "bytes", "the body of a single vote")
BODY_BYTES = Limit(1_000_000, "bytes", "the body of a list or a poll")
JSON_DEPTH = Limit(32, "levels", "nesting of a request's JSON")

# Intake
WAITING_VOTES = Limit(50_000, "votes", "votes that wait for Pub/Sub in one function process")
WAITING_BYTES = Limit(16_000_000, "bytes", "the same, in bytes of message")
CACHED_POLLS = Limit(10_000, "polls", "definitions (unknown ids too) held by one process")
UNKNOWN_READS_PER_SECOND = Limit(50, "reads/s", "reads for poll ids that are not in the cache")

# Streams
STREAMS = Limit(64, "streams", "sets of a topic, a subscription and workers")

# Messages
MESSAGE_BYTES = Limit(1_000_000, "bytes", "one Pub/Sub message of votes")
MESSAGE_VOTES = Limit(10_000, "votes", "one Pub/Sub message of votes")
DEAD_LETTER_BYTES = Limit(64_000, "bytes", "what is kept of a message that cannot be decoded")
PULL_MESSAGES = Limit(1_000, "messages", "one Pull")
PULL_BYTES = Limit(10_000_000, "bytes", "one Pull's answer, by Pub/Sub's own limit")
PUBLISH_MESSAGES = Limit(1_000, "messages", "one Publish")
PUBLISH_BYTES = Limit(9_000_000, "bytes", "the messages of one Publish")
CHANNEL_BYTES = Limit(16 * 1024 * 1024, "bytes", "one gRPC message, either way")
LARGE_ENTITIES = Limit(15, "entities", "entities of one read, where each may be as large as any can, 1 MiB")
ACK_IDS = Limit(1_000, "ack ids", "one Acknowledge or ModifyAckDeadline")
ACK_DEADLINE_SECONDS = Limit(10, "seconds", "a lease of a message of votes; who holds it extends it at half-time")
ACK_DEADLINE_SECONDS_MAX = Limit(600, "seconds", "an ack deadline, by Pub/Sub's own limit")

# Worker
HELD_MESSAGES = Limit(60_000, "messages", "messages that one worker holds")
HELD_BYTES = Limit(96_000_000, "bytes", "the same, in bytes of message")
HELD_LETTERS = Limit(100_000, "letters", "dead letters that one command holds back while it looks for others")
LETTERS_PER_RUN = Limit(1_000_000, "letters", "dead letters that one command replays or drops")
CACHED_RECORD_BYTES = Limit(256_000_000, "bytes", "ledger records that one worker keeps in memory, unless set")
CONCURRENT_LOADS = Limit(2, "partitions", "partitions that one worker loads at a time")
BALLOTS_PER_PARTITION = Limit(4_000_000, "ballots", "one partition")

# Ledger
SHARD_BYTES = Limit(256_000, "bytes", "a Shard entity")
SEGMENT_BYTES = Limit(900_000, "bytes", "a Segment's records")
COMMIT_BYTES = Limit(3 * 1024 * 1024, "bytes", "one commit request")
COMMIT_MUTATIONS = Limit(500, "mutations", "one commit")
LOOKUP_BYTES = Limit(3 * 1024 * 1024, "bytes", "one lookup's answer, by the listed sizes")
LOOKUP_KEYS = Limit(1_000, "keys", "one lookup")
FOLD_SEGMENTS = Limit(64, "segments", "segments folded into one commit")

# Worker pool
POOL_WORKERS = Limit(1_000, "workers", "workers of one WorkerPool")
POOL_JOBS = Limit(1_000_000, "jobs", "jobs that wait in one WorkerPool")

# Task queues
QUEUE_NAME = Limit(100, "characters", "a queue's name: letters, digits and hyphens")
TASK_NAME = Limit(500, "characters", "a task's name: letters, digits, _ and -")
TAG_BYTES = Limit(500, "bytes", "a task's tag")
TASK_BYTES = Limit(8_000_000, "bytes", "a task's payload, whatever the queue")
PULL_TASK_BYTES = Limit(900_000, "bytes", "a task's payload in a pull queue")
HEADER_BYTES = Limit(16_000, "bytes", "a task's headers and content type, names and values together")
BLOB_BYTES = Limit(11_200_000, "bytes", "large arguments or a large result as JSON: 8 MB of bytes, in base64")
INLINE_BYTES = Limit(4_000, "bytes", "a payload that lies in the task's row; a larger one lies beside it")
LEASE_TASKS = Limit(1_000, "tasks", "tasks of one lease")
LEASE_SECONDS = Limit(7 * 86_400, "seconds", "how long a lease lasts")
LEASE_BYTES = Limit(20_000_000, "bytes", "payloads of the tasks of one lease; one task is always given")
LEASE_WAIT_SECONDS = Limit(3_600, "seconds", "how long one lease call waits for tasks")
LEASE_WAIT_HTTP_SECONDS = Limit(30, "seconds", "the same, over HTTP")
TASKS_PER_REQUEST = Limit(1_000, "tasks", "tasks, or leases, of one HTTP request")
TASK_BODY_BYTES = Limit(4_000_000, "bytes", "the body of an HTTP request about tasks")
HELD_QUEUES = Limit(1_000, "queues", "pull queues that one process keeps at hand")
QUEUES_PER_PAGE = Limit(50, "queues", "queues of one HTTP listing, each of which is counted")
STARTS_PER_SECOND = Limit(10_000, "tasks/s", "the rate that may be set for a pull queue")
QUEUE_SHARDS = Limit(64, "shards", "shards of a pull queue")
COUNTED_ROWS = Limit(10_000, "rows", "how far `stats` counts in a shard, of each kind of row")
LISTED_TASKS = Limit(1_000, "tasks", "tasks of one listing")
ERROR_BYTES = Limit(16_000, "bytes", "what is kept of a task's last error")
DELAY_SECONDS = Limit(10 * 365 * 86_400, "seconds", "how far ahead a task may lie, and live")
DISPATCH_SECONDS_MIN = Limit(15, "seconds", "a task's dispatch deadline, at least")
DISPATCH_SECONDS = Limit(1_800, "seconds", "a task's dispatch deadline")

# Push queues
PUSH_TASK_BYTES = Limit(900_000, "bytes", "the payload of a request in a push queue")
TASK_NAMES_KEPT = Limit(1_000_000, "names", "names of tasks that are gone, kept taken by one queue's schedule")

# Embedded
EMBEDDED_WAITING_WRITES = Limit(100_000, "writes", "writes that wait for the file in one process")
EMBEDDED_GROUP_WRITES = Limit(4_096, "writes", "writes that share one transaction of the file")

# Runs of task functions
CHUNK_BYTES = Limit(900_000, "bytes", "one chunk of a large payload or result")
RUN_INLINE_BYTES = Limit(200_000, "bytes", "a payload or result that needs no chunks")
PROGRESS_BYTES = Limit(4_000, "bytes", "what a task shows of its progress")
RUN_ERROR_BYTES = Limit(64_000, "bytes", "an error text or traceback that is kept of a run")
GATHERED_ITEMS = Limit(200, "items", "items that are handed to a function at once")
GATHERED_BYTES = Limit(800_000, "bytes", "the same, in bytes of JSON together; and one item")
CONCURRENT_RUNS = Limit(1_000, "runs", "runs at once of one key, where a function has a limit")
KEYS_HELD = Limit(10_000, "keys", "such keys that one worker remembers how busy they are")
ATTEMPTS_KEPT = Limit(20, "attempts", "latest attempts that are kept of a run")

TABLE = {name: value for name, value in globals().items() if isinstance(value, Limit)}
