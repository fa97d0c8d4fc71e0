"""Proof of possession (RFC 9449): tokens that are worth nothing without the key of the sign-in they belong to.

Owns the key, the proofs made with it, and when a sign-in uses one. A token that was stolen from a log or a proxy cannot
be used without the key, which never leaves this machine. `joserfc` is imported only when a proof is made.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from mcp_workbench.errors import package_hint
from mcp_workbench.signin.challenge import Challenge, parse
from mcp_workbench.signin.discovery import Discovery
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse, Requests, SignInFailed, post_json

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

# The algorithm that every implementation has; the others would only be more to choose from.
PROOF_ALGORITHM: Final = "ES256"
DPOP_SCHEME: Final = "dpop"
# Headers of servers that require a nonce.
NONCE_HEADER: Final = "dpop-nonce"
# A longer one is not remembered: it would be sent with every request.
MAX_NONCE_LENGTH: Final = 512
# Unauthenticated, and answered without any effect if the server requires no sign-in.
_PROBE: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class ProofKey:
    """The key of one sign-in, and the nonce that the server at the other end wants to see next."""

    def __init__(self, written: str = "") -> None:
        self._written = written
        self.nonce = ""

    @cached_property
    def _key(self) -> ECKey:
        try:
            from joserfc.jwk import ECKey
        except ImportError:
            raise SignInFailed(
                "this server wants proof of possession (DPoP), which needs the Python package `joserfc`",
                hint=package_hint("joserfc"),
            ) from None
        from msgspec.json import decode

        return ECKey.import_key(decode(self._written)) if self._written else ECKey.generate_key("P-256")

    @property
    def written(self) -> str:
        """The private key as a JWK, for the store."""
        if not self._written:
            from msgspec.json import encode

            self._written = encode(self._key.as_dict(private=True)).decode()
        return self._written

    @property
    def thumbprint(self) -> str:
        """RFC 7638. An authorization code that was requested with it is worth nothing without this key."""
        return str(self._key.thumbprint())

    def proof(self, method: str, url: str, token: str | None = None) -> str:
        """The proof for one request, with the access token that it carries."""
        from joserfc import jwt

        public = {name: value for name, value in self._key.as_dict(private=False).items() if name in _PUBLIC}
        claims: dict[str, Any] = {
            "jti": os.urandom(16).hex(),
            "htm": method,
            "htu": urlunsplit(urlsplit(url)._replace(query="", fragment="")),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = _urlsafe(hashlib.sha256(token.encode()).digest())
        if self.nonce:
            claims["nonce"] = self.nonce
        header = {"typ": "dpop+jwt", "alg": PROOF_ALGORITHM, "jwk": public}
        return jwt.encode(header, claims, self._key, algorithms=[PROOF_ALGORITHM])

    def learn(self, nonce: str | None) -> bool:
        """Use this nonce from now on. False if there is none, or it is the one that was used."""
        if not nonce or len(nonce) > MAX_NONCE_LENGTH or nonce == self.nonce:
            return False
        self.nonce = nonce
        return True


class TokenProof:
    """The proofs of requests to a server that carry one access token (`RequestProof`)."""

    def __init__(self, key: ProofKey, token: str) -> None:
        self._key = key
        self._token = token

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"dpop": self._key.proof(method, url, self._token)}

    def answered(self, headers: Mapping[str, str]) -> None:
        self._key.learn(headers.get(NONCE_HEADER))


def choose(discovery: Discovery, challenge: Challenge, url: str) -> Requests[ProofKey | None]:
    """A new key where tokens are to be bound to one: the authorization server can, and the server wants it."""
    wanted, supported = discovery.profile.dpop, PROOF_ALGORITHM in discovery.server.dpop_signing_alg_values_supported
    if wanted == "never" or not (supported or wanted == "always"):
        if discovery.requires_dpop and wanted != "never":
            raise SignInFailed(
                f"the server accepts only tokens bound to a key (DPoP), which {discovery.server.identifier} does not "
                f"offer with {PROOF_ALGORITHM}",
                hint="tell the server's operator",
            )
        return None
    if wanted == "always" or discovery.requires_dpop or challenge.is_dpop:
        return ProofKey()
    if challenge.is_known:
        return None
    # Not known yet: the metadata of most resources does not say it, but their refusal does.
    answer = yield post_json(url, _PROBE, {"accept": "application/json, text/event-stream"})
    return ProofKey() if parse(answer.challenge).is_dpop else None


def post(make: Callable[[], OAuthRequest], key: ProofKey | None) -> Requests[OAuthResponse]:
    """Send a request to a token endpoint, with proof; once more where the answer is a nonce for it (section 8)."""
    answer = yield proven(make(), key)
    if key is not None and key.learn(answer.nonce) and answer.fields().get("error") == "use_dpop_nonce":
        # Made again, because an assertion of the client is good for one use.
        answer = yield proven(make(), key)
        key.learn(answer.nonce)
    return answer


def proven(request: OAuthRequest, key: ProofKey | None) -> OAuthRequest:
    if key is None:
        return request
    return replace(request, headers={**request.headers, "dpop": key.proof(request.method, request.url)})


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# RFC 7638, section 3.2: what identifies an elliptic-curve key, and nothing that is ours.
_PUBLIC: Final = frozenset(("kty", "crv", "x", "y"))
