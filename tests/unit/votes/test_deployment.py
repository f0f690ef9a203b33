import pytest

from tally.votes.deployment import GIB, LARGEST_WORKER, Deployment, WorkerSize, worker_size


@pytest.mark.parametrize(
    ("gib", "size"),
    [
        (0, WorkerSize(1, 1)),
        (0.41, WorkerSize(1, 1)),
        (0.43, WorkerSize(1, 1.5)),
        (2.2, WorkerSize(1, 4)),
        (2.3, WorkerSize(2, 4.5)),
        (4.7, WorkerSize(4, 8.5)),
        (9.5, WorkerSize(6, 16.5)),
        (15, WorkerSize(8, 25.5)),
        (19, WorkerSize(8, 32)),
        (900, WorkerSize(8, 32)),
    ],
)
def test_a_worker_is_the_least_that_cloud_run_has_for_its_ledger(gib: float, size: WorkerSize) -> None:
    found = worker_size(gib * GIB)
    assert found == size
    assert found.ledger_bytes >= gib * GIB or found == LARGEST_WORKER


def test_the_variables_are_written_as_terraform_reads_them() -> None:
    deployment = Deployment(
        streams=2,
        workers=4,
        worker=WorkerSize(2, 4.5),
        instances=1_000_000,
        max_instances=2_000_000,
        concurrency=500,
    )
    assert deployment.tfvars.splitlines() == [
        "streams     = 2",
        "worker      = { instances = 4, cpu = 2, memory_gib = 4.5 }",
        "public_size = { min_instances = 1000000, max_instances = 2000000, concurrency = 500 }",
    ]
