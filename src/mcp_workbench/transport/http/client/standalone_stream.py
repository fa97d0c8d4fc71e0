"""The stream on which a legacy server speaks unasked: opened by a GET, and again whenever it ends.

A server need not have one, and most do not. Owns when to try again; what arrives is delivered like everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from mcp_workbench.transport.http import vocabulary as words
from mcp_workbench.transport.http.client.post import header_safe, pause
from mcp_workbench.transport.http.client.response_body import read_events
from mcp_workbench.transport.http.sse import ServerSentEvent, SseParser

if TYPE_CHECKING:
    from mcp_workbench.transport.http.client.link import HttpLink

log = logging.getLogger(__name__)

# A server that ends the stream each time, or is down, is asked less and less often.
LONGEST_PAUSE: Final = 60.0


class StandaloneStream:
    """Reads it for as long as the link lives."""

    def __init__(self, link: HttpLink) -> None:
        self.task: asyncio.Task[None] | None = None
        self._link = link
        self._has_received = False
        # Whether the server has been reached, or has shown that it cannot be.
        self._is_tried = asyncio.Event()

    async def wait_open(self, seconds: float) -> None:
        """Return when the stream is open or will not be, at the latest after this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_tried.wait()

    def stop(self) -> None:
        """Read no more."""
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Until the server says that it has no such stream."""
        parser = SseParser(self._link.limit)
        fruitless = 0
        while True:
            self._has_received = False
            again = SseParser(self._link.limit)
            again.last_id, again.retry, parser = parser.last_id, parser.retry, again
            try:
                if not await self._read(parser):
                    return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.debug("%s: its stream broke: %s", self._link.target.address.origin, error)
            self._is_tried.set()
            fruitless = 0 if self._has_received else fruitless + 1
            await asyncio.sleep(max(pause(parser.retry), min(2.0**fruitless / 2, LONGEST_PAUSE)))

    async def _read(self, parser: SseParser) -> bool:
        """One connection. False when there is nothing to connect to."""
        link = self._link
        headers = {"accept": words.EVENT_STREAM, **link.headers()}
        if parser.last_id:
            headers[words.LAST_EVENT_ID] = header_safe(parser.last_id)
        response = await link.client.request("GET", link.target, headers)
        self._is_tried.set()
        try:
            if 400 <= response.status < 500 and response.status != 429:
                # 405 is how a server says that it has none. Whether our session is gone is found out by the next POST:
                # some servers answer 404 to any GET.
                return False
            if response.status == 200 and response.content_type == words.EVENT_STREAM:
                await read_events(response, parser, link.limit, self._on_event)
            return True
        finally:
            response.release()

    def _on_event(self, event: ServerSentEvent) -> bool:
        self._has_received = True
        if event.type == "message" and event.data:
            self._link.deliver(event.data)
        return False
