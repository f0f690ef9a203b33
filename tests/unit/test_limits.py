"""Every limit of the table has a test at it and one past it: this says which, and that none is left out."""

import ast
from pathlib import Path

import pytest

from tally import limits

HERE = Path(__file__).parent
WEB, INTAKE, INBOX, WORKER, LEDGER = (
    "web/test_limits.py",
    "votes/test_microbatch.py",
    "votes/test_inbox_limits.py",
    "votes/test_worker_limits.py",
    "votes/test_ledger.py",
)
TASK, QUEUE, LEASE, TASKS, HTTP = (
    "tasks/test_task.py",
    "tasks/test_queue.py",
    "tasks/test_lease.py",
    "tasks/test_task_limits.py",
    "web/test_queues.py",
)
REQUEST = (WEB, "test_a_request_at_its_limit_is_taken_and_one_past_it_refused")
KEY = (WEB, "test_a_key_has_16_to_128_bytes")
WRONG, RIGHT = (TASK, "test_a_wrong_value_is_refused_naming_it"), (TASK, "test_values_at_their_limits_are_taken")
HTTP_WRONG = (HTTP, "test_wrong_input_is_a_problem_and_never_a_500")
LETTERS = (INBOX, "test_one_publish_of_dead_letters_stays_within_its_limits")
ROOM = (INBOX, "test_a_pull_needs_room_for_its_largest_answer")
POOL = (TASKS, "test_a_pool_has_so_many_workers_and_jobs")
DEADLINE = (TASKS, "test_a_dispatch_deadline_is_the_timeout_within_the_service_s_limits")

