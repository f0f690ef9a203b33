# A club, a class, a test: a job counts the votes once an hour and ends, so that idle it costs cents.
# While a vote runs, `schedule = "*/5 * * * *"` gives counts that are never older than that.
public = true
worker = {
  schedule   = "0 * * * *"
  memory_gib = 0.5
}
public_size = {
  max_instances = 2
}
