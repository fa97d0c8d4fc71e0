"""Authentication: from the head of a request to a principal, or to a challenge.

A small interface, because there are several ways to authenticate. A cached head is authenticated again with each call,
since a token may have been revoked meanwhile. Most results are known at once; a result that requires asking another
service is a future, bounded by its creator.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from mcp_workbench.engine.transport.http.server.request_head import RequestHead

ANONYMOUS: Final = "anonymous"
# The holder of the one token that `serve` was given or generated.
DEFAULT_PRINCIPAL: Final = "default"
_REALM: Final = b'Bearer realm="mcp-workbench"'
UNAUTHORIZED: Final = 401
FORBIDDEN_STATUS: Final = 403
UNAVAILABLE: Final = 503


class AuthenticationChallenge(Struct, frozen=True):
    """Why authentication failed, and what would be accepted (`WWW-Authenticate`)."""

    message: str
    www_authenticate: bytes
    # 401; 403 for a known caller that lacks a scope (RFC 6750, 3.1); 503 if it cannot be determined now.
    status: int = UNAUTHORIZED


Authentication = str | AuthenticationChallenge
Otherwise = Callable[[RequestHead], "Authentication | asyncio.Future[Authentication]"]


class Authenticator(Protocol):
    """Identifies the caller of a request."""

    # Whether the result also depends on the peer of the connection, so that equal heads may be different callers.
    depends_on_peer: bool

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        """The principal of this request, or a challenge. A future never fails, and completes within a bound."""


class Anonymous:
    """All clients are the same caller."""

    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> Authentication:
        """Ignore any credentials."""
        return ANONYMOUS


class BearerToken:
    """The holder of the token is the default principal; other tokens are passed on to `otherwise`."""

    depends_on_peer = False

    def __init__(self, token: str, otherwise: Otherwise | None = None) -> None:
        self._token = token.encode()
        # Called with requests that have any other token.
        self._otherwise = otherwise
        self._missing = AuthenticationChallenge("a bearer token is required", _REALM)
        self._invalid = AuthenticationChallenge("this token is not valid", _REALM + b', error="invalid_token"')

    def authenticate(self, head: RequestHead) -> Authentication | asyncio.Future[Authentication]:
        """Compare in constant time, so that the token cannot be guessed byte by byte."""
        authorization = head.headers.get("authorization")
        if authorization is None:
            return self._missing
        scheme, _, given = authorization.partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self._token)
        if matches and scheme.lower() == "bearer":
            return DEFAULT_PRINCIPAL
        return self._invalid if self._otherwise is None else self._otherwise(head)
