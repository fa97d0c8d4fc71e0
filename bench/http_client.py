"""A raw MCP client over HTTP/1.1: kept-alive sockets, whole requests in one write, answers checked after the clock.

Owns `HttpCaller`, the form of `Caller` over sockets, in both eras. Takes plain JSON answers of a stated length only,
which is what a fast server gives to a short call; anything else ends the run. Refuses to know what it talks to.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterable, Mapping
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.client import BATCH_DEADLINE, CLIENT_INFO, PROTOCOL_VERSION, READ_SIZE, BenchError, Call, decode, encode

MODERN_VERSION = "2026-07-28"
STAMP = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
# Which parameter is mirrored into `Mcp-Name`.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Response(NamedTuple):
    """One whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One kept-alive socket. `buffer` is what has been read of the answer under way."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=BATCH_DEADLINE)
        except OSError as error:
            raise BenchError(f"no connection to {host}:{port}: {error}") from None
        # Blocking, with the kernel's own deadline: Python's would cost a further system call for each read.
        self._socket.setblocking(True)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(BATCH_DEADLINE), 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self._wanted = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None

    def receive(self) -> bytes | None:
        """Reads once; the whole answer with its head when it is all there."""
        try:
            chunk = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            raise BenchError(f"no answer within {BATCH_DEADLINE:.0f} s") from None
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None
        if not chunk:
            raise BenchError(f"the connection was closed after {self.buffer[:500]!r}")
        self.buffer += chunk
        if not self._wanted:
            self._wanted = whole_length(self.buffer)
        if not self._wanted or len(self.buffer) < self._wanted:
            return None
        if len(self.buffer) > self._wanted:
            raise BenchError(f"more than one answer: {self.buffer[self._wanted :][:500]!r}")
        answer, self.buffer, self._wanted = self.buffer, b"", 0
        return answer

    def exchange(self, data: bytes) -> bytes:
        self.send(data)
        while (answer := self.receive()) is None:
            pass
        return answer

    def receive_head(self) -> bytes:
        """Reads until the head of an answer has come: of a stream, which has no end."""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self._socket.recv(READ_SIZE) or self._closed()
        return self.buffer[: self.buffer.index(b"\r\n\r\n")]

    @property
    def is_open(self) -> bool:
        """Whether the other side still holds a stream open on which nothing need come."""
        try:
            while self._socket.recv(READ_SIZE, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()

    def _closed(self) -> bytes:
        raise BenchError(f"the connection was closed after {self.buffer[:500]!r}")


def whole_length(data: bytes) -> int:
    """How many bytes an answer has that begins like this; 0 while its head is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return 0
    lines = data[:end].lower().split(b"\r\n")
    for line in lines:
        if line.startswith(b"content-length:"):
            return end + 4 + int(line[15:])
    if lines[0].split(b" ")[1] in (b"202", b"204"):
        return end + 4
    raise BenchError(f"an answer without a length: {data[: end + 200].decode(errors='replace')}")


def parse_response(data: bytes) -> Response:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Response(int(first.split(" ")[1]), headers, body)


class HttpCaller:
    """The address of an MCP endpoint and as many connections to it as calls are in flight."""

    def __init__(
        self, url: str, *, modern: bool = True, token: str = "", legacy_version: str = PROTOCOL_VERSION
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._modern = modern
        self._version = MODERN_VERSION if modern else legacy_version
        self._token = token
        self._session = ""
        self._identifier = 0
        self._connections: list[Connection] = []

    def initialize(self) -> dict[str, Any]:
        """The handshake of a legacy session. A modern client has none."""
        params = {"protocolVersion": self._version, "capabilities": {}, "clientInfo": CLIENT_INFO}
        body = encode({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        response = parse_response(self._connected(1)[0].exchange(self.post("initialize", "", body)))
        self._session = response.headers.get("mcp-session-id", "")
        result = self._result("initialize", response.body)
        done = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        self._connected(1)[0].exchange(self.post("notifications/initialized", "", done))
        return result

    def request(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        self._identifier += 1
        stamped = {**params, "_meta": STAMP} if self._modern else params
        body = encode({"jsonrpc": "2.0", "id": self._identifier, "method": method, "params": stamped})
        name = str(params.get(NAMED_BY.get(method, ""), ""))
        return self._result(method, parse_response(self._connected(1)[0].exchange(self.post(method, name, body))).body)

    def latencies(self, call: Call, count: int) -> list[float]:
        connection = self._connected(1)[0]
        times: list[float] = []
        for identifier, request in self._requests(call, count):
            start = perf_counter_ns()
            answer = connection.exchange(request)
            times.append((perf_counter_ns() - start) / 1e9)
            self._check(call, answer, {identifier})
        return times

    def calls_per_second(self, call: Call, count: int, in_flight: int) -> float:
        """Each connection carries one call at a time, as HTTP/1.1 clients do."""
        requests = list(self._requests(call, count))
        connections = {each.fileno(): each for each in self._connected(min(in_flight, count))}
        answers: list[bytes] = []
        waiting = iter(requests)
        poll = select.poll()
        start = perf_counter()
        for number, connection in connections.items():
            poll.register(number, select.POLLIN)
            connection.send(next(waiting)[1])
        while len(answers) < count:
            ready = poll.poll(BATCH_DEADLINE * 1000)
            if not ready:
                raise BenchError(f"no answer within {BATCH_DEADLINE:.0f} s")
            for number, _ in ready:
                connection = connections[number]
                answer = connection.receive()
                if answer is not None:
                    answers.append(answer)
                    if following := next(waiting, None):
                        connection.send(following[1])
        elapsed = perf_counter() - start
        missing = {identifier for identifier, _ in requests}
        for answer in answers:
            self._check(call, answer, missing)
        return count / elapsed

    def open_stream(self) -> None:
        """The GET stream of a legacy session, on the connection that its handshake left free."""
        connection = self._connected(1)[0]
        lines = (f"GET {self._path} HTTP/1.1", *self._common(), "Accept: text/event-stream")
        connection.send("\r\n".join((*lines, "", "")).encode())
        head = connection.receive_head()
        if b" 200 " not in head.split(b"\r\n")[0] or b"text/event-stream" not in head.lower():
            raise BenchError(f"no stream was opened: {head.decode(errors='replace')}")

    def check_session(self) -> None:
        """That the stream is open and the session alive: memory of the forgotten costs nothing."""
        if not self._connections[0].is_open:
            raise BenchError("a stream was closed")
        body = b'{"jsonrpc":"2.0","id":"alive","method":"ping"}'
        connection = Connection(self._host, self._port)
        try:
            self._result("ping", parse_response(connection.exchange(self.post("ping", "", body))).body)
        finally:
            connection.close()

    def close(self) -> None:
        for each in self._connections:
            each.close()
        self._connections.clear()

    def __enter__(self) -> HttpCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post(self, method: str, name: str, body: bytes) -> bytes:
        """A request, whole."""
        lines = [
            f"POST {self._path} HTTP/1.1",
            *self._common(),
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self._modern:
            lines.append(f"Mcp-Method: {method}")
            if name:
                lines.append(f"Mcp-Name: {name}")
        return "\r\n".join((*lines, "", "")).encode() + body

    def _common(self) -> tuple[str, ...]:
        session = (f"Mcp-Session-Id: {self._session}",) if self._session else ()
        proof = (f"Authorization: Bearer {self._token}",) if self._token else ()
        return (f"Host: {self._host}:{self._port}", f"MCP-Protocol-Version: {self._version}", *session, *proof)

    def _connected(self, count: int) -> list[Connection]:
        while len(self._connections) < count:
            self._connections.append(Connection(self._host, self._port))
        return self._connections[:count]

    def _requests(self, call: Call, count: int) -> Iterable[tuple[int, bytes]]:
        params = decode(call.params)
        stamped = Call(encode({**params, "_meta": STAMP}), call.text) if self._modern else call
        for _ in range(count):
            self._identifier += 1
            body = stamped.line(self._identifier)[:-1]
            yield self._identifier, self.post("tools/call", params["name"], body)

    @staticmethod
    def _check(call: Call, answer: bytes, missing: set[int]) -> None:
        response = parse_response(answer)
        if response.status != 200 or response.headers.get("content-type") != "application/json":
            raise BenchError(f"a call failed: {answer[:1000].decode(errors='replace')}")
        message = decode(response.body)
        if message.get("id") not in missing:
            raise BenchError(f"an answer to nothing we asked: {response.body[:500].decode(errors='replace')}")
        missing.discard(message["id"])
        call.check(message)

    @staticmethod
    def _result(method: str, body: bytes) -> dict[str, Any]:
        message = decode(body)
        if not isinstance(message.get("result"), dict):
            raise BenchError(f"`{method}` failed: {body[:500].decode(errors='replace')}")
        result: dict[str, Any] = message["result"]
        return result
