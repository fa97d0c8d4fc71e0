"""Which requests are admitted: decided on the head alone, before anything is read, parsed or started. Pure.

Owns `Host` and `Origin` (a web page in the user's browser must not reach us under a name it controls, "DNS rebinding",
nor from another program on this machine) and content types. Knows nothing about the body, or how callers authenticate
(`Authenticator`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from mcp_workbench.engine.jsonrpc.messages import INVALID_REQUEST
from mcp_workbench.engine.protocol.constants import HEADER_MISMATCH
from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    AuthenticationChallenge,
    Authenticator,
)
from mcp_workbench.engine.transport.http.server.limits import AUTHENTICATION_RETRY_AFTER, BUDGET_RETRY_AFTER
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import NO_HEADERS, Headers, header

LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
ANY: Final = "*"
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"https?://([^/?#@]+)")
# Headers that repeat values from the body.
_MIRRORED: Final = (names.PROTOCOL_VERSION_HEADER, names.METHOD, names.NAME)
_CORS_EXPOSED: Final[Headers] = (
    header(b"access-control-expose-headers", f"{names.SESSION_ID}, www-authenticate".encode()) + b"vary: origin\r\n"
)
# Added to the headers above in the response to a preflight request.
CORS_ALLOWED: Final[Headers] = (
    header(b"access-control-allow-methods", b"POST, GET, DELETE, OPTIONS")
    # `*` does not cover `Authorization`.
    + header(b"access-control-allow-headers", b"*, authorization")
    + header(b"access-control-max-age", b"600")
)
# Bound on the cache of accepted `Host` values: clients can send many, since any port is accepted.
MAX_KNOWN_HOSTS: Final = 64


class Refusal(Struct, frozen=True):
    """Why a request is refused."""

    status: int
    message: str
    headers: Headers = NO_HEADERS
    # The code of the JSON-RPC error in the response.
    code: int = INVALID_REQUEST
    # Whether authentication failed or a scope is missing: peers that fail often are slowed down.
    is_about_caller: bool = False
    # Instead of that error, for people: a page, with its headers.
    page: tuple[Headers, bytes] | None = None
    # Whether nobody knows who is calling: those who have failed often get this late, too.
    is_undecided: bool = False

    @staticmethod
    def too_large(limit: int) -> Refusal:
        """The body exceeds `limit`."""
        return Refusal(413, f"the body is larger than {limit} bytes; see `maxMessageBytes`")

    @staticmethod
    def no_body() -> Refusal:
        """A body where none is read."""
        return Refusal(413, "this request must not have a body")

    @staticmethod
    def no_room() -> Refusal:
        """The budget shared by all bodies is used up."""
        text = "too many large requests at once; try again later, or raise `maxPendingBodyBytes`"
        return Refusal(503, text, header(b"retry-after", b"%d" % BUDGET_RETRY_AFTER))


class Admission:
    """The rules of one endpoint."""

    def __init__(
        self,
        bound_host: str,
        authenticator: Authenticator,
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
    ) -> None:
        allowed = {name.lower().rstrip(".") for name in allow_hosts}
        self._any_host = ANY in allowed
        self._hosts = LOOPBACK_NAMES | {_as_in_url(name) for name in (bound_host.lower(), *allowed)}
        self._any_address = is_wildcard(bound_host)
        origins = {origin.lower().rstrip("/") for origin in allow_origins}
        self._any_origin = ANY in origins
        self._origins = frozenset(origins)
        # Returns the principal, or a challenge.
        self.authenticate = authenticator.authenticate
        self.depends_on_peer = authenticator.depends_on_peer
        self._known_hosts: set[str] = set()

    def check_sender(self, head: RequestHead, *, needs_host: bool = True) -> Refusal | None:
        """Whether the request is addressed to us and comes from an allowed origin.

        Without `needs_host` the `Host` may be missing, as in simple health checks of load balancers. Browsers, and so
        web pages, always send it.
        """
        headers = head.headers
        if headers.get("host") in self._known_hosts and "origin" not in headers and head.repeated is None:
            return None
        if head.repeated is not None:
            code = HEADER_MISMATCH if head.repeated in _MIRRORED else INVALID_REQUEST
            return Refusal(400, f"the header `{head.repeated}` is given more than once", code=code)
        host, origin = headers.get("host"), headers.get("origin")
        if host is None and origin is None and not needs_host:
            return None
        if not self._is_own_host(host):
            return Refusal(403, "this `Host` is not allowed; allow it with --allow-host")
        if origin is not None and not self._is_allowed_origin(origin, host or ""):
            return Refusal(403, "this `Origin` is not allowed; allow it with --allow-origin")
        return None

    def check_caller(self, head: RequestHead) -> Refusal | None:
        """Authenticate the caller and set `head.principal`, or `head.pending` if the result will only be known
        later."""
        caller = self.authenticate(head)
        if isinstance(caller, str):
            head.principal = caller
            return None
        if isinstance(caller, AuthenticationChallenge):
            return refusal_of(caller)
        head.pending = caller
        return None

    def cors_headers(self, head: RequestHead) -> Headers:
        """The CORS headers that let a page of an allowed origin read our responses."""
        origin = head.get("origin")
        if origin is None:
            return NO_HEADERS
        return header(b"access-control-allow-origin", origin.encode("latin-1")) + _CORS_EXPOSED

    def _is_own_host(self, host: str | None) -> bool:
        if self._any_host:
            return True
        found = None if host is None else _HOST.fullmatch(host.lower())
        if host is None or found is None or not self._is_own_name(found):
            return False
        if len(self._known_hosts) < MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return True

    def _is_own_name(self, found: re.Match[str]) -> bool:
        name = found[1]
        # DNS rebinding needs a name that is resolved, so where we listen on all addresses, any IP address is accepted.
        return name in self._hosts or (self._any_address and _is_address(name))

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        origin = origin.lower()
        if self._any_origin or origin in self._origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        # Same origin. A page on another port of this machine belongs to some other program.
        return found is not None and found[1] == host.lower() and self._is_own_page(found[1])

    def _is_own_page(self, authority: str) -> bool:
        found = _HOST.fullmatch(authority)
        # Any IP address is accepted as `Host`, but a page served from an IP address need not be ours.
        return found is not None and found[1] in self._hosts


def refusal_of(challenge: AuthenticationChallenge) -> Refusal:
    """The response to a failed authentication."""
    if challenge.status == UNAVAILABLE:
        # We could not check the token, so this does not count as a failed attempt.
        retry = header(b"retry-after", b"%d" % AUTHENTICATION_RETRY_AFTER)
        return Refusal(UNAVAILABLE, challenge.message, retry, is_undecided=True)
    headers = header(b"www-authenticate", challenge.www_authenticate)
    return Refusal(challenge.status, challenge.message, headers, is_about_caller=True)


def check_post(head: RequestHead) -> Refusal | None:
    """Whether a POST has the required headers."""
    if not head.is_json:
        return Refusal(415, "`Content-Type` must be application/json")
    if not (head.accepts(names.JSON) and head.accepts(names.EVENT_STREAM)):
        return Refusal(406, "`Accept` must list application/json and text/event-stream")
    return None


def is_loopback(host: str) -> bool:
    """Whether a listener at this address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether it means all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _as_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
