"""The tables of the README of tasks: which tests show that a row is true."""

CLI = "unit/cli/test_queue.py"
CLI_TASK = "unit/cli/test_task.py"
CLAIMS = "unit/tasks/test_claims.py"
CODEC = "unit/tasks/test_codec.py"
CONTEXT = "unit/tasks/test_context.py"
DEAD_TASKS = "unit/tasks/test_dead_tasks.py"
DEFERRED = "unit/tasks/test_deferred.py"
EVENTS = "unit/tasks/test_events.py"
EXECUTOR = "unit/tasks/test_executor.py"
EXECUTOR_STOP = "unit/tasks/test_executor_stop.py"
LEASE = "unit/tasks/test_lease.py"
LOST_REPLIES = "unit/tasks/test_lost_replies.py"
MIDDLEWARE = "unit/tasks/test_middleware.py"
PACE = "unit/tasks/test_pace.py"
POOL = "unit/tasks/test_pool.py"
PUSH = "unit/tasks/test_push.py"
QUEUE = "unit/tasks/test_queue.py"
README = "unit/tasks/test_readme_rows.py"
RECEIVER = "unit/tasks/test_receiver.py"
RETRIES = "unit/tasks/test_retries.py"
RUNNER = "unit/tasks/test_runner.py"
TASK = "unit/tasks/test_task.py"
RETRY = "unit/test_retry.py"
WEB = "unit/web/test_queues.py"
SHELL = "integration/tasks/test_task_functions.py::test_the_command_line_calls_shows_lists_and_replays"

