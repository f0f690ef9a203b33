# What the worker refused, each with its reason. `tally dead-letters` lists and replays them.
resource "google_pubsub_topic" "dead_letters" {
  #checkov:skip=CKV_GCP_83:Google-managed encryption: the keys of a customer's own would be one more thing that can make votes unreadable
  name                       = "${var.name}-votes-dead"
  labels                     = local.labels
  message_retention_duration = "2678400s"
  deletion_policy            = var.deletion_protection ? "PREVENT" : "DELETE"
  depends_on                 = [terraform_data.services_settled]

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }
}

# A topic without a subscription drops what is published to it.
resource "google_pubsub_subscription" "dead_letters" {
  name                       = "${var.name}-votes-dead"
  topic                      = google_pubsub_topic.dead_letters.id
  labels                     = local.labels
  ack_deadline_seconds       = 60
  message_retention_duration = "2678400s" # 31 days, the longest there is
  deletion_policy            = var.deletion_protection ? "PREVENT" : "DELETE"

  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_topic_iam_member" "dead_letters_worker" {
  topic  = google_pubsub_topic.dead_letters.name
  role   = "roles/pubsub.publisher"
  member = google_service_account.worker.member
}
