variable "admin_members" {
  description = "Who may call the admin function, as IAM members, beside those whose role on the project allows it."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for m in var.admin_members : can(regex("^(user|group|serviceAccount|principal|principalSet):.+$", m))])
    error_message = "Every entry must be user:…, group:…, serviceAccount:…, principal:… or principalSet:…; the admin function is never open to allUsers."
  }
}

variable "alert_emails" {
  description = "Addresses that receive the alerts."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for a in var.alert_emails : can(regex("^[^@\\s]+@[^@\\s]+$", a))])
    error_message = "Every entry must be an e-mail address."
  }
}

variable "ballot_key" {
  description = "Version of the ballot key that new polls take. To rotate: add the version to ballot_key_versions, apply, then name it here."
  type        = string
  default     = "1"
  nullable    = false

  validation {
    condition     = contains(var.ballot_key_versions, var.ballot_key)
    error_message = "ballot_key must be one of ballot_key_versions."
  }
}

variable "ballot_key_versions" {
  description = "Versions of the ballot key's secret that the functions hold: every one that a poll was made with, for as long as the poll takes votes."
  type        = list(string)
  default     = ["1"]
  nullable    = false

  validation {
    condition     = length(var.ballot_key_versions) > 0 && alltrue([for v in var.ballot_key_versions : can(regex("^[1-9][0-9]*$", v))])
    error_message = "Name at least one version, by number; \"latest\" would change under the polls."
  }
}

variable "database" {
  description = "Id of the database; null for the prefix. Another one is named after a restore, which makes a new database."
  type        = string
  default     = null

  validation {
    condition     = var.database == null || can(regex("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.database))
    error_message = "4 to 63 characters: lower-case letters, digits and hyphens, starting with a letter."
  }
}

variable "deletion_protection" {
  description = "Refuse to destroy or replace what holds votes: database, topics, subscriptions, ballot keys; and the worker."
  type        = bool
  default     = true
  nullable    = false
}

variable "load_balancer" {
  description = "Put an HTTPS load balancer with Cloud Armor before the public function; null for none. An address over its requests a minute gets 429, and is banned for ban_seconds at ten times that."
  type = object({
    domain              = string
    requests_per_minute = optional(number, 120)
    ban_seconds         = optional(number, 600)
  })
  default = null

  validation {
    condition     = var.load_balancer == null || can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.load_balancer.domain))
    error_message = "domain must be a host name, such as vote.example.com."
  }
  validation {
    condition     = var.load_balancer == null || try(var.load_balancer.requests_per_minute >= 1 && var.load_balancer.requests_per_minute <= 10000, false)
    error_message = "requests_per_minute is from 1 to 10,000."
  }
}

variable "name" {
  description = "Prefix of every resource name."
  type        = string
  default     = "tally"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,18}[a-z0-9]$", var.name))
    error_message = "4 to 20 characters: lower-case letters, digits and hyphens, starting with a letter."
  }
}

variable "project_id" {
  description = "Project that holds everything."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "A project id has 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "project_number" {
  description = "The project's number, which is part of the functions' addresses."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[1-9][0-9]{5,18}$", var.project_number))
    error_message = "The number of the project, as `gcloud projects describe` shows it."
  }
}

variable "public" {
  description = "Let anyone call the vote endpoint, without a Google identity."
  type        = bool
  default     = false
  nullable    = false
}

variable "public_size" {
  description = "Size of the public function: one instance serves a few thousand single votes a second."
  type = object({
    min_instances = optional(number, 0)
    max_instances = optional(number, 10)
    concurrency   = optional(number, 250)
    cpu           = optional(number, 1)
    memory        = optional(string, "512Mi")
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.public_size.concurrency > 1 && var.public_size.concurrency <= 1000
    error_message = "concurrency is from 2 to 1,000: votes that arrive together share one publish."
  }
  validation {
    condition     = var.public_size.cpu >= 1
    error_message = "Cloud Run serves more than one request at a time only with at least 1 vCPU."
  }
  validation {
    condition     = var.public_size.min_instances >= 0 && var.public_size.max_instances >= max(1, var.public_size.min_instances)
    error_message = "max_instances is at least 1 and at least min_instances."
  }
}

variable "push_queues" {
  description = "Cloud Tasks queues that send tasks to the function run_task, by the name that the code uses."
  type = map(object({
    dispatches_per_second = optional(number, 100)
    concurrent            = optional(number, 100)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name in keys(var.push_queues) : can(regex("^[A-Za-z0-9-]{1,100}$", name))])
    error_message = "A queue's name has 1 to 100 letters, digits and hyphens."
  }
  validation {
    condition     = alltrue([for q in var.push_queues : q.dispatches_per_second > 0 && q.dispatches_per_second <= 500])
    error_message = "Cloud Tasks dispatches up to 500 tasks a second from one queue."
  }
}

variable "region" {
  description = "Region of every regional resource, and of the database."
  type        = string
  default     = "us-central1"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "A region looks like us-central1."
  }
}

variable "request_log_share" {
  description = "Share of the votes function's requests that went well whose log entries are kept, from 0 (none) to 1 (all, at some $0.50 for a million); those that failed always are."
  type        = number
  default     = 0.01 # shows who calls and how; the rest tells nothing that metrics do not, and is a list of voters' addresses and times
  nullable    = false

  validation {
    condition     = var.request_log_share >= 0 && var.request_log_share <= 1 && (var.request_log_share == 0 || var.request_log_share >= 0.0001)
    error_message = "request_log_share is 0, or from 0.0001 to 1."
  }
}

variable "retention_days" {
  description = "How long topics and subscriptions keep votes that no worker has counted yet."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.retention_days >= 7 && var.retention_days <= 31
    error_message = "Votes are kept 7 to 31 days: shorter than a long weekend loses votes, longer than 31 days Pub/Sub does not keep them."
  }
}

