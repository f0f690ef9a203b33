"""Tokens whose signature Cloud Run has checked and taken out: their claims are checked, and only where IAM guards."""

import base64
import json
import time

import pytest

from tally.errors import Forbidden, Unavailable
from tally.gcp.caller import OidcVerifier

AUDIENCE = "https://tally-run-task-1.us-central1.run.app"
REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
ACCOUNT = "tally-tasks@tally-demo.iam.gserviceaccount.com"


def token(**changed: object) -> str:
    claims = {
        "aud": AUDIENCE,
        "email": ACCOUNT,
        "email_verified": True,
        "exp": int(time.time()) + 60,
        "iat": int(time.time()),
        "iss": "https://accounts.google.com",
        **changed,
    }
    parts = [json.dumps({"alg": "RS256", "kid": "1", "typ": "JWT"}), json.dumps(claims)]
    return ".".join([*(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), REMOVED])


async def test_a_checked_token_names_its_account() -> None:
    assert await OidcVerifier(behind_iam=True).verify(token(), AUDIENCE) == ACCOUNT


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "https://another.run.app"},
        {"aud": None},
        {"exp": int(time.time()) - 60},
        {"exp": None},
        {"iss": "https://issuer.example"},
        {"email": None},
        {"email_verified": False},
    ],
)
async def test_its_claims_are_checked_all_the_same(changed: dict[str, object]) -> None:
    with pytest.raises(Forbidden):
        await OidcVerifier(behind_iam=True).verify(token(**changed), AUDIENCE)


@pytest.mark.parametrize("bad", [f".{REMOVED}", f"a.b.{REMOVED}", f"a.b.c.{REMOVED}"])
async def test_what_is_no_token_is_refused(bad: str) -> None:
    with pytest.raises(Forbidden):
        await OidcVerifier(behind_iam=True).verify(bad, AUDIENCE)


async def test_without_iam_anybody_could_write_it() -> None:
    verifier = OidcVerifier("127.0.0.1:1")  # where no keys are to be had: so it wants a signature
    with pytest.raises(Unavailable):
        await verifier.verify(token(), AUDIENCE)
