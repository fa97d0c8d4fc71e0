"""The bad server over HTTP: a thread for each connection, bare sockets, and faults that no HTTP library would commit.

What it does is in the faults file under `http`, read again with every request: `{"on": ["tools/call"], KIND: ...}`, where
`on` (all methods, if it is missing) says which requests it concerns and KIND is one of

- `status`: answer with this status, `headers` and `body` (text);
- `reset`: `"before"` the head, in the `"middle"` of a body of known length, or of a `"stream"` of events;
- `redirect`: to this address, `"loop"` for ourselves;
- `stream`: `"endless"` comments and no answer, `"lies"` in its framing before the answer, `"short"`: it ends without one;
- `raw`: these bytes (latin-1) instead of a response;
- `hang`: nothing at all;
- `forget`: the session is unknown (404), however often it was made.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
from io import BufferedReader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.bad_server import BadServer

Json = dict[str, Any]

LIES = (
    b"data\n\n: comment\n\ndata: not json\n\ndata: {\n\nevent: strange\ndata: {}\n\nid: \x00\ndata:\n\nretry: soon\n\n"
    b"data: [1,2]\n\n\xef\xbb\xbfdata: {}\n\ndata: \xff\xfe\n\n\r\r\n\n"
)
STREAM_SECONDS = 600
# Connections that are not used are closed.
IDLE_SECONDS = 0.5


class Hangup(Exception):
    """The connection is to be closed."""


def serve_http(server: BadServer, port_file: str) -> None:
    """Listen on the port that the file names, or on any and write it there; a second start gets the same one."""
    try:
        with open(port_file) as file:
            port = int(file.read())
    except (FileNotFoundError, ValueError):
        port = 0
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    with open(f"{port_file}.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.replace(f"{port_file}.new", port_file)
    # Our end is the end of whoever started us.
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    sessions: set[str] = set()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_Visit(server, sessions, connection).run, daemon=True).start()


def _end_with_stdin() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


class _Visit:
    """One connection."""

    def __init__(self, server: BadServer, sessions: set[str], connection: socket.socket) -> None:
        self.server, self.sessions, self.socket = server, sessions, connection
        self.file = BufferedReader(socket.SocketIO(connection, "rb"))

    def run(self) -> None:
        try:
            while self._serve_one():
                pass
        except (OSError, Hangup, ValueError):
            pass
        finally:
            self.file.close()
            self.socket.close()

    def _serve_one(self) -> bool:
        self.socket.settimeout(IDLE_SECONDS)
        found = self.file.peek(1)[:1]
        self.socket.settimeout(None)
        if not found.isalpha():
            # Somebody speaks TLS, or something else.
            self.socket.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" if found else b"")
            return False
        first = self.file.readline().decode("latin-1").split()
        if len(first) < 2:
            return False
        headers: dict[str, str] = {}
        while (line := self.file.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = self.file.read(int(headers.get("content-length", "0")))
        if first[0] != "POST":
            self._respond(405 if first[0] == "GET" else 200, b"")
            return True
        message = json.loads(body)
        fault = self.server.faults().get("http", {})
        method = message.get("method", "")
        if (not fault.get("on") or method in fault["on"]) and self._misbehave(fault, message, body):
            return True
        session = headers.get("mcp-session-id")
        if method not in ("initialize", "server/discover") and session is not None and session not in self.sessions:
            self._respond(404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such session"}}')
            return True
        self._answer(message, body)
        return True

    # Healthy

    def _answer(self, message: Json, body: bytes) -> None:
        extra = {}
        if message.get("method") == "initialize":
            extra["Mcp-Session-Id"] = secrets.token_hex(8)
            self.sessions.add(extra["Mcp-Session-Id"])
        written: list[bytes] = []
        done, sent = threading.Event(), threading.Event()
        here = threading.current_thread()

        def write(data: bytes) -> None:
            written.append(data)
            done.set()
            if threading.current_thread() is not here:
                sent.wait(STREAM_SECONDS)

        self.server.answer(body, write)
        if "id" not in message:
            self._respond(202, b"")
            return
        if not done.wait(STREAM_SECONDS):
            raise Hangup
        self._respond(200, b"".join(written).splitlines()[-1], extra)
        sent.set()

    def _respond(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body)

    # Not healthy

    def _misbehave(self, fault: Json, message: Json, body: bytes) -> bool:
        """Whether that was the answer."""
        if "status" in fault:
            self._respond(fault["status"], fault.get("body", "").encode(), fault.get("headers"))
        elif "reset" in fault:
            self._reset(fault["reset"])
        elif "redirect" in fault:
            there = "/mcp" if fault["redirect"] == "loop" else fault["redirect"]
            self._respond(fault.get("code", 307), b"", {"Location": there})
        elif "stream" in fault and "id" in message:
            self._stream(fault["stream"], message, body)
        elif "raw" in fault:
            self.socket.sendall(fault["raw"].encode("latin-1"))
            raise Hangup
        elif "hang" in fault:
            time.sleep(STREAM_SECONDS)
        elif "forget" in fault:
            self.sessions.clear()
            return False
        else:
            return False
        return True

    def _reset(self, when: str) -> None:
        if when == "middle":
            self.socket.sendall(
                b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"jso'
            )
        elif when == "stream":
            self.socket.sendall(_STREAM_HEAD + _chunk(b": hello\n\n") + b"40\r\ndata: {")
        time.sleep(0.05)
        # Closed with a reset instead of a goodbye.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Hangup

    def _stream(self, kind: str, message: Json, body: bytes) -> None:
        self.socket.sendall(_STREAM_HEAD)
        if kind == "endless":
            while True:
                self.socket.sendall(_chunk(b": still here\n\n"))
                time.sleep(0.05)
        if kind == "lies":
            self.socket.sendall(_chunk(LIES))
            answer: list[bytes] = []
            self.server.answer(body, answer.append)
            event = b"data: " + answer[0].strip() + b"\n\n"
            for piece in (event[:7], event[7:20], event[20:]):
                self.socket.sendall(_chunk(piece))
        self.socket.sendall(b"0\r\n\r\n")


_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
