output "admin_url" {
  description = "Address of the admin function; callers need an identity token."
  value       = google_cloudfunctions2_function.this["admin"].service_config[0].uri
}

output "ballot_keys_secret" {
  description = "Secret that holds the ballot keys."
  value       = google_secret_manager_secret.ballot_keys.secret_id
}

output "dead_letter_subscription" {
  description = "Subscription that holds the refused votes."
  value       = google_pubsub_subscription.dead_letters.id
}

output "environment" {
  description = "Settings with which `tally` commands work on this deployment."
  value       = local.environment
}

output "load_balancer_address" {
  description = "Address that the domain must point to; null without a load balancer."
  value       = one([for a in google_compute_global_address.this : a.address])
}

output "public_url" {
  description = "Address of the vote endpoint."
  value       = var.load_balancer == null ? google_cloudfunctions2_function.this["public"].service_config[0].uri : "https://${var.load_balancer.domain}"
}

output "task_worker" {
  description = "Name of the worker pool that runs the tasks of pull queues; null without one."
  value       = one(google_cloud_run_v2_worker_pool.task_worker[*].name)
}

output "topics" {
  description = "Topics of the streams, in their order."
  value       = [for k in range(length(local.streams)) : google_pubsub_topic.votes[tostring(k)].id]
}

output "workers" {
  description = "How votes are counted: the names of the worker pools or jobs, one a stream, in their order."
  value       = [for k in range(length(local.streams)) : local.worker_is_job ? google_cloud_run_v2_job.worker[tostring(k)].name : google_cloud_run_v2_worker_pool.worker[tostring(k)].name]
}
