"""The sizes that Terraform deploys, as far as an event asks for them. A test compares them with infra/terraform.

A worker's memory comes in halves of a GiB, and Cloud Run gives at most four GiB to a vCPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

GIB = 2**30
# worker.tf: of a worker's memory so much is for the code and the messages held; of the rest this share is ledger.
CODE_GIB = 0.3
LEDGER_SHARE = 0.6
GIB_PER_VCPU = 4
VCPUS = (1, 2, 4, 6, 8)
MEMORY_STEP_GIB = 0.5
# The defaults of variables.tf.
WORKER_GIB = 1.0
MAX_INSTANCES = 10
CONCURRENCY = 250
CONCURRENCY_AT_MOST = 1_000
FUNCTION_GIB = 0.5
REQUEST_LOG_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class WorkerSize:
    vcpu: int
    memory_gib: float

    @property
    def ledger_bytes(self) -> int:
        """TALLY_LEDGER_MEMORY_BYTES of a worker of this size."""
        return int((self.memory_gib - CODE_GIB) * LEDGER_SHARE * GIB)


LARGEST_WORKER = WorkerSize(VCPUS[-1], float(VCPUS[-1] * GIB_PER_VCPU))


def worker_size(ledger_bytes: float) -> WorkerSize:
    """Return the default size, or the least that keeps more; the largest there is if that is not enough."""
    steps = ceil((ledger_bytes / GIB / LEDGER_SHARE + CODE_GIB) / MEMORY_STEP_GIB)
    memory = min(LARGEST_WORKER.memory_gib, max(WORKER_GIB, steps * MEMORY_STEP_GIB))
    return WorkerSize(next(vcpu for vcpu in VCPUS if vcpu * GIB_PER_VCPU >= memory), memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Values of Terraform's variables. `workers` are those of each stream; `instances` are kept warm."""

    streams: int
    workers: int
    worker: WorkerSize
    instances: int
    max_instances: int
    concurrency: int

    @property
    def tfvars(self) -> str:
        """The variables as a file of them has it."""
        worker = {"instances": self.workers, "cpu": self.worker.vcpu, "memory_gib": self.worker.memory_gib}
        public = {
            "min_instances": self.instances,
            "max_instances": self.max_instances,
            "concurrency": self.concurrency,
        }
        return f"streams     = {self.streams}\nworker      = {_object(worker)}\npublic_size = {_object(public)}"


def _object(values: Mapping[str, float]) -> str:
    return f"{{ {', '.join(f'{name} = {value:.10g}' for name, value in values.items())} }}"
