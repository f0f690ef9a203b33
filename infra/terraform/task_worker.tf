# Optional: a pool that runs the tasks of pull queues. (Push queues need none: tasks.tf.)
locals {
  runs_pull_queues = var.task_worker != null
  task_worker_name = "${var.name}-task-worker"
  task_worker_args = local.runs_pull_queues ? concat(
    ["worker", "--port", "8080", "--concurrency", var.task_worker.concurrency],
    var.task_worker.strict ? ["--strict"] : [],
    [for queue, weight in var.task_worker.queues : "--queue=${queue}=${weight}"],
  ) : []
}

resource "google_service_account" "task_worker" {
  count        = local.runs_pull_queues ? 1 : 0
  account_id   = "${var.name}-puller"
  display_name = "Runs the tasks of pull queues"
  depends_on   = [terraform_data.services_settled]
}

resource "google_project_iam_member" "task_worker_database" {
  count   = local.runs_pull_queues ? 1 : 0
  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.task_worker[0].member

  condition {
    title      = local.database_condition.title
    expression = local.database_condition.expression
  }
}

resource "google_cloud_run_v2_worker_pool" "task_worker" {
  count               = local.runs_pull_queues ? 1 : 0
  name                = local.task_worker_name
  location            = var.region
  description         = "Runs the tasks of pull queues"
  deletion_protection = var.deletion_protection
  labels              = local.labels

  scaling {
    scaling_mode          = "MANUAL"
    manual_instance_count = var.task_worker.instances
  }
  template {
    service_account = google_service_account.task_worker[0].email

    containers {
      name  = "worker"
      image = var.worker_image
      args  = local.task_worker_args

      resources {
        limits = {
          cpu    = tostring(var.task_worker.cpu)
          memory = "${var.task_worker.memory_gib * 1024}Mi"
        }
      }
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
        for_each = merge(local.environment, local.task_environment)
        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }
  depends_on = [terraform_data.grants_settled]

  lifecycle {
    ignore_changes = [client, client_version, scaling[0].manual_instance_count]
  }
}