TESTS: dict[str, tuple[str, str]] = {
    "OPTIONS": REQUEST,
    "OPTION_ID_BYTES": REQUEST,
    "LABEL_BYTES": REQUEST,
    "TITLE_BYTES": REQUEST,
    "PARTITIONS": REQUEST,
    "VOTES_PER_PARTITION": REQUEST,
    "VOTER_BYTES": REQUEST,
    "KEY_BYTES_MIN": KEY,
    "KEY_BYTES": KEY,
    "VOTES_PER_REQUEST": REQUEST,
    "VOTE_BODY_BYTES": REQUEST,
    "BODY_BYTES": REQUEST,
    "JSON_DEPTH": (WEB, "test_json_nests_so_deep_and_no_deeper"),
    "WAITING_VOTES": (INTAKE, "test_past_the_bound_of_waiting_votes_a_request_is_busy_and_room_comes_back"),
    "WAITING_BYTES": (INTAKE, "test_past_the_bound_of_waiting_bytes_a_request_is_busy_and_room_comes_back"),
    "CACHED_POLLS": ("votes/test_definitions.py", "test_the_cache_is_bounded_and_absent_ids_go_first"),
    "UNKNOWN_READS_PER_SECOND": (
        "votes/test_definitions.py",
        "test_unknown_ids_are_rationed_and_past_that_never_called_absent",
    ),
    "STREAMS": ("test_config.py", "test_there_are_so_many_streams_and_no_more"),
    "MESSAGE_BYTES": ("votes/test_decoder.py", "test_size_is_checked_before_decoding"),
    "MESSAGE_VOTES": ("votes/test_decoder.py", "test_votes_of_a_message_are_limited"),
    "DEAD_LETTER_BYTES": ("votes/test_decoder.py", "test_what_cannot_be_decoded_is_cut_and_named_by_its_hash"),
    "PULL_MESSAGES": (WORKER, "test_a_pull_asks_for_no_more_than_its_limit"),
    "PULL_BYTES": ROOM,
    "PUBLISH_MESSAGES": LETTERS,
    "PUBLISH_BYTES": LETTERS,
    "CHANNEL_BYTES": ("gcp/test_open.py", "test_a_channel_takes_messages_up_to_its_limit_and_no_larger"),
    "ACK_DEADLINE_SECONDS": (
        "embedded/test_messages.py",
        "test_a_delivery_comes_again_at_its_deadline_under_a_new_ack_id",
    ),
    "ACK_DEADLINE_SECONDS_MAX": (
        "test_message_limits.py",
        "test_a_request_at_its_limit_goes_and_one_past_it_is_rejected",
    ),
    "LARGE_ENTITIES": ("testing/test_store.py", "test_an_answer_that_no_channel_takes_is_an_outage"),
    "ACK_IDS": (INBOX, "test_ids_are_sent_a_thousand_at_a_time"),
    "HELD_MESSAGES": ROOM,
    "HELD_LETTERS": ("votes/test_letterbox.py", "test_letters_that_are_not_meant_are_held_up_to_a_limit"),
    "LETTERS_PER_RUN": ("votes/test_letterbox.py", "test_a_run_ends_at_its_limit_and_says_that_there_is_more"),
    "HELD_BYTES": ROOM,
    "CACHED_RECORD_BYTES": (WORKER, "test_partitions_are_evicted_only_past_the_memory_bound"),
    "CONCURRENT_LOADS": (WORKER, "test_two_partitions_are_loaded_at_a_time"),
    "BALLOTS_PER_PARTITION": (LEDGER, "test_a_full_partition_takes_what_it_knows_and_no_new_ballot"),
    "SHARD_BYTES": (LEDGER, "test_a_shard_over_its_limit_is_refused_before_the_store_sees_it"),
    "SEGMENT_BYTES": (LEDGER, "test_a_segment_takes_what_fits_and_leaves_the_rest"),
    "COMMIT_BYTES": (LEDGER, "test_a_commit_stays_below_the_request_limit_at_the_worst"),
    "COMMIT_MUTATIONS": (LEDGER, "test_a_commit_stays_below_the_request_limit_at_the_worst"),
    "LOOKUP_BYTES": (LEDGER, "test_lookups_stay_within_their_bytes_by_the_listed_sizes"),
    "LOOKUP_KEYS": (LEDGER, "test_lookups_stay_within_their_bytes_by_the_listed_sizes"),
    "FOLD_SEGMENTS": (LEDGER, "test_a_fold_takes_at_most_its_limit_and_deletes_what_it_took"),
    "POOL_WORKERS": POOL,
    "POOL_JOBS": POOL,
    "QUEUE_NAME": (TASK, "test_a_wrong_queue_name_is_refused"),
    "TASK_NAME": WRONG,
    "TAG_BYTES": RIGHT,
    "TASK_BYTES": (TASK, "test_what_is_past_a_size_limit_is_too_large"),
    "PULL_TASK_BYTES": (QUEUE, "test_add_many_gives_one_outcome_a_task_in_order"),
    "HEADER_BYTES": (TASK, "test_what_is_past_a_size_limit_is_too_large"),
    "BLOB_BYTES": (TASKS, "test_a_blob_past_its_limit_is_refused"),
    "INLINE_BYTES": (TASKS, "test_a_larger_payload_lies_beside_its_row"),
    "LEASE_TASKS": (LEASE, "test_a_lease_out_of_bounds_is_refused"),
    "LEASE_SECONDS": (LEASE, "test_a_lease_out_of_bounds_is_refused"),
    "LEASE_BYTES": (LEASE, "test_one_lease_gives_no_more_bytes_than_its_limit_but_always_one_task"),
    "LEASE_WAIT_SECONDS": (TASKS, "test_a_lease_waits_for_so_long_at_most"),
    "LEASE_WAIT_HTTP_SECONDS": HTTP_WRONG,
    "TASKS_PER_REQUEST": HTTP_WRONG,
    "TASK_BODY_BYTES": HTTP_WRONG,
    "HELD_QUEUES": (TASKS, "test_a_process_keeps_so_many_queues_at_hand"),
    "QUEUES_PER_PAGE": (HTTP, "test_a_malformed_page_is_refused"),
    "STARTS_PER_SECOND": ("tasks/test_throttle.py", "test_a_rate_out_of_bounds_is_refused"),
    "QUEUE_SHARDS": (QUEUE, "test_the_number_of_shards_is_kept_and_checked"),
    "COUNTED_ROWS": (TASKS, "test_stats_count_up_to_their_limit_and_then_say_at_least"),
    "LISTED_TASKS": (TASKS, "test_a_listing_shows_so_many_tasks"),
    "ERROR_BYTES": ("tasks/test_dead_tasks.py", "test_reject_makes_a_dead_letter_at_once_and_cuts_a_long_error"),
    "DELAY_SECONDS": WRONG,
    "DISPATCH_SECONDS_MIN": DEADLINE,
    "DISPATCH_SECONDS": DEADLINE,
    "PUSH_TASK_BYTES": ("tasks/test_push.py", "test_a_payload_at_the_limit_is_taken"),
    "TASK_NAMES_KEPT": ("tasks/test_schedule_names.py", "test_tombstones_are_bounded_and_the_oldest_goes_first"),
    "EMBEDDED_WAITING_WRITES": (
        "embedded/test_writer.py",
        "test_more_waiting_writes_than_the_limit_are_turned_away",
    ),
    "EMBEDDED_GROUP_WRITES": ("embedded/test_writer.py", "test_one_transaction_takes_so_many_writes"),
    "CHUNK_BYTES": (TASKS, "test_a_blob_is_cut_into_chunks"),
    "RUN_INLINE_BYTES": ("tasks/test_runner.py", "test_arguments_and_results_of_any_size_travel"),
    "PROGRESS_BYTES": (TASKS, "test_progress_is_shown_up_to_its_limit"),
    "RUN_ERROR_BYTES": (TASKS, "test_a_long_error_is_cut_in_its_middle"),
    "GATHERED_ITEMS": ("tasks/test_gather.py", "test_so_many_items_are_handed_over_at_once"),
    "GATHERED_BYTES": ("tasks/test_gather.py", "test_an_item_past_the_limit_is_refused"),
    "CONCURRENT_RUNS": ("tasks/test_semaphore.py", "test_so_many_runs_may_be_at_once"),
    "KEYS_HELD": ("tasks/test_admission.py", "test_so_many_keys_are_remembered"),
    "ATTEMPTS_KEPT": (TASKS, "test_a_run_keeps_its_latest_attempts"),
}


def test_no_limit_is_left_out() -> None:
    assert TESTS.keys() == limits.TABLE.keys()


@pytest.mark.parametrize("name", TESTS)
def test_the_test_of_a_limit_is_there(name: str) -> None:
    file, test = TESTS[name]
    tree = ast.parse((HERE / file).read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
