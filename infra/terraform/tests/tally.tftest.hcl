# Plans and applies against mocks of the provider: no network, no account.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = {
      email  = "mock@tally-demo.iam.gserviceaccount.com"
      id     = "projects/tally-demo/serviceAccounts/mock@tally-demo.iam.gserviceaccount.com"
      member = "serviceAccount:mock@tally-demo.iam.gserviceaccount.com"
      name   = "projects/tally-demo/serviceAccounts/mock@tally-demo.iam.gserviceaccount.com"
    }
  }
}

variables {
  project_id     = "tally-demo"
  project_number = "123456789012"
  settle_seconds = 0
  source_archive = "tests/source.zip"
  worker_image   = "us-central1-docker.pkg.dev/tally-demo/tally-images/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
}

run "private_by_default" {
  command = plan

  assert {
    condition     = length(google_cloud_run_v2_service_iam_member.public) == 0
    error_message = "The endpoint must not be public unless asked."
  }
  assert {
    condition     = length(google_compute_security_policy.this) == 0
    error_message = "No load balancer unless asked."
  }
  assert {
    condition     = google_firestore_database.this.deletion_policy == "PREVENT" && google_pubsub_subscription.votes["0"].deletion_policy == "PREVENT"
    error_message = "What holds votes must be protected unless asked otherwise."
  }
}

run "load_balancer" {
  command = plan

  variables {
    load_balancer = { domain = "vote.example.com", requests_per_minute = 60 }
  }
  assert {
    condition     = google_cloudfunctions2_function.this["public"].service_config[0].ingress_settings == "ALLOW_INTERNAL_AND_GCLB"
    error_message = "Behind a load balancer the public function must not be reachable directly."
  }
  assert {
    condition     = output.public_url == "https://vote.example.com"
    error_message = "public_url must be the load balancer's."
  }
  assert {
    condition     = alltrue([for r in google_compute_security_policy.this["this"].rule : r.rate_limit_options[0].ban_threshold[0].count == 600 if r.action == "rate_based_ban"])
    error_message = "An address is banned at ten times its limit."
  }
}

run "job_on_a_schedule" {
  command = plan

  variables {
    worker = { schedule = "*/10 * * * *" }
  }
  assert {
    condition     = length(google_cloud_run_v2_worker_pool.worker) == 0 && length(google_cloud_run_v2_job.worker) == 1 && length(google_cloud_scheduler_job.worker) == 1
    error_message = "With a schedule the worker is a job, and no pool runs beside it."
  }
  assert {
    condition     = google_cloud_run_v2_job.worker["0"].template[0].template[0].containers[0].args == tolist(["worker", "--until-empty"])
    error_message = "The job must end when nothing waits."
  }
}

run "more_streams" {
  command = plan

  variables {
    streams      = 2
    streams_kept = 3
  }
  assert {
    condition     = [for k in ["0", "1", "2"] : google_cloud_run_v2_worker_pool.worker[k].name] == ["tally-worker", "tally-worker-1", "tally-worker-2"]
    error_message = "Each stream has workers, the one that gets no more votes too."
  }
  assert {
    condition     = [for k in ["0", "1", "2"] : google_pubsub_subscription.votes[k].deletion_policy] == ["PREVENT", "PREVENT", "DELETE"]
    error_message = "Only a stream that functions no longer publish to may be taken away."
  }
  assert {
    condition     = alltrue([for f in google_cloudfunctions2_function.this : f.service_config[0].environment_variables["TALLY_STREAMS"] == "2"])
    error_message = "Functions publish to the streams that are not on their way out."
  }
}

run "fewer_streams_kept_than_used_are_refused" {
  command = plan
  variables {
    streams      = 2
    streams_kept = 1
  }
  expect_failures = [var.streams_kept]
}

run "sixty_five_streams_are_refused" {
  command = plan
  variables {
    streams = 65
  }
  expect_failures = [var.streams]
}

run "the_whole_request_log" {
  command = plan

  variables {
    request_log_share = 1
  }
  assert {
    condition     = length(google_logging_project_exclusion.public_requests) == 0
    error_message = "Whoever asks for every entry gets every entry."
  }
}

run "no_request_that_went_well_is_logged" {
  command = plan

  variables {
    request_log_share = 0
  }
  assert {
    condition     = !strcontains(google_logging_project_exclusion.public_requests[0].filter, "sample") && strcontains(google_logging_project_exclusion.public_requests[0].filter, "httpRequest.status < 400")
    error_message = "Without a share all that went well is left out, and no failure."
  }
}

run "more_than_the_whole_request_log_is_refused" {
  command = plan
  variables {
    request_log_share = 100
  }
  expect_failures = [var.request_log_share]
}

run "applies" {
  command = apply

  variables {
    deletion_protection = false
  }
  assert {
    condition     = google_pubsub_subscription.votes["0"].topic == google_pubsub_topic.votes["0"].id
    error_message = "The worker must pull what the function publishes."
  }
}

run "an_image_tag_is_refused" {
  command = plan
  variables {
    worker_image = "us-central1-docker.pkg.dev/tally-demo/tally-images/worker:latest"
  }
  expect_failures = [var.worker_image]
}

run "one_request_at_a_time_is_refused" {
  command = plan
  variables {
    public_size = { concurrency = 1 }
  }
  expect_failures = [var.public_size]
}

run "less_than_a_cpu_is_refused" {
  command = plan
  variables {
    public_size = { cpu = 0.5 }
  }
  expect_failures = [var.public_size]
}

run "short_retention_is_refused" {
  command = plan
  variables {
    retention_days = 6
  }
  expect_failures = [var.retention_days]
}

run "retention_past_what_pubsub_keeps_is_refused" {
  command = plan
  variables {
    retention_days = 32
  }
  expect_failures = [var.retention_days]
}

run "a_ballot_key_that_is_not_held_is_refused" {
  command = plan
  variables {
    ballot_key = "2"
  }
  expect_failures = [var.ballot_key]
}

run "the_latest_ballot_key_is_refused" {
  command = plan
  variables {
    ballot_key          = "latest"
    ballot_key_versions = ["latest"]
  }
  expect_failures = [var.ballot_key_versions]
}

run "five_workers_are_refused" {
  command = plan
  variables {
    worker = { instances = 5 }
  }
  expect_failures = [var.worker]
}

run "an_open_admin_is_refused" {
  command = plan
  variables {
    admin_members = ["allUsers"]
  }
  expect_failures = [var.admin_members]
}

run "a_queue_that_is_too_fast_is_refused" {
  command = plan
  variables {
    push_queues = { mail = { dispatches_per_second = 501 } }
  }
  expect_failures = [var.push_queues]
}
