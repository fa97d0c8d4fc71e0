"""HTTP+SSE of 2024-11-05, for servers that have nothing else: one event stream down, POSTs up.

Owns the stream and the address that it names for POSTs. That address must have the same origin: the headers contain
secrets intended for this server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from mcp_workbench.engine.jsonrpc.pending import within
from mcp_workbench.engine.transport.http.client.address import BadAddress
from mcp_workbench.engine.transport.http.client.failures import explain, explain_status
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.response import Response
from mcp_workbench.engine.transport.http.client.response_body import (
    EventReceiver,
    deliver_large_event,
    read_error_text,
    read_events,
)
from mcp_workbench.engine.transport.http.header_names import EVENT_STREAM
from mcp_workbench.engine.transport.http.sse import ServerSentEvent, SseParser
from mcp_workbench.engine.transport.lines import LONG_LINE
from mcp_workbench.errors import DownstreamError

# The address is the first event that a server sends.
ENDPOINT_EVENT_TIMEOUT: Final = 10.0


class SseOwner(EventReceiver, Protocol):
    """The link that the stream belongs to."""

    def close(self, reason: str) -> None: ...


class SseTransport:
    """The event stream of one server, and the address that it names for POSTs."""

    def __init__(
        self,
        client: HttpClient,
        target: HttpTarget,
        limit: int,
        owner: SseOwner,
    ) -> None:
        self._client = client
        self._target = target
        self._limit = limit
        self._owner = owner
        self._endpoint: asyncio.Future[HttpTarget] = asyncio.get_running_loop().create_future()
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> HttpTarget:
        """Return the address for POSTs. Raises `DownstreamError` if it is not such a server."""
        response = await self._client.request("GET", self._target, {"accept": EVENT_STREAM})
        try:
            if response.status != 200 or response.content_type != EVENT_STREAM:
                text = await read_error_text(response)
                raise explain_status(response.status, response.headers, text, self._target.address, has_token=False)
            self._reader = asyncio.create_task(self._read(response))
            async with within(ENDPOINT_EVENT_TIMEOUT):
                # Shielded: the timeout would cancel the future, which the reader still completes.
                return await asyncio.shield(self._endpoint)
        except TimeoutError:
            raise DownstreamError(
                f"{self._target.address.origin} opened an event stream, but did not say where to send requests",
                hint='if it is a streamable HTTP server, set `transport` to "http"',
            ) from None
        finally:
            # From here on the reader owns the response, and releases it.
            if self._reader is None:
                response.release()

    async def stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait({reader})
        self._endpoint.cancel()

    async def _read(self, response: Response) -> None:
        reason = "the server closed its event stream"
        try:
            await read_events(response, SseParser(self._limit), self._limit, self._on_event)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            reason = explain(error, self._target.address).message
        finally:
            response.release()
        # Without an address the link was never open, so its end is not reported.
        if self._endpoint.done() and not self._endpoint.cancelled() and self._endpoint.exception() is None:
            self._owner.close(reason)
        elif not self._endpoint.done():
            self._endpoint.set_exception(DownstreamError(reason))

    def _on_event(self, event: ServerSentEvent) -> bool | Awaitable[bool]:
        if event.type == "endpoint" and not self._endpoint.done():
            try:
                self._endpoint.set_result(self._address(event.data.decode(errors="replace").strip()))
            except DownstreamError as error:
                self._endpoint.set_exception(error)
        elif event.type == "message" and len(event.data) > LONG_LINE:
            return deliver_large_event(self._owner, event)
        elif event.type == "message" and event.data:
            self._owner.deliver(event.data)
        return False

    def _address(self, text: str) -> HttpTarget:
        try:
            there = self._target.address.join(text)
        except BadAddress:
            raise DownstreamError("the server named no usable address for requests") from None
        if there.origin != self._target.address.origin:
            raise DownstreamError(
                f"{self._target.address.origin} wants requests sent to another origin, {there.origin}; "
                "your headers are not sent there",
                hint="if that is the right server, use its own address as `url`",
            )
        return HttpTarget(there, self._target.source, self._target.proxy)
