# A national vote: 1,000,000 votes a minute (17,000 a second) for an hour, 60 million ballots in 20 partitions, behind a
# load balancer that throttles each address. Before it: make the poll with its expected votes, and look at quotas.
public         = true
retention_days = 31
load_balancer = {
  domain              = "vote.example.com"
  requests_per_minute = 120
}
worker = {
  instances  = 2
  cpu        = 2
  memory_gib = 8
}
public_size = {
  min_instances = 10
  max_instances = 100
}
