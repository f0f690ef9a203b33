locals {
  public_name = google_cloudfunctions2_function.this["public"].name

  # Where a part's log lines are found.
  logs = {
    public = { resource = "cloud_run_revision", label = "service_name", name = "\"${var.name}-public\"" }
    worker = {
      resource = local.worker_is_job ? "cloud_run_job" : "cloud_run_worker_pool"
      label    = local.worker_is_job ? "job_name" : "worker_pool_name"
      name     = length(local.streams) == 1 ? "\"${var.name}-worker\"" : "(${join(" OR ", [for k, end in local.streams : "\"${var.name}-worker${end}\""])})"
    }
    run_task    = { resource = "cloud_run_revision", label = "service_name", name = "\"${local.run_task_name}\"" }
    task_worker = { resource = "cloud_run_worker_pool", label = "worker_pool_name", name = "\"${local.task_worker_name}\"" }
  }
  # Parts whose events are watched: those of tasks where there are queues.
  watched = concat(["public", "worker"], length(var.push_queues) > 0 ? ["run_task"] : [], local.runs_pull_queues ? ["task_worker"] : [])
  # Events in the log that are counted: an action's name is the one that the code logs.
  events = { for k, e in local.all_events : k => e if contains(local.watched, e.part) }
  all_events = {
    commit_errors    = { title = "Commits that failed", part = "worker", actions = ["commit-failed", "commit-rejected"] }
    parked           = { title = "Partitions parked", part = "worker", actions = ["lane-parked", "dead-letter-rejected"] }
    publish_errors   = { title = "Publishes that failed", part = "public", actions = ["publish-failed", "clock-is-off"] }
    pulled_late      = { title = "Pull queues behind (half minutes)", part = "task_worker", actions = ["queue-behind"] }
    pulled_parked    = { title = "Tasks given up, pulled", part = "task_worker", actions = ["task-parked", "task-dead"] }
    pushed_parked    = { title = "Tasks given up, pushed", part = "run_task", actions = ["task-parked"] }
    worker_unhealthy = { title = "Workers in trouble", part = "worker", actions = ["guard-probe-failed", "worker-unhealthy"] }
  }

  stream_waiting = { for k, s in google_pubsub_subscription.votes : k => "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = \"${s.name}\"" }
  votes_waiting  = length(local.streams) == 1 ? local.stream_waiting["0"] : "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = one_of(${join(", ", [for k, s in google_pubsub_subscription.votes : "\"${s.name}\""])})"
  dead_waiting   = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = \"${google_pubsub_subscription.dead_letters.name}\""
  public_served  = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${local.public_name}\""
  event_counted  = { for k, e in local.events : k => "resource.type = \"${local.logs[e.part].resource}\" AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.event[k].name}\"" }

  # The first stream's has no number, as where there is one.
  backlog_alerts = {
    for k, waiting in local.stream_waiting : k == "0" ? "backlog_age" : "backlog_age_${k}" => {
      title    = k == "0" ? "votes wait too long" : "votes of stream ${k} wait too long"
      filter   = "${waiting} AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      aligner  = "ALIGN_MAX"
      above    = local.worker_is_job ? 7200 : 120
      duration = "300s"
      help     = "The oldest vote waits. No vote is lost before its ${var.retention_days} days are over. Do workers run, and is the store well (see the worker's log: commit-failed, pull-failed)? If both are, there are too few: `make scale WORKERS=n`."
    }
  }
  # Of an event that is not watched there is no alert either.
  alerts = { for k, a in local.all_alerts : k => a if a.filter != null }
  all_alerts = merge(local.backlog_alerts, {
    commit_errors = {
      title    = "commits fail"
      filter   = local.event_counted["commit_errors"]
      aligner  = "ALIGN_DELTA"
      above    = 20
      duration = "300s"
      help     = "Some failed commits are normal: they are tried again. Many for minutes mean an outage of the database, or a quota: the log's `problem` says which. Nothing need be done for the votes; they wait."
    }
    dead_letters = {
      title    = "votes were refused"
      filter   = "${local.dead_waiting} AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
      aligner  = "ALIGN_MAX"
      above    = 0
      duration = "60s"
      help     = "Each refused vote is kept, with its reason, for 31 days: `tally dead-letters list`. Votes that were late by a wrong clock, or whose poll came late, are replayed: `tally dead-letters replay --reason REASON`."
    }
    parked = {
      title    = "a partition is parked"
      filter   = local.event_counted["parked"]
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "0s"
      help     = "A partition failed five times in a row and waits; its votes come again and again until it is mended, the others go on. The log line `lane-parked` names poll, partition and problem."
    }
    public_errors = {
      title    = "the vote endpoint answers 5xx"
      filter   = "${local.public_served} AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
      aligner  = "ALIGN_DELTA"
      above    = 50
      duration = "120s"
      help     = "Voters get 503 and are told to come back: their votes are safe to send again. See the function's log: publish-failed, clock-is-off, request-failed; and whether max_instances is reached."
    }
    publish_errors = {
      title    = "publishes fail"
      filter   = local.event_counted["publish_errors"]
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "120s"
      help     = "The function cannot publish votes: an outage of Pub/Sub, a missing grant on the topic, or a clock that is off. Voters get 503 meanwhile."
    }
    pulled_late = {
      title    = "tasks wait too long in a pull queue"
      filter   = lookup(local.event_counted, "pulled_late", null)
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "240s"
      help     = "The first task of a queue is five minutes past its time, minute after minute. The log line `queue-behind` names the queue. Do its tasks fail (`tally queue list QUEUE`), or are there too few workers? `gcloud run worker-pools update ${local.task_worker_name} --instances=n`. No task is lost."
    }
    pulled_parked = {
      title    = "tasks of a pull queue were given up"
      filter   = lookup(local.event_counted, "pulled_parked", null)
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "0s"
      help     = "A task was given up: past its retries, expired, fatal, or of no function that is known. It is kept with its last error: `tally task parked list` and `tally queue dead list QUEUE`. Once what failed is mended: `tally task parked replay --all` or `tally queue dead replay QUEUE --all`."
    }
    pushed_parked = {
      title    = "tasks of a push queue were given up"
      filter   = lookup(local.event_counted, "pushed_parked", null)
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "0s"
      help     = "A task was given up: past its retries, expired, fatal, or of no function that is known. It is kept with its last error: `tally task parked list`. Once what failed is mended: `tally task parked replay --all`."
    }
    worker_unhealthy = {
      title    = "a worker is in trouble"
      filter   = local.event_counted["worker_unhealthy"]
      aligner  = "ALIGN_DELTA"
      above    = 0
      duration = "60s"
      help     = "A worker moved nothing for 30 s although it holds votes, evicts partitions that it needs (give it more memory), or cannot prove that the database guards versions (it does not count then). Its log says which."
    }
  })

  charts = [
    { title = "Votes that wait", filter = "${local.votes_waiting} AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"", aligner = "ALIGN_MEAN" },
    { title = "Age of the oldest vote (s)", filter = "${local.votes_waiting} AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\"", aligner = "ALIGN_MAX" },
    { title = "Refused votes (messages)", filter = "${local.dead_waiting} AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"", aligner = "ALIGN_MAX" },
    { title = "Requests a second", filter = "${local.public_served} AND metric.type = \"run.googleapis.com/request_count\"", aligner = "ALIGN_RATE" },
    { title = "Function instances", filter = "${local.public_served} AND metric.type = \"run.googleapis.com/container/instance_count\"", aligner = "ALIGN_MAX" },
  ]
  event_charts = [for k, e in local.events : { title = e.title, filter = local.event_counted[k], aligner = "ALIGN_DELTA" }]
}

resource "google_logging_metric" "event" {
  for_each    = local.events
  name        = "${var.name}/${each.key}"
  description = each.value.title
  filter      = "resource.type = \"${local.logs[each.value.part].resource}\" AND resource.labels.${local.logs[each.value.part].label} = ${local.logs[each.value.part].name} AND jsonPayload.action = (${join(" OR ", [for a in each.value.actions : "\"${a}\""])})"
  depends_on  = [terraform_data.services_settled]

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

