"""Streams that stay open: their callers are authenticated again while they last.

A token is checked with every request, but a stream is one request for hours: without this it would outlive the token
that opened it. A call in progress may finish. Owns when a caller is checked again; how is the authenticator's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.engine.transport.shared_timer import SharedTimer

log = logging.getLogger(__name__)

# The method whose response is a stream of notifications.
LISTEN: Final = "subscriptions/listen"
# Consecutive checks that may fail because the identity provider is unavailable: a restart of the provider ends no
# streams, a longer outage does.
MOST_UNANSWERED: Final = 6

Authenticate = Callable[[RequestHead], "Authentication | asyncio.Future[Authentication]"]


class OpenStream:
    __slots__ = ("_asked", "_authenticate", "_head", "_principal", "_timer", "_unanswered", "_writer")

    def __init__(
        self, head: RequestHead, writer: ResponseWriter, authenticate: Authenticate, timer: SharedTimer[OpenStream]
    ) -> None:
        self._head = head.for_stream()
        self._principal = head.principal
        self._writer = writer
        self._authenticate = authenticate
        self._timer = timer
        # The pending authentication, while another service is being asked.
        self._asked: asyncio.Future[Authentication] | None = None
        self._unanswered = 0

    def on_timer(self, now: float) -> None:
        if self._writer.is_over:
            self._timer.discard(self)
            return
        found: Authentication | asyncio.Future[Authentication]
        found = self._authenticate(self._head) if self._asked is None else self._asked
        if isinstance(found, asyncio.Future):
            self._asked = found
            if not found.done():
                return
            self._asked = None
            found = self._principal if found.cancelled() else found.result()
        self._judge(found)

    def _judge(self, found: Authentication) -> None:
        if found == self._principal:
            self._unanswered = 0
            return
        if isinstance(found, AuthenticationChallenge) and found.status == UNAVAILABLE:
            self._unanswered += 1
            if self._unanswered <= MOST_UNANSWERED:
                return
        why = found.message if isinstance(found, AuthenticationChallenge) else "this is somebody else now"
        log.info("a stream of `%s` from %s was ended: %s", self._principal, self._head.origin, why)
        self._timer.discard(self)
        # The response ends properly, so the client may open the stream again with a valid token.
        gone = self._writer.gone
        self._writer.finish()
        if gone is not None:
            gone()
