"""The bare forwarder: the least that can stand between a client and a server and still keep their ids apart.

Owns one child, a counter and a table of ids. Each line is decoded, its id replaced, and written on; the answer gets its
old id back. No routing, no names, no life cycle: this is the yardstick for what the workbench adds to a call.
Refuses to know MCP and the rest of `bench`, so that it can be started as a script.

    python forwarder.py [--plain] -- COMMAND [ARGUMENT ...]

`--plain` does the same with asyncio's own loop and `json`, to show what uvloop and orjson bring.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, cast

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


class Lines:
    """Splits a stream into lines; looks at each byte once, however small the pieces."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        end = chunk.rfind(b"\n")
        if end < 0:
            self._unfinished.append(chunk)
            return []
        self._unfinished.append(chunk[:end])
        whole = b"".join(self._unfinished)
        self._unfinished = [chunk[end + 1 :]]
        return whole.split(b"\n")


class Forwarder:
    """Rewrites the ids of requests on their way down and gives them back on the way up."""

    def __init__(self, decode: Decode, encode: Encode) -> None:
        self._decode = decode
        self._encode = encode
        self._counter = 0
        self._identifiers: dict[int, object] = {}
        self._from_client = Lines()
        self._from_server = Lines()

    def down(self, chunk: bytes) -> bytes:
        """What the client sent, as the server shall see it."""
        out: list[bytes] = []
        for line in self._from_client.feed(chunk):
            message = self._decode(line)
            if "id" in message and "method" in message:
                self._counter += 1
                self._identifiers[self._counter] = message["id"]
                message["id"] = self._counter
            out.append(self._encode(message))
        return b"".join(out)

    def up(self, chunk: bytes) -> bytes:
        """What the server sent, as the client shall see it. Requests of the server keep their ids."""
        out: list[bytes] = []
        for line in self._from_server.feed(chunk):
            message = self._decode(line)
            if "id" in message and "method" not in message:
                message["id"] = self._identifiers.pop(message["id"], None)
            out.append(self._encode(message))
        return b"".join(out)


class _FromClient(asyncio.Protocol):
    def __init__(self, forwarder: Forwarder, server: asyncio.WriteTransport) -> None:
        self._forwarder = forwarder
        self._server = server

    def data_received(self, data: bytes) -> None:
        if out := self._forwarder.down(data):
            self._server.write(out)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.close()


class _FromServer(asyncio.SubprocessProtocol):
    def __init__(self, forwarder: Forwarder, client: asyncio.WriteTransport, ended: asyncio.Future[None]) -> None:
        self._forwarder = forwarder
        self._client = client
        self._ended = ended

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if out := self._forwarder.up(data):
            self._client.write(out)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


async def forward(command: list[str], decode: Decode, encode: Encode) -> None:
    """Runs until the server has ended, which it does when the client closes its side."""
    loop = asyncio.get_running_loop()
    forwarder = Forwarder(decode, encode)
    ended: asyncio.Future[None] = loop.create_future()
    client, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout.buffer)
    child, _ = await loop.subprocess_exec(
        lambda: _FromServer(forwarder, client, ended), *command, stderr=None, stdin=-1, stdout=-1
    )
    # uvloop's transports are not subclasses of asyncio's.
    server = cast(asyncio.WriteTransport, child.get_pipe_transport(0))
    await loop.connect_read_pipe(lambda: _FromClient(forwarder, server), sys.stdin.buffer)
    await ended


def plain() -> tuple[Callable[[], asyncio.AbstractEventLoop], Decode, Encode]:
    """asyncio's own loop with the standard library's `json`."""

    def encode(message: object) -> bytes:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    return asyncio.new_event_loop, json.loads, encode


def fast() -> tuple[Callable[[], asyncio.AbstractEventLoop], Decode, Encode]:
    """uvloop with orjson: the yardstick proper."""
    import orjson
    import uvloop

    def encode(message: object) -> bytes:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)

    return uvloop.new_event_loop, orjson.loads, encode


def main(arguments: list[str]) -> int:
    if "--" not in arguments or arguments[-1] == "--":
        print("usage: forwarder.py [--plain] -- COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    split = arguments.index("--")
    new_loop, decode, encode = plain() if "--plain" in arguments[:split] else fast()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(forward(arguments[split + 1 :], decode, encode))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
