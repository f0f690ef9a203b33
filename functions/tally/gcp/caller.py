"""The CallerVerifier with Google's public keys, or with those of our Cloud Tasks emulator."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from google.auth import exceptions, jwt, transport
from google.auth.transport.requests import Request
from google.oauth2 import id_token

from tally.errors import Forbidden, Unavailable

_GOOGLE_CERTS = "https://www.googleapis.com/oauth2/v1/certs"
_GOOGLE_ISSUERS = ("accounts.google.com", "https://accounts.google.com")
_CHECKED = ".SIGNATURE_REMOVED_BY_GOOGLE"
_SKEW = 10  # seconds
_FRESH = 3_600.0  # seconds; Google announces its keys more than a day before it signs with them
_AGAIN = 60.0  # seconds between fetches for tokens whose key is not known


class OidcVerifier:
    """Verifies the signature, the time, the audience, the issuer and the email address of a token.

    A Cloud Run service that IAM guards gets no signature to verify: Cloud Run has done so, and puts `_CHECKED` in its
    place. `behind_iam` takes such a token at Cloud Run's word; anywhere else it would be anybody's word.
    """

    def __init__(self, emulator: str = "", *, behind_iam: bool = False) -> None:
        self._behind_iam = behind_iam
        self._certs = f"http://{emulator}/oauth2/v1/certs" if emulator else _GOOGLE_CERTS
        self._issuers = (f"http://{emulator}",) if emulator else _GOOGLE_ISSUERS
        self._fetch = _CachedRequest()

    async def verify(self, token: str, audience: str) -> str:
        """Raises Forbidden, or Unavailable when the keys cannot be had."""
        if not audience:
            raise Forbidden("no audience is set up here: no token can be for it")
        claims = await asyncio.to_thread(self._claims, token, audience)
        if claims.get("iss") not in self._issuers:
            raise Forbidden(f"the token's issuer is {claims.get('iss')!r}, not Google")
        email = claims.get("email")
        if not isinstance(email, str) or claims.get("email_verified") is not True:
            raise Forbidden("the token names no verified account")
        return email

    def _claims(self, token: str, audience: str) -> Mapping[str, Any]:
        try:
            try:
                return self._verified(token, audience)
            except ValueError:
                if not self._fetch.stale(self._certs):
                    raise
                return self._verified(token, audience)
        except exceptions.TransportError as error:
            raise Unavailable(f"the keys of OIDC tokens cannot be had: {error}") from error
        except (ValueError, exceptions.GoogleAuthError) as error:
            raise Forbidden(f"the token is not good for audience {audience!r}: {error}") from error

    def _verified(self, token: str, audience: str) -> Mapping[str, Any]:
        if self._behind_iam and token.endswith(_CHECKED):
            return _unsigned(token, audience)
        claims: Mapping[str, Any] = id_token.verify_token(
            token, self._fetch, audience=audience, certs_url=self._certs, clock_skew_in_seconds=_SKEW
        )
        return claims


def _unsigned(token: str, audience: str) -> Mapping[str, Any]:
    """Return the claims of a token whose signature was checked before; raise ValueError for what else is wrong."""
    claims: Mapping[str, Any] = jwt.decode(token, verify=False)
    if claims.get("aud") != audience:
        raise ValueError(f"its audience is {claims.get('aud')!r}")
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or expires < time.time() - _SKEW:
        raise ValueError("it is expired")
    return claims


class _CachedRequest(transport.Request):  # type: ignore[misc]  # google-auth has no types
    """The library's request, which keeps the keys for an hour: the library itself fetches them for every token."""

    def __init__(self) -> None:
        self._request = Request()
        self._kept: dict[str, tuple[float, Any]] = {}

    def __call__(self, url: str, method: str = "GET", **options: Any) -> Any:
        fetched, response = self._kept.get(url, (0.0, None))
        if response is None or time.monotonic() - fetched > _FRESH:
            response = self._request(url, method=method, timeout=10, **options)
            if response.status == 200:
                self._kept[url] = (time.monotonic(), response)
        return response

    def stale(self, url: str) -> bool:
        """Forget keys that are older than a minute, since a token says that there are others; tell whether it did."""
        fetched, _ = self._kept.get(url, (0.0, None))
        if url not in self._kept or time.monotonic() - fetched < _AGAIN:
            return False
        del self._kept[url]
        return True


async def identity_token(audience: str) -> str:
    """Return an OIDC token of this process's own account. Raises Unavailable."""
    try:
        token: str = await asyncio.to_thread(id_token.fetch_id_token, Request(), audience)
    except exceptions.GoogleAuthError as error:
        raise Unavailable(f"no identity token for {audience!r}: {error}") from error
    return token
