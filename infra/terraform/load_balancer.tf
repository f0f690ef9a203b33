locals {
  load_balancer = var.load_balancer == null ? {} : { this = var.load_balancer }
}

# Limits count the address that Google's front end saw, never a header that the client may write.
resource "google_compute_security_policy" "this" {
  #checkov:skip=CKV_GCP_73:nothing here runs Java
  for_each   = local.load_balancer
  name       = "${var.name}-armor"
  depends_on = [terraform_data.services_settled]

  rule {
    action      = "rate_based_ban"
    priority    = 1000
    description = "Throttle each address; ban it at ten times the limit"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
    rate_limit_options {
      conform_action   = "allow"
      exceed_action    = "deny(429)"
      enforce_on_key   = "IP"
      ban_duration_sec = each.value.ban_seconds
      rate_limit_threshold {
        count        = each.value.requests_per_minute
        interval_sec = 60
      }
      ban_threshold {
        count        = each.value.requests_per_minute * 10
        interval_sec = 60
      }
    }
  }
  rule {
    action      = "allow"
    priority    = 2147483647
    description = "The default"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}

resource "google_compute_region_network_endpoint_group" "this" {
  for_each              = local.load_balancer
  name                  = "${var.name}-public"
  region                = var.region
  network_endpoint_type = "SERVERLESS"
  cloud_run {
    service = google_cloudfunctions2_function.this["public"].name
  }
}

resource "google_compute_backend_service" "this" {
  for_each              = local.load_balancer
  name                  = "${var.name}-public"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = google_compute_security_policy.this[each.key].id
  backend {
    group = google_compute_region_network_endpoint_group.this[each.key].id
  }
  log_config {
    enable      = true
    sample_rate = 0.01
  }
}

resource "google_compute_url_map" "this" {
  for_each        = local.load_balancer
  name            = "${var.name}-public"
  default_service = google_compute_backend_service.this[each.key].id
}

resource "google_compute_managed_ssl_certificate" "this" {
  for_each   = local.load_balancer
  name       = "${var.name}-${replace(each.value.domain, ".", "-")}" # a new domain is a new certificate
  depends_on = [terraform_data.services_settled]
  managed {
    domains = [each.value.domain]
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_target_https_proxy" "this" {
  for_each         = local.load_balancer
  name             = "${var.name}-public"
  url_map          = google_compute_url_map.this[each.key].id
  ssl_certificates = [google_compute_managed_ssl_certificate.this[each.key].id]
}

resource "google_compute_global_address" "this" {
  for_each   = local.load_balancer
  name       = "${var.name}-public"
  depends_on = [terraform_data.services_settled]
}

resource "google_compute_global_forwarding_rule" "this" {
  for_each              = local.load_balancer
  name                  = "${var.name}-public"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  target                = google_compute_target_https_proxy.this[each.key].id
  ip_address            = google_compute_global_address.this[each.key].id
  port_range            = "443"
}