# A new metric cannot be used in an alert for some seconds.
resource "terraform_data" "metrics_settled" {
  triggers_replace = sort([for m in google_logging_metric.event : m.name])

  provisioner "local-exec" {
    command = "sleep ${var.settle_seconds}"
  }
}

resource "google_monitoring_notification_channel" "email" {
  for_each     = var.alert_emails
  display_name = "${var.name}: ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }
  depends_on   = [terraform_data.services_settled]
}

resource "google_monitoring_alert_policy" "this" {
  for_each              = local.alerts
  display_name          = "${var.name}: ${each.value.title}"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = [for c in google_monitoring_notification_channel.email : c.id]
  user_labels           = local.labels
  depends_on            = [terraform_data.metrics_settled]

  conditions {
    display_name = each.value.title
    condition_threshold {
      filter          = each.value.filter
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = each.value.duration
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = each.value.aligner
        cross_series_reducer = each.value.aligner == "ALIGN_MAX" ? "REDUCE_MAX" : "REDUCE_SUM"
      }
      trigger {
        count = 1
      }
    }
  }
  documentation {
    content   = each.value.help
    mime_type = "text/markdown"
  }
}

resource "google_monitoring_dashboard" "this" {
  dashboard_json = jsonencode({
    displayName = "${var.name}: votes"
    mosaicLayout = {
      columns = 48
      tiles = [for i, c in concat(local.charts, local.event_charts) : {
        xPos   = (i % 3) * 16
        yPos   = floor(i / 3) * 16
        width  = 16
        height = 16
        widget = {
          title = c.title
          xyChart = {
            dataSets = [{
              plotType = "LINE"
              timeSeriesQuery = {
                timeSeriesFilter = {
                  filter      = c.filter
                  aggregation = { alignmentPeriod = "60s", perSeriesAligner = c.aligner }
                }
              }
            }]
          }
        }
      }]
    }
  })
  depends_on = [terraform_data.metrics_settled]
}
