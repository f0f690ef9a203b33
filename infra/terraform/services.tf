# APIs come first: everything depends on them, directly or through an account, topic, bucket or registry.
locals {
  labels = { app = var.name }
  services = toset(concat([
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudtasks.googleapis.com",
    "datastore.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
    ],
    var.worker.schedule == null ? [] : ["cloudscheduler.googleapis.com"],
    var.load_balancer == null ? [] : ["compute.googleapis.com"],
  ))
}

resource "google_project_service" "this" {
  for_each           = local.services
  project            = var.project_id
  service            = each.value
  disable_on_destroy = false # other things in the project may need it
}

# An API answers for its service agent and quota some seconds after it is enabled.
resource "terraform_data" "services_settled" {
  triggers_replace = sort([for s in google_project_service.this : s.service])

  provisioner "local-exec" {
    command = "sleep ${var.settle_seconds}"
  }
}
