"""The least of HTTP/1.1 that a yardstick needs: requests in, JSON out, on uvloop and httptools.

Owns the parsing and the two lines of a head. Checks no header and knows no limit: nothing but a bench may stand in
front of it. Refuses to know what the bodies mean.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from signal import SIGINT, SIGTERM
from typing import cast

from httptools import HttpRequestParser, HttpResponseParser

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class Incoming(asyncio.Protocol):
    """One connection of a client. `handle` is given it and a whole body, and answers with `respond`."""

    def __init__(self, handle: Callable[[Incoming, bytes], None]) -> None:
        self._handle = handle
        self._parser = HttpRequestParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        self._handle(self, body)

    def respond(self, body: bytes) -> None:
        """An answer, or the receipt for what needs none."""
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body if body else ACCEPTED)


class Outgoing(asyncio.Protocol):
    """One connection to a server, for one request at a time. `handle` is given it and the body of each answer."""

    def __init__(self, handle: Callable[[Outgoing, bytes], None]) -> None:
        self._handle = handle
        self._parser = HttpResponseParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        self._handle(self, body)

    def request(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


async def listen(handle: Callable[[Incoming, bytes], None]) -> None:
    """Serves on a free port of this machine, says where on stderr, and ends with a signal."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, ended.set)
    server = await loop.create_server(lambda: Incoming(handle), "127.0.0.1", 0, backlog=2048)
    host, port = server.sockets[0].getsockname()
    print(f"serving at http://{host}:{port}/mcp", file=sys.stderr, flush=True)
    await ended.wait()
    server.close()
