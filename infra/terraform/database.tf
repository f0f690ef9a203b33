locals {
  # Composite indexes, "-x" descending, as tally/tasks/keys.py declares them; a name of one's own is the map's key.
  indexes = {}
  # Kind → the property whose instant deletes the entity, within about a day; the code keeps it unindexed.
  ttl_fields = {
    Task     = "expire_at"
    TaskBlob = "expire_at"
    TaskRun  = "expire_at"
  }

  database_condition = {
    title      = "only-${google_firestore_database.this.name}"
    expression = "resource.name == \"projects/${var.project_id}/databases/${google_firestore_database.this.name}\""
  }
}

resource "google_firestore_database" "this" {
  name                              = coalesce(var.database, var.name)
  location_id                       = var.region
  type                              = "DATASTORE_MODE"
  concurrency_mode                  = "OPTIMISTIC" # every write is compare-and-swap: a lost race should fail at once, not wait
  delete_protection_state           = var.deletion_protection ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy                   = var.deletion_protection ? "PREVENT" : "DELETE" # the default, ABANDON, leaves it behind
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  depends_on                        = [terraform_data.services_settled]
}

resource "google_firestore_backup_schedule" "daily" {
  database  = google_firestore_database.this.name
  retention = "1209600s" # 14 days; point-in-time recovery covers the last 7

  daily_recurrence {}
}

resource "google_firestore_index" "this" {
  for_each    = local.indexes
  database    = google_firestore_database.this.name
  collection  = each.value.kind
  api_scope   = "DATASTORE_MODE_API"
  query_scope = "COLLECTION_RECURSIVE"

  dynamic "fields" {
    for_each = each.value.properties
    content {
      field_path = trimprefix(fields.value, "-")
      order      = startswith(fields.value, "-") ? "DESCENDING" : "ASCENDING"
    }
  }
}

resource "google_firestore_field" "ttl" {
  for_each   = local.ttl_fields
  database   = google_firestore_database.this.name
  collection = each.key
  field      = each.value

  ttl_config {}
}
