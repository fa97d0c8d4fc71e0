"""Messages to a server that are not answered: notifications, and responses to its requests.

Owns their order, how many are sent at once, and for how long. A server that provokes them and does not read them must
exhaust neither our descriptors nor our memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mcp_workbench.engine.transport.http.client.http_session import JSON_HEADERS, HttpSession
from mcp_workbench.engine.transport.http.client.response_body import read_error_text
from mcp_workbench.engine.transport.http.message_summary import MessageSummary

log = logging.getLogger(__name__)

# Servers accept a notification at once, or not at all.
ONE_WAY_SECONDS: Final = 10.0
# Sent to one server at once, and queued.
MOST_ONE_WAY: Final = 8
MOST_ONE_WAY_WAITING: Final = 1000
MOST_ONE_WAY_BYTES: Final = 64 * 1024 * 1024


class OneWaySender:
    """Sends the one-way messages of one link, in order, a few at a time."""

    __slots__ = ("_bytes", "_session", "_session_lost", "_start", "_under_way", "_waiting", "dropped")

    def __init__(
        self,
        session: HttpSession,
        start: Callable[[Coroutine[Any, Any, None]], None],
        session_lost: Callable[[], None],
    ) -> None:
        self._session = session
        # Runs a coroutine as a task of the link.
        self._start = start
        self._session_lost = session_lost
        self._waiting: deque[tuple[MessageSummary, bytes]] = deque()
        self._bytes = 0
        self._under_way = 0
        self.dropped = 0

    def put(self, summary: MessageSummary, body: bytes) -> None:
        """Queue a message, or drop it if too many are waiting."""
        if len(self._waiting) >= MOST_ONE_WAY_WAITING or self._bytes + len(body) > MOST_ONE_WAY_BYTES:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("%s accepts notifications too slowly; further ones are dropped", self._session.origin)
            return
        self._waiting.append((summary, body))
        self._bytes += len(body)
        if self._under_way < MOST_ONE_WAY:
            self._under_way += 1
            self._start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                summary, body = self._waiting.popleft()
                self._bytes -= len(body)
                await self.send(summary, body)
        finally:
            self._under_way -= 1

    async def send(self, summary: MessageSummary, body: bytes) -> None:
        """Send it now, within `ONE_WAY_SECONDS`."""
        session = self._session
        origin = session.origin
        try:
            async with asyncio.timeout(ONE_WAY_SECONDS):
                response = await session.request("POST", {**JSON_HEADERS, **session.headers()}, body)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = session.explain(error)
            log.info("%s did not receive `%s`: %s", origin, summary.method or "an answer", why.message)
            return
        try:
            await read_error_text(response)
            if response.status == 404 and session.id is not None:
                self._session_lost()
            elif response.status >= 300:
                log.info("%s rejected `%s`: status %d", origin, summary.method, response.status)
        finally:
            response.release()