variable "settle_seconds" {
  description = "Pause after APIs are enabled and after accounts and grants are made, as both take a while to be seen everywhere; 0 for a dry run."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.settle_seconds >= 0 && var.settle_seconds <= 600
    error_message = "settle_seconds is from 0 to 600."
  }
}

variable "source_archive" {
  description = "Path of the functions' source zip, as infra/package.py makes it."
  type        = string
  nullable    = false

  validation {
    condition     = endswith(var.source_archive, ".zip")
    error_message = "The source archive must be a .zip file."
  }
}

variable "streams" {
  description = "Streams that the functions publish votes to, each with a topic, a subscription and workers of its own: see functions/tally/votes/SCALE.md. More are added freely; before there may be fewer, set streams_kept to what it was."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.streams >= 1 && var.streams <= 64 && floor(var.streams) == var.streams
    error_message = "streams is a whole number from 1 to 64."
  }
}

variable "streams_kept" {
  description = "Streams that are there, at least as many as streams; null means just as many. Those beyond streams get no more votes and are counted to their end: lower it only when they are drained."
  type        = number
  default     = null

  validation {
    condition     = coalesce(var.streams_kept, var.streams) >= var.streams && coalesce(var.streams_kept, 1) <= 64 && floor(coalesce(var.streams_kept, 1)) == coalesce(var.streams_kept, 1)
    error_message = "streams_kept is a whole number up to 64, and not below streams: functions would publish to topics that are gone."
  }
}

variable "task_modules" {
  description = "Python modules, beside main.py in functions/, whose import registers task functions."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for m in var.task_modules : can(regex("^[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)*$", m))])
    error_message = "A module is named like shop.tasks."
  }
}

variable "task_worker" {
  description = "A pool of instances that run the tasks of pull queues (queue → weight), beside the worker that counts votes; null for none. Concurrency is MIN:MAX tasks an instance; strict takes from a lighter queue only what the heavier ones leave."
  type = object({
    queues      = map(number)
    instances   = optional(number, 1)
    cpu         = optional(number, 1)
    memory_gib  = optional(number, 0.5)
    concurrency = optional(string, "4:100")
    strict      = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.task_worker == null || try(length(var.task_worker.queues) > 0 && alltrue([for q, w in var.task_worker.queues : can(regex("^[A-Za-z0-9-]{1,100}$", q)) && w >= 1 && w <= 100 && floor(w) == w]), false)
    error_message = "Name at least one queue (1 to 100 letters, digits and hyphens), each with a whole weight from 1 to 100."
  }
  validation {
    condition     = var.task_worker == null || length(setintersection(keys(try(var.task_worker.queues, {})), keys(var.push_queues))) == 0
    error_message = "A queue is pushed or pulled: none of these may be in push_queues too."
  }
  validation {
    condition     = var.task_worker == null || try(var.task_worker.instances >= 0 && var.task_worker.instances <= 100 && floor(var.task_worker.instances) == var.task_worker.instances, false)
    error_message = "instances is a whole number from 0 to 100."
  }
  validation {
    condition     = var.task_worker == null || try(contains([1, 2, 4, 6, 8], var.task_worker.cpu) && var.task_worker.memory_gib >= 0.5 && var.task_worker.memory_gib <= 4 * var.task_worker.cpu, false)
    error_message = "cpu is 1, 2, 4, 6 or 8, memory_gib from 0.5 to 4 times that."
  }
  validation {
    condition     = var.task_worker == null || can(regex("^[1-9][0-9]{0,2}(:[1-9][0-9]{0,2})?$", var.task_worker.concurrency))
    error_message = "concurrency is MIN:MAX, such as 4:100."
  }
}

variable "worker" {
  description = "The worker: a pool of instances that run all the time, or, with a schedule (cron), a job that counts what waits and ends. Memory: 0.3 GiB and 67 bytes a ballot of the polls that take votes (40 as they are kept, the rest to load them). The count is only the first one: `make scale` changes it."
  type = object({
    instances  = optional(number, 1)
    cpu        = optional(number, 1)
    memory_gib = optional(number, 1)
    schedule   = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.worker.instances >= 0 && var.worker.instances <= 4 && floor(var.worker.instances) == var.worker.instances
    error_message = "instances is a whole number from 0 to 4: more than 4 workers on one subscription get in each other's way."
  }
  validation {
    condition     = contains([1, 2, 4, 6, 8], var.worker.cpu)
    error_message = "A worker has 1, 2, 4, 6 or 8 vCPU."
  }
  validation {
    condition     = var.worker.memory_gib >= 0.5 && var.worker.memory_gib <= 4 * var.worker.cpu && var.worker.memory_gib <= 32
    error_message = "memory_gib is from 0.5 to 4 times the vCPU, at most 32."
  }
  validation {
    condition     = var.worker.memory_gib >= lookup({ 4 = 2, 6 = 4, 8 = 4 }, var.worker.cpu, 0.5)
    error_message = "Cloud Run gives 4 vCPU only with 2 GiB or more, 6 and 8 vCPU with 4 GiB or more."
  }
  validation {
    condition     = var.worker.schedule == null || can(regex("^\\S+ \\S+ \\S+ \\S+ \\S+$", var.worker.schedule))
    error_message = "schedule has five cron fields, such as \"*/10 * * * *\"."
  }
}

variable "worker_image" {
  description = "The worker's image by digest: registry/name@sha256:…"
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^@\\s]+@sha256:[0-9a-f]{64}$", var.worker_image))
    error_message = "Name the worker image by digest, so that a roll-back gets the same bytes."
  }
}
