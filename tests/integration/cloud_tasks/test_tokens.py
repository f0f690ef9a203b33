"""Tokens are verified as a handler would: by google-auth, with the key that the emulator publishes."""

import asyncio
import time
from typing import Any

import google.auth.jwt
import pytest
import requests
from google.api_core.exceptions import InvalidArgument
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request
from google.oauth2 import id_token

from tests.integration.cloud_tasks.conftest import Start, Sut, Target

ACCOUNT = "caller@tally-local.iam.gserviceaccount.com"


async def verify(sut: Sut, header: str, audience: str) -> dict[str, Any]:
    """Return the claims of an Authorization header. Raises GoogleAuthError or ValueError."""
    kind, token = header.split(" ", 1)
    assert kind == "Bearer"

    def check() -> dict[str, Any]:
        with requests.Session() as session:
            url = f"http://{sut.address}/oauth2/v1/certs"
            return dict(id_token.verify_token(token, Request(session), audience, certs_url=url))

    return await asyncio.to_thread(check)


async def token_of(sut: Sut, target: Target, oidc: dict[str, str], path: str = "/run") -> str:
    await sut.create(target.url + path, http={"oidc_token": oidc})
    await sut.step()
    return target.seen[-1].headers["authorization"]


async def test_an_oidc_token_is_verified_by_google_auth(sut: Sut, target: Target) -> None:
    header = await token_of(sut, target, {"service_account_email": ACCOUNT, "audience": "https://tally.example"})
    claims = await verify(sut, header, "https://tally.example")
    assert (claims["email"], claims["email_verified"]) == (ACCOUNT, True)
    assert claims["iss"] == f"http://{sut.address}"
    assert claims["exp"] - claims["iat"] == 3_600
    assert abs(claims["iat"] - time.time()) < 60
    assert claims["sub"] == claims["azp"]


async def test_without_an_audience_it_is_the_whole_target_url(sut: Sut, target: Target) -> None:
    header = await token_of(sut, target, {"service_account_email": ACCOUNT}, "/run?poll=p")
    assert (await verify(sut, header, f"{target.url}/run?poll=p"))["email"] == ACCOUNT
    with pytest.raises(GoogleAuthError):
        await verify(sut, header, target.url)


async def test_a_forged_token_and_a_wrong_audience_are_not_verified(sut: Sut, target: Target, start: Start) -> None:
    header = await token_of(sut, target, {"service_account_email": ACCOUNT, "audience": "a"})
    with pytest.raises(GoogleAuthError):
        await verify(sut, header, "b")
    forged = header[:-12] + ("A" * 12 if header[-12:] != "A" * 12 else "B" * 12)
    with pytest.raises((GoogleAuthError, ValueError)):
        await verify(sut, forged, "a")
    other: Sut = await start()
    with pytest.raises((GoogleAuthError, ValueError)):
        await verify(other, header, "a")


async def test_the_key_is_found_by_discovery(sut: Sut, target: Target) -> None:
    header = await token_of(sut, target, {"service_account_email": ACCOUNT, "audience": "a"})
    document = await sut.get("/.well-known/openid-configuration")
    assert document["issuer"] == f"http://{sut.address}"
    async with sut.http.get(document["jwks_uri"]) as response:
        [key] = (await response.json())["keys"]
    assert key["kid"] == google.auth.jwt.decode_header(header.removeprefix("Bearer "))["kid"]
    assert (key["kty"], key["alg"], key["use"]) == ("RSA", "RS256", "sig")


async def test_tokens_are_reused_while_they_are_fresh(sut: Sut, target: Target) -> None:
    oidc = {"service_account_email": ACCOUNT, "audience": "a"}
    assert await token_of(sut, target, oidc) == await token_of(sut, target, oidc)
    assert await token_of(sut, target, oidc | {"audience": "b"}) != await token_of(sut, target, oidc)


async def test_an_oauth_token_is_a_placeholder(sut: Sut, target: Target) -> None:
    await sut.create(target.url, http={"oauth_token": {"service_account_email": ACCOUNT}})
    await sut.step()
    assert target.seen[0].headers["authorization"].startswith("Bearer ya29.emulator-")


async def test_the_queues_token_overrides_the_tasks(sut: Sut, target: Target) -> None:
    oidc = {"service_account_email": "queue@x.iam.gserviceaccount.com", "audience": "queue"}
    await sut.set_queue(http_target={"oidc_token": oidc})
    header = await token_of(sut, target, {"service_account_email": ACCOUNT, "audience": "task"})
    assert (await verify(sut, header, "queue"))["email"] == oidc["service_account_email"]


@pytest.mark.parametrize(
    "http_target",
    [{"oidc_token": {"service_account_email": ACCOUNT}}, {"oauth_token": {"service_account_email": ACCOUNT}}],
)
async def test_a_queues_token_needs_both_its_parts(sut: Sut, http_target: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="must have both"):
        await sut.set_queue(http_target=http_target)


async def test_the_issuer_can_be_googles(start: Start, target: Target) -> None:
    sut: Sut = await start(issuer="https://accounts.google.com")
    header = await token_of(sut, target, {"service_account_email": ACCOUNT, "audience": "a"})
    assert (await verify(sut, header, "a"))["iss"] == "https://accounts.google.com"
