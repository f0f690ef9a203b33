locals {
  repositories = {
    functions = { immutable = false, description = "Images that Cloud Functions builds" } # it moves its own tags
    images    = { immutable = true, description = "Worker images, tagged with the hash of their source" }
  }
}

resource "google_artifact_registry_repository" "this" {
  #checkov:skip=CKV_GCP_84:Google-managed encryption: the images hold no secret
  for_each      = local.repositories
  repository_id = "${var.name}-${each.key}"
  location      = var.region
  format        = "DOCKER"
  description   = each.value.description
  labels        = local.labels
  depends_on    = [terraform_data.services_settled]

  docker_config {
    immutable_tags = each.value.immutable
  }
  # Delete what is old, except the last ten: a roll-back finds its image.
  cleanup_policies {
    id     = "keep-last-10"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  cleanup_policies {
    id     = "delete-after-30-days"
    action = "DELETE"
    condition {
      older_than = "2592000s"
    }
  }
}

resource "google_artifact_registry_repository_iam_member" "builder_writes" {
  for_each   = google_artifact_registry_repository.this
  repository = each.value.name
  location   = each.value.location
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}
