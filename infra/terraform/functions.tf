locals {
  # Every target of functions/main.py: a new one is added here and nowhere else.
  functions = {
    admin = {
      description     = "Makes, changes and closes polls"
      size            = { min_instances = 0, max_instances = 3, concurrency = 80, cpu = 1, memory = "512Mi" }
      ingress         = "ALLOW_ALL" # IAM asks for an identity
      database_role   = "roles/datastore.user"
      timeout_seconds = 60
      publishes_votes = false
      ballot_keys     = false
      runs_tasks      = false
    }
    public = {
      description     = "Takes votes, answers with counts"
      size            = var.public_size
      ingress         = var.load_balancer == null ? "ALLOW_ALL" : "ALLOW_INTERNAL_AND_GCLB"
      database_role   = "roles/datastore.viewer"
      timeout_seconds = 60
      publishes_votes = true
      ballot_keys     = true
      runs_tasks      = false
    }
    run_task = {
      description     = "Runs the tasks that push queues send"
      size            = { min_instances = 0, max_instances = 10, concurrency = 100, cpu = 1, memory = "512Mi" }
      ingress         = "ALLOW_ALL" # IAM lets the queues' account in, and nobody else
      database_role   = "roles/datastore.user"
      timeout_seconds = 1800 # the longest that Cloud Tasks waits
      publishes_votes = false
      ballot_keys     = false
      runs_tasks      = true
    }
  }

  # What tally.config reads, on every part.
  environment = {
    TALLY_BACKEND                  = "cloud"
    TALLY_DATABASE                 = google_firestore_database.this.name
    TALLY_DEAD_LETTER_SUBSCRIPTION = google_pubsub_subscription.dead_letters.name
    TALLY_DEAD_LETTER_TOPIC        = google_pubsub_topic.dead_letters.name
    TALLY_PROJECT                  = var.project_id
    TALLY_STREAMS                  = tostring(var.streams)
    TALLY_SUBSCRIPTION             = google_pubsub_subscription.votes["0"].name
    TALLY_TOPIC                    = google_pubsub_topic.votes["0"].name
  }
  function_environment = merge(local.environment, {
    FUNCTION_USE_ASGI = "true" # the framework's own: serve the async target under uvicorn
    TALLY_BALLOT_KEY  = var.ballot_key
  })
  # Only `public` makes ballot ids, so it alone holds the keys: a file a version.
  ballot_keys_folder = "/etc/tally/ballot-keys"
}

resource "google_service_account" "function" {
  for_each     = local.functions
  account_id   = "${var.name}-${replace(each.key, "_", "-")}"
  display_name = "Runs the function ${each.key}"
  depends_on   = [terraform_data.services_settled]
}

resource "google_project_iam_member" "function_database" {
  for_each = local.functions
  project  = var.project_id
  role     = each.value.database_role
  member   = google_service_account.function[each.key].member

  condition {
    title      = local.database_condition.title
    expression = local.database_condition.expression
  }
}

# Accounts and grants are seen everywhere only after a while; a first revision that starts before that fails.
resource "terraform_data" "grants_settled" {
  triggers_replace = sort(concat(
    [google_service_account.worker.email],
    [for a in google_service_account.function : a.email],
    google_service_account.task_worker[*].email,
  ))
  depends_on = [
    google_artifact_registry_repository_iam_member.builder_writes,
    google_cloud_tasks_queue_iam_member.enqueuer,
    google_project_iam_member.builder_logs,
    google_project_iam_member.builder_reads_copies,
    google_project_iam_member.function_database,
    google_project_iam_member.task_worker_database,
    google_project_iam_member.worker_database,
    google_pubsub_subscription_iam_member.votes_worker,
    google_pubsub_topic_iam_member.dead_letters_worker,
    google_pubsub_topic_iam_member.votes_publisher,
    google_secret_manager_secret_iam_member.ballot_keys_reader,
    google_service_account_iam_member.sends_as_tasks,
    google_storage_bucket_iam_member.builder_reads_source,
  ]

  provisioner "local-exec" {
    command = "sleep ${var.settle_seconds}"
  }
}

resource "google_cloudfunctions2_function" "this" {
  #checkov:skip=CKV_GCP_124:voters and pollsters come from the internet; IAM guards admin, the load balancer public where there is one
  for_each    = local.functions
  name        = "${var.name}-${replace(each.key, "_", "-")}"
  location    = var.region
  description = each.value.description
  labels      = local.labels

  build_config {
    runtime           = "python313"
    entry_point       = each.key
    service_account   = google_service_account.builder.id
    docker_repository = google_artifact_registry_repository.this["functions"].id
    source {
      storage_source {
        bucket = google_storage_bucket.source.name
        object = google_storage_bucket_object.source.name
      }
    }
  }
  service_config {
    available_cpu                    = tostring(each.value.size.cpu)
    available_memory                 = each.value.size.memory
    min_instance_count               = each.value.size.min_instances
    max_instance_count               = each.value.size.max_instances
    max_instance_request_concurrency = each.value.size.concurrency
    timeout_seconds                  = each.value.timeout_seconds
    ingress_settings                 = each.value.ingress
    all_traffic_on_latest_revision   = true
    service_account_email            = google_service_account.function[each.key].email
    environment_variables = merge(
      local.function_environment,
      each.value.ballot_keys ? { TALLY_BALLOT_KEYS = local.ballot_keys_folder } : {},
      each.value.runs_tasks ? local.task_environment : {},
    )

    dynamic "secret_volumes" {
      for_each = each.value.ballot_keys ? [local.ballot_keys_folder] : []
      content {
        mount_path = secret_volumes.value
        project_id = var.project_id
        secret     = google_secret_manager_secret.ballot_keys.secret_id

        dynamic "versions" {
          for_each = var.ballot_key_versions
          content {
            version = versions.value
            path    = versions.value
          }
        }
      }
    }
  }

  # Workers first: a worker lets a message of a newer format go, and a function that publishes it must not be ahead.
  depends_on = [
    google_cloud_run_v2_job.worker,
    google_cloud_run_v2_worker_pool.worker,
    google_pubsub_subscription.votes, # a topic without its subscription swallows votes
    terraform_data.grants_settled,
  ]
}

# A 2nd gen function is called through its Cloud Run service.
resource "google_cloud_run_v2_service_iam_member" "public" {
  count    = var.public ? 1 : 0
  name     = google_cloudfunctions2_function.this["public"].name
  location = google_cloudfunctions2_function.this["public"].location
  role     = "roles/run.invoker"
  member   = "allUsers"
}

resource "google_cloud_run_v2_service_iam_member" "admin" {
  for_each = var.admin_members
  name     = google_cloudfunctions2_function.this["admin"].name
  location = google_cloudfunctions2_function.this["admin"].location
  role     = "roles/run.invoker"
  member   = each.value
}
