"""The only way out of a sandbox that may reach some hosts: an HTTP proxy, which is the workbench itself.

The sandbox has a network of its own with nothing in it but one listener, which its first process hands to us. Requests
that arrive there name a host, in `CONNECT` or as a whole address; it is checked, looked up once, and what was checked
is what is connected to. What passes through a tunnel is not looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mcp_workbench.engine.sandbox.egress_rules import EgressRules
from mcp_workbench.engine.sandbox.sandbox import OnRefused, RefusedHost
from mcp_workbench.engine.transport.http.client.dialing import (
    HTTP_CONNECT_TIMEOUT,
    AddressInfo,
    DialFailed,
    connect_to,
    look_up,
)

log = logging.getLogger(__name__)

# Of one server. As many more are told that they are too many; the rest is closed, because each holds a descriptor.
MAX_CONNECTIONS: Final = 64
# Looking a name up blocks a thread of those that all servers share.
MAX_LOOK_UPS: Final = 2
MAX_HEAD_BYTES: Final = 16 * 1024
HEAD_TIMEOUT: Final = 10.0
# Without a byte in either direction.
IDLE_TIMEOUT: Final = 600.0
CLOSE_TIMEOUT: Final = 1.0
# For the rest of a request that was refused.
LINGER_TIMEOUT: Final = 1.0
_CHUNK_BYTES: Final = 64 * 1024
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_STATUSES: Final = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}
# For one hop alone, and so for us; a connection carries one request.
_HOP_HEADERS: Final = (b"proxy-connection:", b"proxy-authorization:", b"connection:", b"keep-alive:", b"host:")


class EgressTarget(NamedTuple):
    host: str
    port: int
    # What is sent on, for plain HTTP; None for a tunnel.
    head: bytes | None


class _ProxyAnswer(Exception):
    """Ends a connection with a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class EgressProxy:
    """The proxy of one server."""

    def __init__(self, channel: socket.socket, rules: EgressRules, refused: OnRefused) -> None:
        """`channel`: where the listener arrives. `refused` is told of every host that is to be refused."""
        self.process = None
        self._channel = channel
        self._rules = rules
        self._refused = refused
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._arriving: asyncio.Task[None] | None = None
        self._looking_up: asyncio.Semaphore | None = None

    def begin(self) -> None:
        """The server was started. Called on the event loop."""
        self._looking_up = asyncio.Semaphore(MAX_LOOK_UPS)
        self._arriving = asyncio.get_running_loop().create_task(self._serve())

    def abandon(self) -> None:
        """The server was not started."""
        self._channel.close()

    async def close(self) -> None:
        """End all connections. Bounded."""
        tasks = [each for each in (self._arriving, *self._connections) if each is not None]
        if self._server is not None:
            self._server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)
        self._channel.close()

    async def _serve(self) -> None:
        listener = await self._received()
        if listener is not None:
            self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)

    async def _received(self) -> socket.socket | None:
        """The listener; None if the sandbox ended before it was sent."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        self._channel.setblocking(False)
        loop.add_reader(self._channel, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._channel)
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
            self._channel.close()
            if descriptors:
                return socket.socket(fileno=descriptors[0])
        return None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= 2 * MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await self._answer(reader, writer)
            writer.close()
        except asyncio.CancelledError:
            # The proxy is closed: nobody waits for what this task raises.
            writer.transport.abort()
        except Exception as error:
            log.debug("a connection out of a sandbox ended: %r", error)
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                raise _ProxyAnswer(503, f"more than {MAX_CONNECTIONS} connections at once")
            target = read_target(await _head(reader))
            there = await self._connected(target)
        except _ProxyAnswer as answer:
            writer.write(_response(answer.status, str(answer)))
            writer.write_eof()
            # What is left unread when a connection is closed makes the system discard what was written.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LINGER_TIMEOUT):
                    while await reader.read(_CHUNK_BYTES):
                        pass
            return
        out_reader, out_writer = await asyncio.open_connection(sock=there, limit=MAX_HEAD_BYTES)
        try:
            if target.head is None:
                writer.write(_ESTABLISHED)
            else:
                out_writer.write(target.head)
            await _relay((reader, out_writer), (out_reader, writer))
        except BaseException:
            out_writer.transport.abort()
            raise
        out_writer.close()

    async def _connected(self, target: EgressTarget) -> socket.socket:
        host, port, _ = target
        rules = self._rules
        refusal = rules.refusal(host, port)
        if refusal is not None:
            self._refuse(host, port, refusal)
            rules = rules.and_also(refusal.entry)
        try:
            async with asyncio.timeout(HTTP_CONNECT_TIMEOUT):
                found = await self._looked_up(host, port)
                judged = [(each, rules.address_refusal(host, port, each[4][0])) for each in found]
                allowed = [each for each, why in judged if why is None]
                if not allowed and judged and (first := judged[0])[1] is not None:
                    self._refuse(host, port, first[1])
                    allowed = [first[0]]
                return await connect_to(allowed)
        except DialFailed as error:
            why = "its name cannot be resolved" if error.stage == "name" else "it cannot be connected to"
            raise _ProxyAnswer(502, f"`{host}`: {why}") from None
        except TimeoutError:
            raise _ProxyAnswer(502, f"`{host}` did not answer within {HTTP_CONNECT_TIMEOUT:g} s") from None

    async def _looked_up(self, host: str, port: int) -> list[AddressInfo]:
        slots = self._looking_up
        assert slots is not None
        await slots.acquire()
        # Its thread is occupied until it has an answer, whether or not somebody still waits for it.
        task = asyncio.ensure_future(look_up(host, port))
        task.add_done_callback(lambda _: slots.release())
        return await asyncio.shield(task)

    def _refuse(self, host: str, port: int, refusal: RefusedHost) -> None:
        """Raises `_ProxyAnswer`, unless somebody has allowed it meanwhile."""
        if not self._refused(host, port, refusal):
            raise _ProxyAnswer(403, f"the sandbox of this server refuses it: {refusal.reason}")


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT):
            return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _ProxyAnswer(400, f"the head of the request has more than {MAX_HEAD_BYTES} bytes") from None
    except (asyncio.IncompleteReadError, TimeoutError):
        raise _ProxyAnswer(400, "the request is incomplete") from None


def read_target(head: bytes) -> EgressTarget:
    """Where a request is to go. Raises `_ProxyAnswer`. Pure."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not first.isascii() or not words[2].startswith(b"HTTP/1."):
        raise _ProxyAnswer(400, "this is a proxy for HTTP/1")
    method, address, version = words
    written = address.decode("ascii")
    try:
        parts = urlsplit(f"//{written}" if method == b"CONNECT" else written)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _ProxyAnswer(400, "the request names no host") from None
    if not host or any(each.startswith((b" ", b"\t")) or b"\n" in each or b"\r" in each for each in lines):
        raise _ProxyAnswer(400, "the request names no host")
    if method == b"CONNECT":
        if port is None or parts.path or parts.query:
            raise _ProxyAnswer(400, "the request names no port")
        return EgressTarget(host, port, None)
    if parts.scheme != "http":
        raise _ProxyAnswer(400, "only `http://` addresses, and `CONNECT` for all others")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [each for each in lines if not each.lower().startswith(_HOP_HEADERS)]
    netloc = parts.netloc.rpartition("@")[2].encode("ascii")
    request = b" ".join((method, path.encode("ascii"), version))
    return EgressTarget(
        host, port or 80, b"\r\n".join((request, b"Host: " + netloc, b"Connection: close", *kept, b"\r\n"))
    )


async def _relay(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass on what arrives until both directions have ended. Raises if one fails, or nothing has passed for long."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_TIMEOUT) as bound, asyncio.TaskGroup() as group:
        for reader, writer in ways:
            group.create_task(_copy(reader, writer, lambda: bound.reschedule(loop.time() + IDLE_TIMEOUT)))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[], None]) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        passed()
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _response(status: int, sentence: str) -> bytes:
    body = f"{sentence}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_STATUSES[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