# The first words of a row → the tests that show that it is true, as file::test.
ROWS = {
    # App Engine's calls
    '`taskqueue.Task(payload=…, method="PULL", tag=…, name=…)`': [f"{TASK}::test_a_payload_comes_back_as_it_was_given"],
    "`countdown=`, `eta=` (both: error)": [f"{TASK}::test_delay_or_eta_says_when_a_task_is_due"],
    "`Task.size`, `eta_posix`, `was_enqueued`": [f"{README}::test_a_task_tells_its_size_its_time_and_that_it_is_in"],
    "`params=`, `extract_params()`": [
        f"{TASK}::test_a_payload_comes_back_as_it_was_given",
        f"{PUSH}::test_a_form_is_the_body_or_goes_into_the_url",
    ],
    "`TaskRetryOptions(task_retry_limit=, task_age_limit=, min_backoff_seconds=, max_backoff_seconds=, "
    "max_doublings=)`": [
        f"{RETRY}::test_delays_are_those_of_app_engine",
        f"{RETRY}::test_a_task_is_given_up_when_app_engine_would",
        f"{DEAD_TASKS}::test_a_task_whose_workers_die_becomes_a_dead_letter_after_its_attempts",
    ],
    "both limits, if both are set (`task_retry_limit`, `task_age_limit`), must be used up": [
        f"{RETRY}::test_two_limits_end_a_task_both_or_either"
    ],
    "`Queue(name).add(task)`, `add_async`": [f"{QUEUE}::test_a_task_is_leased_completed_and_gone"],
    "`Queue.add([tasks])` (≤ 100), Go `AddMulti`": [f"{QUEUE}::test_add_many_gives_one_outcome_a_task_in_order"],
    "`add(task, transactional=True)` (no names)": [
        f"{QUEUE}::test_prepared_tasks_are_in_the_callers_commit_or_not_at_all",
        "unit/tasks/test_outbox.py::test_names_and_unique_keys_are_kept",
        "integration/gcp/test_outbox.py::test_a_task_exists_if_and_only_if_the_clients_transaction_commits",
    ],
    "`lease_tasks(seconds, n)`, Go `Lease`": [f"{LEASE}::test_a_lease_waits_for_the_first_task"],
    "`lease_tasks_by_tag(seconds, n, tag)`, Go `LeaseByTag`": [f"{LEASE}::test_leasing_by_tag_takes_that_tag_only"],
    "the same without a tag (the oldest task's)": [f"{LEASE}::test_oldest_takes_the_tag_of_the_task_that_is_due_first"],
    "`modify_task_lease(task, seconds)`, Go `ModifyLease`": [
        f"{LEASE}::test_extending_keeps_the_task_and_counts_no_attempt",
        f"{LEASE}::test_a_released_task_is_due_at_once_or_after_the_delay",
    ],
    "`delete_tasks([tasks])`, Go `DeleteMulti`, after the work": [
        f"{LEASE}::test_an_expired_lease_finishes_nothing_and_its_task_goes_to_another"
    ],
    "`delete_tasks_by_name(name)`": [f"{QUEUE}::test_delete_by_name_takes_the_task_from_its_holder"],
    "`purge()`": [f"{QUEUE}::test_purge_deletes_what_was_there_and_nothing_that_came_later"],
    "`fetch_statistics()`, Go `QueueStats`": [
        f"{QUEUE}::test_stats_count_the_queue",
        f"{CLI}::test_a_rate_is_set_shown_and_taken_off",
    ],
    "`task.retry_count`, `RequestHeaders.TaskRetryCount`": [f"{README}::test_a_lease_counts_from_one"],
    "Admin console: queues, tasks, run now, pause, resume, purge, delete": [
        f"{CLI}::test_list_without_a_queue_shows_every_queue_and_its_numbers",
        f"{CLI}::test_a_task_is_added_listed_peeked_counted_and_deleted",
        f"{CLI}::test_a_task_that_waits_for_its_time_is_run_now",
        f"{CLI}::test_pause_and_resume_show_in_the_stats",
    ],
    "`TaskAlreadyExistsError`, `TombstonedTaskError`, `DuplicateTaskNameError`": [
        f"{QUEUE}::test_add_many_gives_one_outcome_a_task_in_order"
    ],
    "`TaskLeaseExpiredError`": [f"{LEASE}::test_an_expired_lease_finishes_nothing_and_its_task_goes_to_another"],
    "`TaskTooLargeError`": [f"{TASK}::test_what_is_past_a_size_limit_is_too_large"],
    "`InvalidTaskNameError`, `InvalidTagError`, `InvalidEtaError`, `InvalidLeaseTimeError`, `InvalidMaxTasksError`, "
    "`InvalidQueueNameError`, `InvalidTaskError`": [
        f"{TASK}::test_a_wrong_value_is_refused_naming_it",
        f"{TASK}::test_a_wrong_queue_name_is_refused",
        f"{LEASE}::test_a_lease_out_of_bounds_is_refused",
    ],
    "`QueuePausedError`": [f"{QUEUE}::test_a_paused_queue_leases_nothing_and_lets_holders_finish"],
    "`TransientError`, `InternalError`, `DatastoreError`": [
        f"{LOST_REPLIES}::test_a_store_that_never_answers_is_unknown_to_add_many_and_raised_by_add"
    ],
    "`UnknownQueueError`": [f"{WEB}::test_reading_a_queue_that_there_is_not_makes_none"],
    "queue.yaml `rate`, `bucket_size`": ["conformance/test_queue.py::test_a_rate_holds_for_all_who_lease"],
    "ModifyTaskLease as a lock": ["unit/tasks/test_lock.py::test_a_zombie_writes_nothing_after_another_took_the_lock"],
    # Handles and what is around a run
    "`handle.status()`": [f"{RETRIES}::test_a_failure_is_retried_by_the_policy_and_then_parked_with_its_traceback"],
    "`handle.result(timeout)`": [
        f"{RECEIVER}::test_a_failed_run_says_so_to_its_handle",
        f"{DEFERRED}::test_result_without_a_worker_gives_up_after_its_timeout",
    ],
    "`tally task run`": [f"{CLI_TASK}::test_a_call_that_waits_is_run_now"],
    "`handle.cancel()`": [
        f"{CLAIMS}::test_a_cancelled_call_never_starts",
        f"{CLAIMS}::test_a_running_call_is_cancelled_within_a_beat",
        f"{EVENTS}::test_a_cancelled_run_is_lost_to_its_worker_and_nothing_else_is_told",
    ],
    "`handle.forget()`": [f"{RUNNER}::test_a_task_forgotten_while_it_runs_ends_quietly"],
    "`tally task call\\|status\\|result\\|cancel`, `tally task parked list\\|replay\\|drop`": [
        SHELL,
        f"{CLI_TASK}::test_a_task_of_a_transaction_that_no_queue_takes_is_listed_tried_again_and_dropped",
    ],
    "`current().run(call)`": ["unit/test_sync.py::test_a_plain_task_function_makes_calls_on_the_workers_loop"],
    "`current()`": [f"{CONTEXT}::test_the_context_tells_what_a_task_may_know"],
    "`use(Middleware())`": [
        f"{MIDDLEWARE}::test_middleware_sees_every_run_and_cannot_break_it",
        f"{EVENTS}::test_middleware_is_told_too",
    ],
    '`@on("failed", "dead-lettered")`': [f"{EVENTS}::test_a_function_is_told_of_the_kinds_that_it_named"],
    "pytest fixture `tally_eager`": ["unit/testing/test_eager.py::test_a_call_has_ended_when_it_returns"],
    # deferred and delay
    "`deferred.defer(f, *args, **kwargs)`, Go `f.Call(ctx, …)`": [
        f"{RUNNER}::test_a_call_runs_and_its_result_is_there"
    ],
    "`_countdown`, `_eta`, `_name`, `_queue`, `_headers`, `_retry_options`": [
        f"{RUNNER}::test_delay_and_eta_are_kept",
        f"{README}::test_the_options_of_a_call_override_its_functions",
    ],
    "`_transactional=True`": [
        "unit/tasks/test_transactional_calls.py::test_a_call_in_a_commit_runs_once_and_only_if_it_was_applied"
    ],
    "`_url`, `_target`": [f"{RECEIVER}::test_a_call_is_pushed_to_run_task_with_a_token_for_its_service"],
    "Go `delay.Func(key, f)`, `MustRegister`": [f"{DEFERRED}::test_a_name_may_be_registered_once"],
    "Go `f.Task(…)`, to be changed and added": [
        f"{DEFERRED}::test_task_shows_the_call_as_any_language_may_write_it",
        f"{README}::test_a_call_as_a_task_runs_from_the_queue_it_is_added_to",
    ],
    "the current namespace, which a task takes over": [
        f"{README}::test_headers_and_trace_go_from_a_call_to_its_run_and_on_to_the_calls_that_it_makes",
        f"{README}::test_a_call_may_be_for_another_namespace_than_its_maker",
    ],
    "Go `delay.RequestHeaders(ctx)`": [f"{CONTEXT}::test_the_context_tells_what_a_task_may_know"],
    "a large call goes to an entity, and loses `transactional`": [
        f"{RUNNER}::test_arguments_and_results_of_any_size_travel"
    ],
    "`SingularTaskFailure`": [f"{RETRIES}::test_retry_that_counts_meets_the_limit"],
    "`PermanentTaskFailure`": [f"{RETRIES}::test_discard_ends_a_run_without_retry_or_dead_letter"],
    "any exception, a Go `error`": [
        f"{RETRIES}::test_a_failure_is_retried_by_the_policy_and_then_parked_with_its_traceback"
    ],
    "unknown key or undecodable: logged and dropped": [
        f"{RETRIES}::test_an_unknown_task_is_tried_for_a_while_then_parked_and_replayed_after_the_deploy",
        f"{RETRIES}::test_what_is_no_call_is_parked_at_once",
    ],
    # Celery and machinery
    "`@app.task(name=)`": [f"{DEFERRED}::test_a_name_may_be_registered_once"],
    "`delay(…)`, `apply_async(…)`": [f"{RUNNER}::test_delay_and_eta_are_kept"],
    "`countdown`, `eta`, `expires`": [
        f"{RUNNER}::test_delay_and_eta_are_kept",
        f"{RETRIES}::test_an_expired_call_is_parked_and_does_not_run",
    ],
    "`queue`, `routing_key`, `task_routes`": [f"{README}::test_the_options_of_a_call_override_its_functions"],
    "`task_id`": [
        f"{DEFERRED}::test_a_name_is_taken_once_and_gives_the_same_handle",
        f"{DEFERRED}::test_a_unique_call_may_come_again_after_its_period",
    ],
    "`headers`": [f"{README}::test_headers_and_trace_go_from_a_call_to_its_run_and_on_to_the_calls_that_it_makes"],
    "`priority`": [f"{PACE}::test_a_heavier_queue_is_served_more_often_or_strictly_first"],
    "`max_retries`, `default_retry_delay`, `retry_backoff`, `retry_backoff_max`, `retry_jitter`": [
        f"{RETRY}::test_delays_are_those_of_the_documented_text",
        f"{RETRY}::test_jitter_takes_off_its_share_at_most",
        f"{RETRY}::test_fibonacci_delays_are_those_of_machinery",
    ],
    "`autoretry_for`, `dont_autoretry_for`, `throws`; asynq `IsFailure`": [
        f"{RETRIES}::test_only_the_named_errors_are_retried",
        f"{RETRIES}::test_a_fatal_error_is_not_retried",
        f"{RETRIES}::test_an_error_that_is_no_failure_uses_up_no_attempt_and_is_not_tried_ever_so_fast",
    ],
    "`self.retry(countdown=)`": [
        f"{RETRIES}::test_retry_asks_for_another_run_at_a_time_of_its_own",
        f"{RETRIES}::test_retry_that_counts_meets_the_limit",
    ],
    "`rate_limit` (of one worker)": ["unit/tasks/test_throttle.py::test_executors_start_no_more_runs_than_the_rate"],
    "river snooze, asynq groups, asynq and river concurrency limits, river `JobCompleteTx`": [
        f"{LEASE}::test_a_lease_that_does_not_count_uses_up_no_attempt",
        "unit/tasks/test_gather.py::test_a_group_is_handed_over_when_none_came_for_a_while",
        "unit/tasks/test_admission.py::test_no_more_runs_of_a_key_are_at_work_than_its_limit_and_waiting_uses_up_nothing",
        "unit/tasks/test_together.py::test_tasks_and_writes_are_settled_together_or_not_at_all",
    ],
    "`Ignore`, `Reject`": [f"{RETRIES}::test_discard_ends_a_run_without_retry_or_dead_letter"],
    "`time_limit`, `soft_time_limit`, `SoftTimeLimitExceeded`": [
        "unit/tasks/test_soft_timeout.py::test_an_async_function_ends_in_order_and_its_result_counts",
        "unit/tasks/test_soft_timeout_threads.py::test_a_plain_function_ends_in_order_in_its_thread",
        f"{RUNNER}::test_a_timeout_fails_the_attempt",
        f"{CONTEXT}::test_the_context_tells_what_a_task_may_know",
    ],
    "`acks_late`, `reject_on_worker_lost`": [f"{EXECUTOR}::test_what_a_dead_worker_held_is_run_by_another"],
    "`track_started`, states": [f"{README}::test_every_state_is_seen_in_its_time"],
    "`update_state(meta=)`": [f"{CONTEXT}::test_progress_is_seen_while_the_task_runs"],
    "`self.request`": [f"{CONTEXT}::test_the_context_tells_what_a_task_may_know"],
    "`before_start`, `on_success`, `on_failure`, `on_retry`, signals": [
        f"{MIDDLEWARE}::test_middleware_sees_every_run_and_cannot_break_it"
    ],
    "events, `task-*` signals": [f"{EVENTS}::test_each_way_of_a_run_is_told_in_order"],
    "`AsyncResult.get(timeout)`, `.state`, `.traceback`": [f"{RECEIVER}::test_a_failed_run_says_so_to_its_handle"],
    "`forget()`, `revoke()`, `terminate`": [
        f"{RUNNER}::test_a_task_forgotten_while_it_runs_ends_quietly",
        f"{CLAIMS}::test_a_running_call_is_cancelled_within_a_beat",
    ],
    "`result_expires`, `ignore_result`": [f"{RUNNER}::test_a_record_lives_as_long_as_it_is_kept"],
    "pydantic arguments": [f"{CODEC}::test_arguments_arrive_as_they_were_sent"],
    "`task_always_eager`": ["unit/testing/test_eager.py::test_retries_follow_at_once"],
    "unregistered task": [
        f"{RETRIES}::test_an_unknown_task_is_tried_for_a_while_then_parked_and_replayed_after_the_deploy"
    ],
    "`--concurrency`, `--autoscale`": [f"{PACE}::test_concurrency_follows_the_backlog_between_its_bounds"],
    "warm shutdown": [
        f"{EXECUTOR_STOP}::test_stop_takes_no_more_finishes_what_is_short_and_gives_back_what_is_long",
        "integration/tasks/test_task_functions.py::test_a_stopped_worker_gives_back_what_runs_in_a_thread_and_exits_in_time",
    ],
    "cold shutdown": [
        f"{EXECUTOR_STOP}::test_a_stop_at_once_gives_back_what_runs_and_another_worker_begins_with_it",
        f"{EXECUTOR_STOP}::test_a_stop_at_once_leaves_to_their_leases_what_the_store_does_not_take_back",
        "unit/cli/test_worker.py::test_a_first_signal_stops_a_second_one_stops_at_once_and_a_third_one_would_kill",
    ],
    "`inspect`, Flower": [SHELL, f"{CLI}::test_a_task_is_added_listed_peeked_counted_and_deleted"],
    "Prometheus by Flower, OpenTracing": [
        "unit/metrics/test_telemetry.py::test_runs_are_counted_by_outcome_and_timed",
        "unit/metrics/test_exposition.py::test_an_exporter_gets_what_metrics_shows",
        f"{README}::test_headers_and_trace_go_from_a_call_to_its_run_and_on_to_the_calls_that_it_makes",
    ],
    "calls from programs without an event loop": [
        "unit/test_sync.py::test_a_call_is_made_run_and_waited_for_from_plain_code",
        "unit/test_sync.py::test_many_threads_share_it",
    ],
    # Push queues to a URL
    "`taskqueue.add(url=, method=, payload=, headers=, name=, countdown=, eta=, retry_options=)`": [
        f"{PUSH}::test_a_request_is_sent_as_it_was_given"
    ],
    "`dispatch_deadline`": [
        "unit/tasks/test_task_limits.py::test_a_dispatch_deadline_is_the_timeout_within_the_service_s_limits"
    ],
    "`X-AppEngine-*` headers as proof of the caller": [
        f"{RECEIVER}::test_run_task_refuses_any_caller_but_its_own",
        "unit/gcp/test_caller.py::test_what_is_no_token_is_refused",
    ],
    "`queue.add([tasks])`, `delete_tasks_by_name`, `purge`, `fetch_statistics`": [
        f"{PUSH}::test_add_many_gives_one_outcome_a_task_in_order",
        f"{PUSH}::test_purge_pause_resume_and_stats_reach_the_service",
        f"{PUSH}::test_names_are_hashed_and_taken_for_a_while",
    ],
    "pause, resume, run now in the console": [
        f"{PUSH}::test_purge_pause_resume_and_stats_reach_the_service",
        f"{PUSH}::test_a_request_is_sent_now_when_it_is_forced",
        f"{CLI}::test_a_push_queue_is_paused_counted_and_purged_as_one",
    ],
    "queue.yaml `rate`, `bucket_size`, `max_concurrent_requests`": [
        "infra/test_push_queues.py::test_a_queue_has_the_rate_and_the_concurrency_that_it_was_given"
    ],
    # The pool
    "`New(n, ctor)`, `NewFunc`, `NewCallback`": [f"{POOL}::test_set_up_and_tear_down_run_once_a_worker_in_its_thread"],
    "`Process`, `ProcessTimed`, `ProcessCtx`": [
        f"{POOL}::test_submit_wait_waits_for_room_and_returns_the_result",
        f"{POOL}::test_timeout_cancels_an_async_job",
        f"{POOL}::test_cancelling_the_future_cancels_the_job_that_runs_and_skips_the_one_that_waits",
    ],
    "`Submit`, `SubmitWait`": [f"{POOL}::test_submit_refuses_at_once_when_the_queue_is_full"],
    "`SetSize`, `GetSize`, `QueueLength`, `WaitingQueueSize`": [
        f"{POOL}::test_resize_up_starts_waiting_jobs_at_once_and_down_lets_workers_go",
        f"{POOL}::test_stats_count_what_waits_runs_and_ended",
    ],
    "`BlockUntilReady`, `Interrupt`, `Terminate`": [
        f"{POOL}::test_timeout_of_a_thread_frees_the_caller_and_interrupts_the_function"
    ],
    "`WithIdleTimeout`": [f"{POOL}::test_idle_workers_leave_down_to_the_number_to_keep"],
    "`Pause(ctx)`, `pacer`": [
        f"{POOL}::test_pause_starts_nothing_and_resume_goes_on",
        f"{POOL}::test_pace_spaces_the_starts",
    ],
    "`Stop`, `StopWait`, `Close`": [
        f"{POOL}::test_stop_drops_waiting_jobs_returns_them_and_finishes_the_running_one",
        f"{POOL}::test_drain_finishes_what_waits_even_in_a_pause",
    ],
    "a panic kills the program": [f"{POOL}::test_capture_gives_the_exception_to_the_caller_and_keeps_the_worker"],
    # Over HTTP
    "`POST /v1/queues/{queue}/tasks`": [
        f"{WEB}::test_a_task_goes_from_add_to_complete_over_http",
        f"{WEB}::test_a_list_has_one_outcome_a_task_in_order",
    ],
    "`POST /v1/queues/{queue}/lease`": [f"{WEB}::test_a_failed_task_is_released_and_in_the_end_dead"],
    "`POST /v1/queues/{queue}/extend`": [f"{WEB}::test_a_lease_that_is_over_is_a_conflict"],
    "`POST /v1/queues/{queue}/complete`": [f"{WEB}::test_a_task_goes_from_add_to_complete_over_http"],
    "`POST /v1/queues/{queue}/release`": [f"{WEB}::test_a_failed_task_is_released_and_in_the_end_dead"],
    "`GET /v1/queues/{queue}/stats`": [f"{WEB}::test_a_task_goes_from_add_to_complete_over_http"],
    "`GET /v1/queues`": [f"{WEB}::test_the_queues_are_listed_with_their_numbers_in_pages"],
}
