"""Google Cloud's list prices in US dollars, us-central1, November 2026: the one table that every estimate takes.

No free tier, no discount. Other regions cost 0 to 50 % more, so the estimates that name a region name this one.
"""

POOL_VCPU, POOL_GIB = 0.000011244, 0.000001235  # a second, worker pools
JOB_VCPU, JOB_GIB = 0.000018, 0.000002  # a second, jobs; a run is at least a minute
SERVED_VCPU, SERVED_GIB, IDLE = 0.000024, 0.0000025, 0.0000025  # a second, request-based; idle: vCPU and GiB alike
REQUESTS = 0.40 / 1e6
PUBSUB_BYTE = 40 / 2**40
PUBSUB_LEAST_BYTES = 1_000  # a request, published or pulled, costs at least as much as this
READ, WRITE, DELETE, STORED_GIB = 0.03 / 1e5, 0.09 / 1e5, 0.01 / 1e5, 0.15
EGRESS_GIB, BALANCED_GIB, FORWARDING_HOUR = 0.12, 0.008, 0.025
ARMOR_POLICY, ARMOR_RULE, ARMOR_REQUESTS = 5.0, 1.0, 0.75 / 1e6
ALERT, SCHEDULE, KEY_VERSION, IMAGE_GIB = 0.10, 0.10, 0.06, 0.10
