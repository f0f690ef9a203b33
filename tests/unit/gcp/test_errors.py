import pytest
from google.api_core.exceptions import RetryError, from_grpc_status
from google.auth.exceptions import RefreshError
from grpc import StatusCode

from tally.errors import Unavailable
from tally.gcp.errors import translate
from tests.unit.gcp.kinds import KINDS


def test_the_table_names_every_code_but_ok() -> None:
    assert set(KINDS) == set(StatusCode) - {StatusCode.OK}


@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
def test_a_code_becomes_its_kind_of_error_and_keeps_its_name(code: StatusCode) -> None:
    error = translate("commit", from_grpc_status(code, "why"))
    assert (type(error), error.status) == (KINDS[code], code.name)
    assert error.message == f"commit: {code.name}: why"


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (TimeoutError(), "DEADLINE_EXCEEDED"),
        (RefreshError("no token"), "UNAUTHENTICATED"),
        (RetryError("tired", cause=from_grpc_status(StatusCode.INTERNAL, "why")), "INTERNAL"),
        (RetryError("tired", cause=None), "UNKNOWN"),
    ],
)
def test_what_is_no_status_of_the_service_is_an_outage(raised: Exception, status: str) -> None:
    error = translate("lookup", raised)
    assert (type(error), error.status) == (Unavailable, status)
