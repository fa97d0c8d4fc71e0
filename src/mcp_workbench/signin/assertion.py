"""Client authentication with a key: the signed assertion of RFC 7523, section 2.2 (`private_key_jwt`).

`joserfc` is imported only when an assertion is made.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from mcp_workbench.errors import package_hint
from mcp_workbench.signin.flow_io import SignInFailed

if TYPE_CHECKING:
    from joserfc.jwk import Key

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# An assertion is sent immediately and used once; the rest of its life only allows for clock skew.
ASSERTION_LIFE: Final = 120
# The default algorithm of an elliptic-curve key, where the user has not named one.
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class Credentials(Struct, frozen=True):
    """The client credentials that the user has configured."""

    secret: str | None = None
    private_key: str | None = None
    key_id: str | None = None
    algorithm: str | None = None


def sign(credentials: Credentials, client_id: str, issuer: str, now: float) -> str:
    """The assertion of this client for this authorization server. Raises `SignInFailed`."""
    try:
        from joserfc import jwt
        from joserfc.errors import JoseError
    except ImportError:
        raise SignInFailed(
            "signing with `privateKey` needs the Python package `joserfc`, which is not installed",
            hint=package_hint("joserfc"),
        ) from None
    key = _key(credentials.private_key)
    algorithm = credentials.algorithm or _algorithm_for(key)
    header: dict[str, Any] = {"alg": algorithm, "typ": "JWT"}
    key_id = credentials.key_id or key.kid
    if key_id:
        header["kid"] = key_id
    claims = {
        "iss": client_id,
        "sub": client_id,
        # The issuer rather than the token endpoint, so that no other server can replay it (RFC 7523bis).
        "aud": issuer,
        "iat": int(now),
        "exp": int(now) + ASSERTION_LIFE,
        "jti": os.urandom(16).hex(),
    }
    try:
        with warnings.catch_warnings():
            # joserfc warns about `EdDSA`, but few servers know its replacement from RFC 9864 yet.
            warnings.simplefilter("ignore")
            return jwt.encode(header, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as error:
        # Safe to quote: the library's messages about keys name their type, never their value.
        raise SignInFailed(
            f"`privateKey` cannot sign with {algorithm}: {type(error).__name__}",
            hint="set `signingAlgorithm` to one that fits the key",
        ) from None


def _key(written: str | None) -> Key:
    """A key as PEM or JWK."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key
    from msgspec import MsgspecError
    from msgspec.json import decode

    text = (written or "").strip()
    try:
        if text.startswith("{"):
            found: Key = import_key(decode(text))
            if found.is_private:
                return found
        for kind in (RSAKey, ECKey, OKPKey) if text.startswith("-----BEGIN") else ():
            try:
                key = kind.import_key(text)
            except (JoseError, ValueError, TypeError):
                continue
            if key.is_private:
                return key
    except (JoseError, ValueError, TypeError, KeyError, MsgspecError):
        pass
    raise SignInFailed(
        "`privateKey` is not a private key that can be used",
        hint="it is PEM (`-----BEGIN PRIVATE KEY-----`) without a passphrase, or a JWK; refer to it with `${file:…}`",
    )


def _algorithm_for(key: Key) -> str:
    if key.key_type == "RSA":
        return "RS256"
    curve = str(key.as_dict(private=False).get("crv", ""))
    return _BY_CURVE.get(curve, "EdDSA")
