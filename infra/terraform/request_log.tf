# Cloud Run logs every request, and of an event the log of the votes that were taken would be the dearest part. Metrics
# count them all without it. What went wrong (4xx, 5xx) is always kept, as is all that the code logs.
resource "google_logging_project_exclusion" "public_requests" {
  count       = var.request_log_share < 1 ? 1 : 0
  name        = "${var.name}-public-requests"
  description = "Requests to ${local.public_name} that went well, but for a share of ${var.request_log_share}"
  filter = join(" AND ", concat(
    [
      "logName = \"projects/${var.project_id}/logs/run.googleapis.com%2Frequests\"",
      "resource.type = \"cloud_run_revision\"",
      "resource.labels.service_name = \"${local.public_name}\"",
      "httpRequest.status >= 200",
      "httpRequest.status < 400",
    ],
    var.request_log_share > 0 ? [format("sample(insertId, %.4f)", 1 - var.request_log_share)] : [],
  ))
  depends_on = [terraform_data.services_settled]
}
