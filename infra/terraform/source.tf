# The functions' source, and the account that builds functions and the worker's image.
resource "google_service_account" "builder" {
  account_id   = "${var.name}-builder"
  display_name = "Builds the functions and the worker image"
  depends_on   = [terraform_data.services_settled]
}

resource "google_storage_bucket" "source" {
  #checkov:skip=CKV_GCP_62:holds only source archives, which the builder alone reads; audit logs tell who wrote
  name                        = "${var.project_id}-${var.name}-source"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # holds nothing that a build does not make again
  labels                      = local.labels
  depends_on                  = [terraform_data.services_settled]

  versioning {
    enabled = true
  }
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      num_newer_versions = 5
    }
  }
}

resource "google_storage_bucket_object" "source" {
  bucket = google_storage_bucket.source.name
  name   = "functions-${filesha256(var.source_archive)}.zip" # a new name redeploys
  source = var.source_archive
}

resource "google_storage_bucket_iam_member" "builder_reads_source" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member
}

# Cloud Functions copies the source to a bucket of its own, which exists only after the first function.
resource "google_project_iam_member" "builder_reads_copies" {
  project = var.project_id
  role    = "roles/storage.objectViewer"
  member  = google_service_account.builder.member

  condition {
    title      = "only-function-sources"
    expression = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-\") || resource.name.startsWith(\"projects/_/buckets/gcf-v2-uploads-\")"
  }
}

resource "google_project_iam_member" "builder_logs" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}
