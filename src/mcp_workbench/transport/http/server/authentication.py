"""Who is calling: from the head of a request to a principal, or to a challenge.

One small interface, because there are more ways to prove it than one token. The head of a request that came in before
is asked about again with each call, so what proved somebody once may prove nobody any more. Most answers are known at
once; one that somebody else has to be asked for is a future, bounded by whoever makes it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from mcp_workbench.transport.http.server.request_head import RequestHead

ANONYMOUS: Final = "anonymous"
# Whoever has the one token that `serve` was given or has made.
DEFAULT_PRINCIPAL: Final = "default"
_REALM: Final = b'Bearer realm="mcp-workbench"'
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
UNAVAILABLE: Final = 503


class AuthenticationChallenge(Struct, frozen=True):
    """Why nobody was recognised, and what would be accepted (`WWW-Authenticate`)."""

    message: str
    www_authenticate: bytes
    # 401; 403 for somebody who is known and lacks a scope (RFC 6750, 3.1); 503 where it cannot be found out now.
    status: int = UNAUTHORIZED


Authentication = str | AuthenticationChallenge
Otherwise = Callable[[RequestHead], "Authentication | asyncio.Future[Authentication]"]


class Authenticator(Protocol):
    """Tells who is calling."""

    # Whether it also depends on who is at the other end of the connection, so that the same head may be anybody's.
    depends_on_peer: bool

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        """The principal that this request proves to come from. A future never fails, and ends within a bound."""


class Anonymous:
    """Everybody is the same caller."""

    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> Authentication:
        """What it brought along is not looked at."""
        return ANONYMOUS


class BearerToken:
    """Whoever knows the token is the one caller that there is, but for those that somebody else knows."""

    depends_on_peer = False

    def __init__(self, token: str, otherwise: Otherwise | None = None) -> None:
        self._token = token.encode()
        # Asked about every other token.
        self._otherwise = otherwise
        self._missing = AuthenticationChallenge("a bearer token is required", _REALM)
        self._invalid = AuthenticationChallenge("this token is not valid", _REALM + b', error="invalid_token"')

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        """Compared in constant time, so that nobody can find the token out byte by byte."""
        authorization = head.headers.get("authorization")
        if authorization is None:
            return self._missing
        scheme, _, given = authorization.partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self._token)
        if matches and scheme.lower() == "bearer":
            return DEFAULT_PRINCIPAL
        return self._invalid if self._otherwise is None else self._otherwise(head)
