"""Pages beside the MCP endpoint, for operators and the machines that watch over us: one table.

A page is read, never written to, and answers at once from what is known. Its entry says who may see it. Pages of other
packages are handed to `serve_http`, so that this one need not know what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from mcp_workbench.transport.http.server.modern_request import JSON_HEADERS
from mcp_workbench.transport.http.server.response_writer import Headers

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
# Balancers look every few seconds, the slowest of them twice a minute.
WATCHED_SECONDS: Final = 30.0
_TEXT: Final[Headers] = b"content-type: text/plain\r\n"

# Whether clients may be sent to us, and what an operator should see of it, as JSON.
# Given the principal who asks.
Readiness = Callable[[str], tuple[bool, bytes]]


class PageResponse(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


class PageAccess(Enum):
    """Who may see a page. A *caller* is whoever may use the MCP endpoint."""

    # Whatever credentials are shown are not looked at.
    ANYBODY = auto()
    # It says more to callers. Credentials are optional, but wrong ones are refused: nobody gets to guess here.
    ANYBODY_AND_CALLERS = auto()
    CALLERS = auto()


class Page(Struct, frozen=True):
    """One page, at one path."""

    # Given the principal who asks; empty for anybody else.
    respond: Callable[[str], PageResponse]
    access: PageAccess = PageAccess.ANYBODY


class ReadinessPage:
    """Whether clients may be sent to us. Remembers whether a balancer keeps asking, and was told that we leave."""

    __slots__ = ("_asked_at", "_is_leaving", "_now", "_readiness", "_was_seen_leaving")

    def __init__(self, readiness: Readiness | None, now: Callable[[], float]) -> None:
        self._readiness = readiness
        self._now = now
        self._asked_at: float | None = None
        self._is_leaving = False
        self._was_seen_leaving = False

    def leave(self) -> None:
        """From now on it says that we are not ready."""
        self._is_leaving = True

    @property
    def must_be_seen_leaving(self) -> bool:
        """Whether somebody who keeps asking has not been told yet that we are leaving."""
        is_watched = self._asked_at is not None and self._now() - self._asked_at < WATCHED_SECONDS
        return self._is_leaving and is_watched and not self._was_seen_leaving

    def respond(self, principal: str) -> PageResponse:
        """Whether we are ready is everybody's to know; which servers are behind us is not."""
        self._asked_at = self._now()
        is_ready, report = (True, b"{}") if self._readiness is None else self._readiness(principal)
        if self._is_leaving:
            is_ready, self._was_seen_leaving = False, True
        return PageResponse(200 if is_ready else 503, JSON_HEADERS, report if principal else b"{}")


def _respond_healthy(principal: str) -> PageResponse:
    return PageResponse(200, _TEXT, b"ok\n")


def operator_pages(readiness: ReadinessPage) -> dict[str, Page]:
    """Our own pages, by path."""
    return {
        HEALTH_PATH: Page(_respond_healthy),
        READY_PATH: Page(readiness.respond, PageAccess.ANYBODY_AND_CALLERS),
    }
