# The ballot keys: one secret, each version a key that polls were made with. `make deploy` adds the first version;
# no key passes through Terraform, so none is in its state.
resource "google_secret_manager_secret" "ballot_keys" {
  secret_id           = "${var.name}-ballot-keys"
  labels              = local.labels
  deletion_protection = var.deletion_protection
  depends_on          = [terraform_data.services_settled]

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }
}

resource "google_secret_manager_secret_iam_member" "ballot_keys_reader" {
  for_each  = { for k, f in local.functions : k => f if f.ballot_keys }
  secret_id = google_secret_manager_secret.ballot_keys.secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.function[each.key].member
}
