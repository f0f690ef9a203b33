"""Google Cloud's list prices in US dollars, autumn 2026: the one table that every estimate takes.

No free tier, no discount. The prices are us-central1's; `REGIONS` says how much more a region costs. Pages under
cloud.google.com that list them: /run/pricing (pools, jobs, request-based services, both tiers), /pubsub/pricing (the
same everywhere), /firestore/pricing (a list for each location: where `datastore_listed` is false its price was not
looked up, and the estimate takes the careful side), /vpc/network-pricing (answers to the internet, at the price of
Europe and North America, whoever asks), /armor/pricing, /stackdriver/pricing (logs, alerts), /scheduler/pricing,
/secret-manager/pricing, /artifact-registry/pricing.
"""

from dataclasses import dataclass

POOL_VCPU, POOL_GIB = 0.000011244, 0.000001235  # a second, worker pools
JOB_VCPU, JOB_GIB = 0.000018, 0.000002  # a second, jobs; a run is at least a minute
SERVED_VCPU, SERVED_GIB, IDLE = 0.000024, 0.0000025, 0.0000025  # a second, request-based; idle: vCPU and GiB alike
REQUESTS = 0.40 / 1e6
PUBSUB_BYTE = 40 / 2**40
PUBSUB_LEAST_BYTES = 1_000  # a request, published or pulled, costs at least as much as this
READ, WRITE, DELETE, STORED_GIB = 0.03 / 1e5, 0.09 / 1e5, 0.01 / 1e5, 0.15
EGRESS_GIB, BALANCED_GIB, FORWARDING_HOUR = 0.12, 0.008, 0.025
ARMOR_POLICY, ARMOR_RULE, ARMOR_REQUESTS = 5.0, 1.0, 0.75 / 1e6
ALERT, SCHEDULE, KEY_VERSION, IMAGE_GIB, LOG_GIB = 0.10, 0.10, 0.06, 0.10, 0.50

TIER_2 = 1.4  # $0.0000336 for a vCPU second that serves
DATASTORE_AT_MOST = 1.5
_TIER_1_REGIONS = (
    "asia-east1 asia-northeast1 asia-northeast2 europe-north1 europe-southwest1 europe-west1 europe-west4 europe-west8 "
    "europe-west9 me-west1 us-central1 us-east1 us-east4 us-east5 us-south1 us-west1"
)
_TIER_2_REGIONS = (
    "africa-south1 asia-east2 asia-northeast3 asia-south1 asia-south2 asia-southeast1 asia-southeast2 "
    "australia-southeast1 australia-southeast2 europe-central2 europe-west2 europe-west3 europe-west6 europe-west10 "
    "europe-west12 me-central1 me-central2 northamerica-northeast1 northamerica-northeast2 southamerica-east1 "
    "southamerica-west1 us-west2 us-west3 us-west4"
)
_DATASTORE = {"us-central1": 1.0, "us-west1": 1.0, "us-west2": 1.2, "europe-west1": 1.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What its CPU and memory of Cloud Run, and its Datastore, cost as a multiple of us-central1's."""

    run: float
    datastore: float
    datastore_listed: bool


def _regions(names: str, run: float) -> dict[str, Region]:
    return {
        name: Region(run=run, datastore=_DATASTORE.get(name, DATASTORE_AT_MOST), datastore_listed=name in _DATASTORE)
        for name in names.split()
    }


REGIONS = _regions(_TIER_1_REGIONS, 1.0) | _regions(_TIER_2_REGIONS, TIER_2)
