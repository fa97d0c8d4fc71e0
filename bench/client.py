"""A raw MCP client: sends lines, takes times, and checks every answer after the clock has stopped.

Owns what a measurement asks of a connection (`Caller`) and its form over the pipes of a child process (`StdioCaller`).
Other transports implement `Caller` in modules of their own. Refuses to know what is being measured against what.
No SDK and no event loop: between two time stamps there is one write and the reads of its answer.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple, Protocol

try:
    import orjson

    decode: Callable[[bytes], Any] = orjson.loads

    def encode(value: object) -> bytes:
        return orjson.dumps(value)

except ImportError:
    import json

    decode = json.loads

    def encode(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


PROTOCOL_VERSION = "2025-11-25"
CLIENT_INFO = {"name": "bench", "version": "1.0.0"}
READ_SIZE = 1 << 18
# Long enough for 10,000 tools on a slow machine, short enough that a lost answer ends the run and not the day.
BATCH_DEADLINE = 120.0
# A gateway may let running calls finish and end its servers one signal after another.
EXIT_DEADLINE = 15.0
STDERR_LINES = 12


class BenchError(Exception):
    """The run cannot go on: a process died, an answer was lost, or an answer was wrong."""


class Call(NamedTuple):
    """One `tools/call`, sent many times: its encoded params and the text that a right answer carries."""

    params: bytes
    text: str

    @classmethod
    def of(cls, name: str, arguments: Mapping[str, object], *, text: str) -> Call:
        return cls(encode({"name": name, "arguments": arguments}), text)

    def line(self, identifier: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}\n' % (identifier, self.params)

    def check(self, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or result.get("isError"):
            raise BenchError(f"a call failed: {encode(message)[:500].decode(errors='replace')}")
        content = result.get("content")
        if not content or content[0].get("text") != self.text:
            raise BenchError(f"a call was answered wrongly: {encode(result)[:500].decode(errors='replace')}")


class Caller(Protocol):
    """What a measurement asks of a connection, whatever it runs over."""

    def request(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """One request, its result; `BenchError` for an error."""

    def latencies(self, call: Call, count: int) -> list[float]:
        """`count` calls one after another: seconds each, from the first byte written to the last byte read."""

    def calls_per_second(self, call: Call, count: int, in_flight: int) -> float:
        """`count` calls of which `in_flight` are under way at any time."""

    def close(self) -> None:
        """Ends the connection and whatever was started for it."""


class StdioCaller:
    """A command and its two pipes."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        self._command = list(command)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=None if environment is None else dict(environment),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._sink = self._process.stdin.fileno()
        self._source = self._process.stdout.fileno()
        # A full pipe must not block us while the other side waits for us to read: see `_write`.
        os.set_blocking(self._sink, False)
        self._unread: list[bytes] = []
        self._identifier = 0
        self._overdue = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def initialize(self) -> dict[str, Any]:
        """The legacy handshake; the result of `initialize`."""
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
        result = self.request("initialize", params)
        self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return result

    def request(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        with self._deadline():
            identifier = self._next_identifier()
            self._write(encode({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}) + b"\n")
            message = self._answer_to(identifier, self._read_lines())
        if not isinstance(message.get("result"), dict):
            raise BenchError(f"`{method}` failed: {encode(message)[:500].decode(errors='replace')}")
        result: dict[str, Any] = message["result"]
        return result

    def latencies(self, call: Call, count: int) -> list[float]:
        times: list[float] = []
        with self._deadline():
            for _ in range(count):
                identifier = self._next_identifier()
                line = call.line(identifier)
                start = perf_counter_ns()
                self._write(line)
                data = self._read_lines()
                end = perf_counter_ns()
                message = self._message(identifier, data)
                while message is None:  # a notification came first: the call's time goes on
                    data = self._read_lines()
                    end = perf_counter_ns()
                    message = self._message(identifier, data)
                call.check(message)
                times.append((end - start) / 1e9)
        return times

    def calls_per_second(self, call: Call, count: int, in_flight: int) -> float:
        first = self._identifier + 1
        self._identifier += count
        lines = [call.line(identifier) for identifier in range(first, first + count)]
        received: list[bytes] = []
        with self._deadline():
            start = perf_counter()
            sent = min(in_flight, count)
            self._write(b"".join(lines[:sent]))
            answered = 0
            while answered < count:
                chunk = self._read()
                received.append(chunk)
                ended = chunk.count(b"\n")
                answered += ended
                if ended and sent < count:
                    self._write(b"".join(lines[sent : sent + ended]))
                    sent += ended
            elapsed = perf_counter() - start
            self._check_answers(call, range(first, first + count), b"".join(received))
        return count / elapsed

    def end_input(self) -> None:
        """Tells the process that nothing more will come."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """Ends the process the polite way, then the other one."""
        assert self._process.stdout is not None
        self.end_input()
        try:
            self._process.wait(EXIT_DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> StdioCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_identifier(self) -> int:
        self._identifier += 1
        return self._identifier

    def _read(self) -> bytes:
        if self._unread:
            return self._unread.pop(0)
        chunk = os.read(self._source, READ_SIZE)
        if not chunk:
            raise self._ended()
        return chunk

    def _read_lines(self) -> bytes:
        """Reads until what has come ends with a line."""
        chunk = self._read()
        if chunk.endswith(b"\n"):
            return chunk
        chunks = [chunk]
        while not chunk.endswith(b"\n"):
            chunk = self._read()
            chunks.append(chunk)
        return b"".join(chunks)

    def _write(self, data: bytes) -> None:
        """Writes everything; keeps reading meanwhile, because the other side may wait for that."""
        try:
            written = os.write(self._sink, data)
            if written == len(data):
                return
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            raise self._ended() from None
        poll = select.poll()
        poll.register(self._sink, select.POLLOUT)
        poll.register(self._source, select.POLLIN)
        rest = memoryview(data)
        while written < len(data):
            ready = dict(poll.poll())
            if ready.get(self._source):
                chunk = os.read(self._source, READ_SIZE)
                if not chunk:
                    raise self._ended()
                self._unread.append(chunk)
            if ready.get(self._sink):
                try:
                    written += os.write(self._sink, rest[written:])
                except BrokenPipeError:
                    raise self._ended() from None

    def _message(self, identifier: int, data: bytes) -> dict[str, Any] | None:
        """The answer to `identifier` among these lines. Requests from the other side get an error, not silence."""
        found: dict[str, Any] | None = None
        for line in data.split(b"\n"):
            if not line:
                continue
            message = decode(line)
            if "method" in message:
                if "id" in message:
                    self._write(self._refusal(message))
            elif message.get("id") == identifier:
                found = message
            else:
                raise BenchError(f"an answer to nothing we asked: {line[:500].decode(errors='replace')}")
        return found

    @staticmethod
    def _refusal(request: Mapping[str, Any]) -> bytes:
        """A ping is alive, anything else is not for us: the other side shall not wait for a bench."""
        outcome: dict[str, object] = {"error": {"code": -32601, "message": "the bench offers nothing"}}
        if request["method"] == "ping":
            outcome = {"result": {}}
        return encode({"jsonrpc": "2.0", "id": request["id"], **outcome}) + b"\n"

    def _answer_to(self, identifier: int, data: bytes) -> dict[str, Any]:
        while (message := self._message(identifier, data)) is None:
            data = self._read_lines()
        return message

    def _check_answers(self, call: Call, expected: range, data: bytes) -> None:
        """Every id answered exactly once and rightly. Notifications make the count come up short: reads those after."""
        missing = set(expected)
        while missing:
            if not data.endswith(b"\n"):
                data += self._read_lines()
            for line in data.splitlines():
                message = decode(line)
                if "method" in message:
                    continue
                if message.get("id") not in missing:
                    raise BenchError(f"an answer to nothing we asked: {line[:500].decode(errors='replace')}")
                missing.discard(message["id"])
                call.check(message)
            data = self._read_lines() if missing else b""

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Ends the process when the batch takes too long: a blocked read then sees the end of the stream."""

        def overdue() -> None:
            self._overdue = True
            self._process.kill()

        timer = threading.Timer(BATCH_DEADLINE, overdue)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _ended(self) -> BenchError:
        reason = f"did not answer within {BATCH_DEADLINE:.0f} s" if self._overdue else "ended early"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()[-STDERR_LINES:]
        return BenchError("\n".join([f"`{' '.join(self._command)}` {reason}", *lines]))
