locals {
  worker_is_job = var.worker.schedule != null
  worker_limits = {
    cpu    = tostring(var.worker.cpu)
    memory = "${var.worker.memory_gib * 1024}Mi"
  }
  # 0.3 GiB are for the code and the messages held; loading a partition takes half as much again as keeping it.
  worker_environment = merge(local.environment, {
    TALLY_LEDGER_MEMORY_BYTES = tostring(floor((var.worker.memory_gib - 0.3) * 0.6 * 1024 * 1024 * 1024))
  })
}

resource "google_service_account" "worker" {
  account_id   = "${var.name}-worker"
  display_name = "Counts votes"
  depends_on   = [terraform_data.services_settled]
}

resource "google_project_iam_member" "worker_database" {
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.worker.member

  condition {
    title      = local.database_condition.title
    expression = local.database_condition.expression
  }
}

# Runs all the time, its CPU always its own.
resource "google_cloud_run_v2_worker_pool" "worker" {
  for_each            = local.worker_is_job ? {} : local.streams
  name                = "${var.name}-worker${each.value}"
  location            = var.region
  description         = "Pulls votes and counts them"
  deletion_protection = local.stream_protected[each.key]
  labels              = local.labels

  scaling {
    scaling_mode          = "MANUAL"
    manual_instance_count = var.worker.instances
  }
  template {
    service_account = google_service_account.worker.email

    containers {
      name  = "worker"
      image = var.worker_image
      args  = ["worker", "--port", "8080"]

      resources {
        limits = local.worker_limits
      }
      # `/live` answers while the event loop turns. `/health` would restart a worker for an outage of the store.
      liveness_probe {
        initial_delay_seconds = 10
        period_seconds        = 10
        timeout_seconds       = 5
        failure_threshold     = 6
        http_get {
          path = "/live"
          port = 8080
        }
      }
      dynamic "env" {
        for_each = merge(local.worker_environment, { TALLY_STREAM = each.key })
        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }
  depends_on = [terraform_data.grants_settled]

  lifecycle {
    # gcloud writes the client fields; `make scale` writes the count.
    ignore_changes = [client, client_version, scaling[0].manual_instance_count]
  }
}

# The smallest size: a job that counts what waits and ends, so that an idle system costs cents.
resource "google_cloud_run_v2_job" "worker" {
  for_each            = local.worker_is_job ? local.streams : {}
  name                = "${var.name}-worker${each.value}"
  location            = var.region
  deletion_protection = local.stream_protected[each.key]
  labels              = local.labels

  template {
    parallelism = 1
    task_count  = 1

    template {
      service_account = google_service_account.worker.email
      timeout         = "3600s"
      max_retries     = 0 # the next run of the schedule is the retry

      containers {
        name  = "worker"
        image = var.worker_image
        args  = ["worker", "--until-empty"]

        resources {
          limits = local.worker_limits
        }
        dynamic "env" {
          for_each = merge(local.worker_environment, { TALLY_STREAM = each.key })
          content {
            name  = env.key
            value = env.value
          }
        }
      }
    }
  }
  depends_on = [terraform_data.grants_settled]

  lifecycle {
    ignore_changes = [client, client_version]
  }
}

resource "google_service_account" "scheduler" {
  count        = local.worker_is_job ? 1 : 0
  account_id   = "${var.name}-scheduler"
  display_name = "Starts the worker job"
  depends_on   = [terraform_data.services_settled]
}

resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  for_each = local.worker_is_job ? local.streams : {}
  name     = google_cloud_run_v2_job.worker[each.key].name
  location = google_cloud_run_v2_job.worker[each.key].location
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler[0].member
}

resource "google_cloud_scheduler_job" "worker" {
  for_each         = local.worker_is_job ? local.streams : {}
  name             = "${var.name}-worker${each.value}"
  region           = var.region
  description      = "Counts the votes that wait"
  schedule         = var.worker.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "60s"
  depends_on       = [google_cloud_run_v2_job_iam_member.scheduler]

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.worker[each.key].id}:run"
    oauth_token {
      service_account_email = google_service_account.scheduler[0].email
    }
  }
}

# Deployments from before there were streams: nothing is replaced.
moved {
  from = google_cloud_run_v2_worker_pool.worker[0]
  to   = google_cloud_run_v2_worker_pool.worker["0"]
}

moved {
  from = google_cloud_run_v2_job.worker[0]
  to   = google_cloud_run_v2_job.worker["0"]
}

moved {
  from = google_cloud_run_v2_job_iam_member.scheduler[0]
  to   = google_cloud_run_v2_job_iam_member.scheduler["0"]
}

moved {
  from = google_cloud_scheduler_job.worker[0]
  to   = google_cloud_scheduler_job.worker["0"]
}
