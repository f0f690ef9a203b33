# An evening show: 100,000 votes a minute (1,700 a second) for some hours, one worker all month.
public = true
worker = {
  memory_gib = 2
}
public_size = {
  min_instances = 1
  max_instances = 20
}
