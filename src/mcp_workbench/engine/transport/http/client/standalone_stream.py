"""The standalone stream of a legacy server: requests and notifications that belong to no request of ours.

Opened by a GET, and again whenever it ends.

Servers need not have one, and most do not. Owns when to try again; messages are delivered like all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Final

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http.client.http_session import HttpSession
from mcp_workbench.engine.transport.http.client.post import header_safe, pause
from mcp_workbench.engine.transport.http.client.response_body import EventReceiver, deliver_large_event, read_events
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.engine.transport.lines import LONG_LINE

log = logging.getLogger(__name__)

# A server that keeps ending the stream, or is down, is tried less and less often.
MAX_REOPEN_INTERVAL: Final = 60.0


class StandaloneStream:
    """Reads the stream for the lifetime of the link."""

    def __init__(self, session: HttpSession, receiver: EventReceiver) -> None:
        self.task: asyncio.Task[None] | None = None
        self._session = session
        self._receiver = receiver
        self._has_received = False
        # Set when the server has answered or failed.
        self._is_tried = asyncio.Event()

    async def wait_open(self, seconds: float) -> None:
        """Return when the stream is open or has failed, at the latest after this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_tried.wait()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Read until the server reports that it has no such stream."""
        parser = SseParser(self._session.limit)
        fruitless = 0
        while True:
            self._has_received = False
            again = SseParser(self._session.limit)
            again.last_id, again.retry, parser = parser.last_id, parser.retry, again
            try:
                if not await self._read(parser):
                    return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.debug("%s: its stream broke: %s", self._session.origin, error)
            self._is_tried.set()
            fruitless = 0 if self._has_received else fruitless + 1
            await asyncio.sleep(max(pause(parser.retry), min(2.0**fruitless / 2, MAX_REOPEN_INTERVAL)))

    async def _read(self, parser: SseParser) -> bool:
        """Read one connection. False if the server has no such stream."""
        session = self._session
        headers = {"accept": names.EVENT_STREAM, **session.headers()}
        if parser.last_id:
            headers[names.LAST_EVENT_ID] = header_safe(parser.last_id)
        response = await session.request("GET", headers)
        self._is_tried.set()
        try:
            if 400 <= response.status < 500 and response.status != 429:
                # 405 means that the server has none. Whether our session is lost is found out by the next POST: some
                # servers answer 404 to any GET.
                return False
            if response.status == 200 and response.content_type == names.EVENT_STREAM:
                await read_events(response, parser, session.limit, self._on_event)
            return True
        finally:
            response.release()

    def _on_event(self, event: ServerSentEvent) -> bool | Awaitable[bool]:
        self._has_received = True
        if event.type == "message" and len(event.data) > LONG_LINE:
            return deliver_large_event(self._receiver, event)
        if event.type == "message" and event.data:
            self._receiver.deliver(event.data)
        return False
