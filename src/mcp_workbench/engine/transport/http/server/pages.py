"""Pages in addition to the MCP endpoint, for operators and monitoring: one table, and perhaps a site.

A page is read-only and answers at once from what is known. Its entry states who may see it. A site has many paths,
takes forms and streams, and knows by itself who may see what. Both are passed to `serve_http`, so that this package
need not know their content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct

from mcp_workbench.engine.transport.http.server.authentication import Authentication, AuthenticationChallenge
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import JSON_HEADERS, Headers, ResponseWriter

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
# Made elsewhere, because it is about everything.
METRICS_PATH: Final = "/metrics"
# What metrics depend on, besides the usual headers.
METRICS_HEADERS: Final = ("accept-encoding",)
# Load balancers poll every few seconds, the slowest twice a minute.
READINESS_POLL_WINDOW: Final = 30.0
# With this query, `/readyz` answers 404 instead of 503 while we leave. HAProxy then sends nobody else, and lets what is
# under way finish (`http-check disable-on-404`); it takes a 503 for a failure, and may cut connections.
LEAVING_QUERY: Final = b"leaving=404"
_TEXT: Final[Headers] = b"content-type: text/plain\r\n"

# Called with the principal that asks. Returns whether clients may be sent to us, and a JSON report for operators.
Readiness = Callable[[str], tuple[bool, bytes]]


class PageResponse(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


class PageAccess(Enum):
    """Who may see a page. A *caller* is a principal that may use the MCP endpoint."""

    # Credentials are ignored.
    ANYBODY = auto()
    # Callers see more. Credentials are optional, but wrong ones are refused, so that tokens cannot be guessed here.
    ANYBODY_AND_CALLERS = auto()
    CALLERS = auto()


class Page(Struct, frozen=True):
    """One page, at one path."""

    # Called with the principal that asks; empty if unauthenticated.
    respond: Callable[[str], PageResponse]
    access: PageAccess = PageAccess.ANYBODY


class NegotiatedPage(Struct, frozen=True):
    """The same, for a page whose form depends on headers."""

    respond_to: Callable[[RequestHead], PageResponse]
    access: PageAccess = PageAccess.ANYBODY


# The largest body that a site takes: a form that a person fills in.
MAX_SITE_BODY: Final = 1024 * 1024
# Headers that a site reads, in addition to the usual ones.
SITE_HEADERS: Final = ("cookie", "sec-fetch-site", "x-csrf")


class Identify(Protocol):
    """Whose key or token this is, as at the MCP endpoint. `prove` is called with what it proves besides the principal,
    once that is known; `is_again`: it was checked before, and affects no request."""

    def __call__(
        self, key: str, prove: Callable[[object], None], *, is_again: bool = False
    ) -> Authentication | asyncio.Future[Authentication]: ...


class SiteRequest(Struct, frozen=True):
    """A request for a site. The `Host` is ours; nothing else has been checked."""

    head: RequestHead
    # What follows `?`, as sent.
    query: bytes
    body: bytes
    identify: Identify
    # Answers a failed attempt to sign in with a page and its headers; peers that fail often are slowed down.
    refuse: Callable[[AuthenticationChallenge, Headers, bytes], None]


class Site(Protocol):
    """Many paths that are served together. Methods are GET, HEAD and POST."""

    def takes(self, path: str) -> bool:
        """Whether it serves this path."""

    def serve(self, request: SiteRequest, writer: ResponseWriter) -> None:
        """Answer, now or later, or begin a stream. Never waits."""


class ReadinessPage:
    """Whether clients may be sent to us. Tracks whether a load balancer polls."""

    __slots__ = ("_asked_at", "_asked_to_drain_at", "_is_leaving", "_now", "_readiness")

    def __init__(self, readiness: Readiness | None, now: Callable[[], float]) -> None:
        self._readiness = readiness
        self._now = now
        self._asked_at: float | None = None
        self._asked_to_drain_at: float | None = None
        self._is_leaving = False

    def leave(self) -> None:
        """Report from now on that we are not ready."""
        self._is_leaving = True

    @property
    def is_watched(self) -> bool:
        """Whether a load balancer polls."""
        return self._is_recent(self._asked_at)

    @property
    def must_be_answered(self) -> bool:
        """Whether a load balancer polls that would cut what is under way if nobody answered."""
        return self._is_recent(self._asked_to_drain_at)

    def _is_recent(self, at: float | None) -> bool:
        return at is not None and self._now() - at < READINESS_POLL_WINDOW

    def respond_to(self, head: RequestHead) -> PageResponse:
        """Readiness is public; which servers are behind us is not."""
        principal = head.principal
        self._asked_at = self._now()
        wants_404 = head.target.partition(b"?")[2] == LEAVING_QUERY
        if wants_404:
            self._asked_to_drain_at = self._asked_at
        is_ready, report = (True, b"{}") if self._readiness is None else self._readiness(principal)
        status = 200 if is_ready else 503
        if self._is_leaving:
            status = 404 if wants_404 else 503
        return PageResponse(status, JSON_HEADERS, report if principal else b"{}")


def _respond_healthy(principal: str) -> PageResponse:
    return PageResponse(200, _TEXT, b"ok\n")


def operator_pages(readiness: ReadinessPage) -> dict[str, Page | NegotiatedPage]:
    """Our own pages, by path."""
    return {
        HEALTH_PATH: Page(_respond_healthy),
        READY_PATH: NegotiatedPage(readiness.respond_to, PageAccess.ANYBODY_AND_CALLERS),
    }
