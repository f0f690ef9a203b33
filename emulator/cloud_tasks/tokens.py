"""OIDC tokens signed with a key of the emulator's own, the documents that publish it, and OAuth placeholders.

A token's times are the machine's, also under a manual clock: whoever verifies it looks at the machine's clock.
"""

import base64
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from google.auth import crypt, jwt

LIFETIME = 3_600  # seconds, as Google's tokens
REFRESH = 300  # a token with less left is not handed out again
KEPT = 1_000  # tokens held for reuse
DISCOVERY = "/.well-known/openid-configuration"
CERTS = "/oauth2/v1/certs"
JWKS = "/oauth2/v3/certs"
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"


def new_key() -> bytes:
    """Return a fresh RSA key as PEM."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Tokens:
    """Signs for any service account; `issuer` is the URL under which DISCOVERY is served."""

    def __init__(self, key: Callable[[], bytes], issuer: str) -> None:
        self.issuer = issuer
        self._key = key
        self._made: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()

    @cached_property
    def _private(self) -> rsa.RSAPrivateKey:
        """The key, asked for when the first token or document is: most runs need none."""
        private = serialization.load_pem_private_key(self._key(), password=None)
        assert isinstance(private, rsa.RSAPrivateKey)
        return private

    @cached_property
    def key_id(self) -> str:
        return hashlib.sha256(_der(self._private.public_key())).hexdigest()[:40]

    @cached_property
    def _signer(self) -> crypt.RSASigner:
        return crypt.RSASigner(self._private, key_id=self.key_id)

    @cached_property
    def _certificate(self) -> str:
        return _certificate(self._private)

    def authorization(self, source: Any, url: str) -> str | None:
        """Return the Authorization header that an HttpRequest or HttpTarget asks for, if any."""
        kind = source.WhichOneof("authorization_header")
        if kind == "oidc_token":
            return f"Bearer {self.oidc(source.oidc_token.service_account_email, source.oidc_token.audience or url)}"
        if kind == "oauth_token":
            scope = source.oauth_token.scope or CLOUD_PLATFORM
            mark = hashlib.sha256(f"{source.oauth_token.service_account_email}\n{scope}".encode()).hexdigest()[:32]
            return f"Bearer ya29.emulator-{mark}"
        return None

    def oidc(self, email: str, audience: str) -> str:
        """Return a signed token, the same one as long as it is fresh."""
        now = time.time()
        expires, token = self._made.get((email, audience), (0.0, ""))
        if expires - now < REFRESH:
            token = self._sign(email, audience, int(now))
            self._made[(email, audience)] = (now + LIFETIME, token)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        return token

    def _sign(self, email: str, audience: str, now: int) -> str:
        subject = str(int.from_bytes(hashlib.sha256(email.encode()).digest()[:8], "big")).zfill(21)
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "azp": subject,
            "sub": subject,
            "email": email,
            "email_verified": True,
            "iat": now,
            "exp": now + LIFETIME,
        }
        token: bytes = jwt.encode(self._signer, claims)
        return token.decode()

    # The documents

    def discovery(self, base: str) -> dict[str, object]:
        return {
            "issuer": self.issuer,
            "jwks_uri": base + JWKS,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def certificates(self) -> dict[str, str]:
        """Return the form that google-auth's `verify_token(certs_url=…)` reads."""
        return {self.key_id: self._certificate}

    def jwks(self) -> dict[str, object]:
        numbers = self._private.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.key_id}
        return {"keys": [key | {"n": _base64(numbers.n), "e": _base64(numbers.e)}]}


def _certificate(private: rsa.RSAPrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cloud-tasks-emulator")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=3_650))
        .sign(private, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _der(public: rsa.RSAPublicKey) -> bytes:
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _base64(number: int) -> str:
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
