# Push queues: Cloud Tasks sends each task to the function `run_task`, with a token of the queues' own account.
locals {
  run_task_name = "${var.name}-run-task"
  # The address that Cloud Run gives by rule: known before the function is there, which is told it.
  run_task_url = "https://${local.run_task_name}-${var.project_number}.${var.region}.run.app"

  # Where tasks run or are sent from.
  task_environment = {
    TALLY_LOCATION      = var.region
    TALLY_PUSH_QUEUES   = join(",", sort(keys(var.push_queues)))
    TALLY_RUN_TASK_IAM  = "true" # Cloud Run has checked each token, and taken its signature out
    TALLY_RUN_TASK_URL  = local.run_task_url
    TALLY_TASK_MODULES  = join(",", var.task_modules)
    TALLY_TASKS_ACCOUNT = google_service_account.tasks.email
  }

  # Who adds to push queues: a run that is tried again is a new task, and a task may make others.
  senders = merge(
    { for k, f in local.functions : k => google_service_account.function[k] if f.runs_tasks },
    { for account in google_service_account.task_worker : "task_worker" => account },
  )
  enqueuers = { for pair in setproduct(keys(var.push_queues), keys(local.senders)) :
    "${pair[0]}/${pair[1]}" => { queue = pair[0], sender = pair[1] }
  }
}

resource "google_service_account" "tasks" {
  account_id   = "${var.name}-tasks"
  display_name = "In the tokens that push queues send"
  depends_on   = [terraform_data.services_settled]
}

resource "google_cloud_tasks_queue" "push" {
  for_each   = var.push_queues
  name       = each.key
  location   = var.region
  depends_on = [terraform_data.services_settled]

  rate_limits {
    max_dispatches_per_second = each.value.dispatches_per_second
    max_concurrent_dispatches = each.value.concurrent
  }
  # Of a delivery that failed, not of a task: the function answers 200 whatever became of the run, and a retry of the
  # task is a new one. Without an end, as the service has no dead letters.
  retry_config {
    max_attempts  = -1
    min_backoff   = "1s"
    max_backoff   = "300s"
    max_doublings = 8
  }
  stackdriver_logging_config {
    sampling_ratio = 0.01
  }
}

resource "google_cloud_tasks_queue_iam_member" "enqueuer" {
  for_each = local.enqueuers
  name     = google_cloud_tasks_queue.push[each.value.queue].name
  location = google_cloud_tasks_queue.push[each.value.queue].location
  role     = "roles/cloudtasks.enqueuer"
  member   = local.senders[each.value.sender].member
}

# To add a task that carries an account's token one must be allowed to act as that account.
resource "google_service_account_iam_member" "sends_as_tasks" {
  for_each           = local.senders
  service_account_id = google_service_account.tasks.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value.member
}

resource "google_cloud_run_v2_service_iam_member" "run_task" {
  name     = google_cloudfunctions2_function.this["run_task"].name
  location = google_cloudfunctions2_function.this["run_task"].location
  role     = "roles/run.invoker"
  member   = google_service_account.tasks.member
}
