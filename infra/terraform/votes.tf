# The stream of votes. No Pub/Sub dead-letter policy: after an outage it would take away good votes, as it counts
# deliveries and not reasons; the worker dead-letters by itself, with a reason. No ordering, no exactly-once delivery:
# a ballot is known by its own id, and copies in any order count once.
locals {
  # Number of a stream → the end of its names. Stream 0 has the bare ones.
  streams = { for k in range(coalesce(var.streams_kept, var.streams)) : tostring(k) => k == 0 ? "" : "-${k}" }
  # One that functions no longer publish to may be taken away once it is drained, so it is protected no more.
  stream_protected = { for k, _ in local.streams : k => var.deletion_protection && tonumber(k) < var.streams }
}

resource "google_pubsub_topic" "votes" {
  #checkov:skip=CKV_GCP_83:Google-managed encryption: the keys of a customer's own would be one more thing that can make votes unreadable
  for_each                   = local.streams
  name                       = "${var.name}-votes${each.value}"
  labels                     = local.labels
  message_retention_duration = "${var.retention_days * 86400}s" # a subscription made late is sought back to it
  deletion_policy            = local.stream_protected[each.key] ? "PREVENT" : "DELETE"
  depends_on                 = [terraform_data.services_settled]

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }
}

resource "google_pubsub_subscription" "votes" {
  for_each                   = local.streams
  name                       = "${var.name}-votes${each.value}"
  topic                      = google_pubsub_topic.votes[each.key].id
  labels                     = local.labels
  ack_deadline_seconds       = 10 # the worker extends it at half-time for what it holds
  message_retention_duration = "${var.retention_days * 86400}s"
  deletion_policy            = local.stream_protected[each.key] ? "PREVENT" : "DELETE"

  expiration_policy {
    ttl = "" # never; the default deletes it after 31 idle days
  }
  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }
}

resource "google_pubsub_topic_iam_member" "votes_publisher" {
  for_each = merge([
    for name, f in local.functions : { for k, _ in local.streams : "${name}/${k}" => { function = name, stream = k } }
    if f.publishes_votes
  ]...)
  topic  = google_pubsub_topic.votes[each.value.stream].name
  role   = "roles/pubsub.publisher"
  member = google_service_account.function[each.value.function].member
}

resource "google_pubsub_subscription_iam_member" "votes_worker" {
  for_each     = local.streams
  subscription = google_pubsub_subscription.votes[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.worker.member
}

# Deployments from before there were streams: nothing is replaced.
moved {
  from = google_pubsub_topic.votes
  to   = google_pubsub_topic.votes["0"]
}

moved {
  from = google_pubsub_subscription.votes
  to   = google_pubsub_subscription.votes["0"]
}

moved {
  from = google_pubsub_topic_iam_member.votes_publisher["public"]
  to   = google_pubsub_topic_iam_member.votes_publisher["public/0"]
}

moved {
  from = google_pubsub_subscription_iam_member.votes_worker
  to   = google_pubsub_subscription_iam_member.votes_worker["0"]
}
