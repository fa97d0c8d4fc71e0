"""Encryption for tests: a certificate that can be vouched for, an encrypted listener, a proxy that makes tunnels.

Owns sockets and certificates. Refuses to know what is said through them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.engine.transport.http.listening import wait_until

NAMES = "subjectAltName=DNS:localhost,DNS:far.invalid,IP:127.0.0.1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for `far.invalid` and for this machine, which is its own authority; and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(
        [*command, "-addext", NAMES, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    return certificate, key


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> bytes:
    """Everything from here to there, until the end; what it was."""
    seen = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            seen += data
            sink.write(data)
    sink.close()
    return seen


class Listener:
    """A listening socket whose visitors are counted."""

    def __init__(self) -> None:
        self.port = 0
        self.open = 0


@contextlib.asynccontextmanager
async def listening(serve: Serve, vouched: tuple[Path, Path] | None = None) -> AsyncIterator[Listener]:
    """`serve` each visitor, encrypted where there is a certificate; in the end all of them must have gone."""
    listener = Listener()
    context = None
    if vouched is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*vouched)

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener.open += 1
        try:
            await serve(reader, writer)
        finally:
            listener.open -= 1
            writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", 0, ssl=context)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
        await wait_until(lambda: listener.open == 0)
    finally:
        server.close()


class Proxy:
    """A proxy that connects to `port` whatever it is asked for, and keeps what it saw of it."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self.seen = b""
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        seen, _ = await asyncio.gather(pump(reader, back), pump(there, writer))
        self.seen += seen
