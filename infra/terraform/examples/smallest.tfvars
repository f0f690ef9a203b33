# A club, a class, a test: votes are counted every ten minutes by a job that runs for seconds. Idle, it costs cents.
public = true
worker = {
  schedule = "*/10 * * * *"
  memory   = "512Mi"
}
public_size = {
  max_instances = 2
}
