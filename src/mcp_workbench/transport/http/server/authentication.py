"""Who is calling: from the head of a request to a principal, or to a challenge. Pure.

One small interface, because there will be more ways to prove it than one token. The head of a request that came in
before is asked about again with each call, so what proved somebody once may prove nobody any more.
"""

from __future__ import annotations

import hmac
from typing import Final, Protocol

from msgspec import Struct

from mcp_workbench.transport.http.server.request_head import RequestHead

ANONYMOUS: Final = "anonymous"
TOKEN_PRINCIPAL: Final = "token"
_REALM: Final = b'Bearer realm="mcp-workbench"'


class AuthenticationChallenge(Struct, frozen=True):
    """Why nobody was recognised, and what would be accepted (`WWW-Authenticate`)."""

    message: str
    www_authenticate: bytes


class Authenticator(Protocol):
    """Tells who is calling."""

    def authenticate(self, head: RequestHead) -> str | AuthenticationChallenge:
        """The principal that this request proves to come from."""


class Anonymous:
    """Everybody is the same caller."""

    def authenticate(self, head: RequestHead) -> str | AuthenticationChallenge:
        """What it brought along is not looked at."""
        return ANONYMOUS


class BearerToken:
    """Whoever knows the token is the one caller there is."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._missing = AuthenticationChallenge("a bearer token is required", _REALM)
        self._invalid = AuthenticationChallenge("this token is not valid", _REALM + b', error="invalid_token"')

    def authenticate(self, head: RequestHead) -> str | AuthenticationChallenge:
        """Compared in constant time, so that nobody can find the token out byte by byte."""
        authorization = head.headers.get("authorization")
        if authorization is None:
            return self._missing
        scheme, _, given = authorization.partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self._token)
        return TOKEN_PRINCIPAL if matches and scheme.lower() == "bearer" else self._invalid
