# The stream of votes. No Pub/Sub dead-letter policy: after an outage it would take away good votes, as it counts
# deliveries and not reasons; the worker dead-letters by itself, with a reason. No ordering, no exactly-once delivery:
# a ballot is known by its own id, and copies in any order count once.
resource "google_pubsub_topic" "votes" {
  #checkov:skip=CKV_GCP_83:Google-managed encryption: the keys of a customer's own would be one more thing that can make votes unreadable
  name                       = "${var.name}-votes"
  labels                     = local.labels
  message_retention_duration = "${var.retention_days * 86400}s" # a subscription made late is sought back to it
  deletion_policy            = var.deletion_protection ? "PREVENT" : "DELETE"
  depends_on                 = [terraform_data.services_settled]

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }
}

resource "google_pubsub_subscription" "votes" {
  name                       = "${var.name}-votes"
  topic                      = google_pubsub_topic.votes.id
  labels                     = local.labels
  ack_deadline_seconds       = 10 # the worker extends it at half-time for what it holds
  message_retention_duration = "${var.retention_days * 86400}s"
  deletion_policy            = var.deletion_protection ? "PREVENT" : "DELETE"

  expiration_policy {
    ttl = "" # never; the default deletes it after 31 idle days
  }
  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }
}

resource "google_pubsub_topic_iam_member" "votes_publisher" {
  for_each = { for k, f in local.functions : k => f if f.publishes_votes }
  topic    = google_pubsub_topic.votes.name
  role     = "roles/pubsub.publisher"
  member   = google_service_account.function[each.key].member
}

resource "google_pubsub_subscription_iam_member" "votes_worker" {
  subscription = google_pubsub_subscription.votes.name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.worker.member
}
