"""A raw MCP client for tests: it sends what it is told to and keeps everything that comes back.

`Conversation` owns the messages, `RawClient` a child process that they are exchanged with. Knows both eras only as far
as a handshake and the `_meta` stamp go, validates nothing, and hides nothing: what a test asserts is what was on the
wire. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

Json = dict[str, Any]
RequestHandler = Callable[[Json], Json]

LEGACY_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
CLIENT_INFO = {"name": "raw-client", "version": "1.0"}
# Generous, because the machine may be busy: nothing that works comes near it.
ANSWER_TIMEOUT = 60.0
# How long a process may take to go after its stdin was closed before the test is failed for it.
EXIT_TIMEOUT = 30.0
POLL_INTERVAL = 0.01
# The largest message that a test sends or receives.
MESSAGE_LIMIT = 256 * 1024 * 1024


class RpcError(Exception):
    """The answer was a JSON-RPC error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.error = error
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Call:
    """A request under way: `await call.response()` for the whole message, `await call.result()` for what is in it."""

    def __init__(self, request_id: str | int, future: asyncio.Future[Json], timeout: float) -> None:
        self.id = request_id
        self._future = future
        self._timeout = timeout

    @property
    def answered(self) -> bool:
        return self._future.done()

    async def response(self) -> Json:
        return await asyncio.wait_for(asyncio.shield(self._future), self._timeout)

    async def result(self) -> Json:
        response = await self.response()
        if "error" in response:
            raise RpcError(response["error"])
        result: Json = response["result"]
        return result


class Conversation:
    """Everything that is said on one connection, whatever carries it."""

    def __init__(self) -> None:
        self.notifications: list[Json] = []
        # Requests that came from the other side, and what answers them; without a handler they get -32601.
        self.server_requests: list[Json] = []
        self.handlers: dict[str, RequestHandler] = {"ping": lambda params: {}}
        # Methods of requests from the other side that are not answered at all.
        self.silent: set[str] = set()
        # Answers nobody waited for, and lines that were no JSON-RPC message at all.
        self.unmatched: list[Json] = []
        self.garbage: list[bytes] = []
        self.received_bytes = 0
        self._meta: Json = {}
        self._ids = itertools.count(1)
        self._waiting: dict[str | int, asyncio.Future[Json]] = {}
        self._arrival = asyncio.Condition()

    # Talking

    def stamp(self, version: str = MODERN_VERSION, capabilities: Json | None = None, **more: Any) -> None:
        """From now on every request carries the `_meta` of the modern era; `more` adds keys under the same prefix."""
        fields = {
            "protocolVersion": version,
            "clientInfo": CLIENT_INFO,
            "clientCapabilities": capabilities or {},
            **more,
        }
        self._meta = {f"io.modelcontextprotocol/{key}": value for key, value in fields.items()}

    async def initialize(self, version: str = LEGACY_VERSION, capabilities: Json | None = None) -> Json:
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": CLIENT_INFO}
        result = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return result

    async def discover(self) -> Json:
        return await self.request("server/discover")

    async def start(
        self, method: str, params: Json | None = None, *, id: str | int | None = None, timeout: float = ANSWER_TIMEOUT
    ) -> Call:
        """Send a request and come back at once."""
        request_id = next(self._ids) if id is None else id
        future = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        if self._meta:
            params = {**(params or {}), "_meta": {**self._meta, **(params or {}).get("_meta", {})}}
        message: Json = {"jsonrpc": "2.0", "id": request_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return Call(request_id, future, timeout)

    async def request(self, method: str, params: Json | None = None, *, timeout: float = ANSWER_TIMEOUT) -> Json:
        return await (await self.start(method, params, timeout=timeout)).result()

    async def start_tool(self, name: str, arguments: Json | None = None, **fields: Any) -> Call:
        return await self.start("tools/call", {"name": name, "arguments": arguments or {}, **fields})

    async def call_tool(self, name: str, arguments: Json | None = None, **fields: Any) -> Json:
        """`fields` go beside `name` and `arguments`: `_meta={"progressToken": 1}`, `inputResponses=...`."""
        return await (await self.start_tool(name, arguments, **fields)).result()

    async def use_tool(
        self, toolbox: str, server: str, tool: str, arguments: Json | None = None, **fields: Any
    ) -> Json:
        """`call_tool` through the workbench's `use_tool`."""
        path = {"toolbox": toolbox, "server": server, "tool": tool}
        return await self.call_tool("use_tool", {"tool": path, "arguments": arguments or {}}, **fields)

    async def notify(self, method: str, params: Json | None = None) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self.send(message if params is None else {**message, "params": params})

    async def cancel(self, call: Call, reason: str = "the test cancels it") -> None:
        await self.notify("notifications/cancelled", {"requestId": call.id, "reason": reason})

    async def send(self, message: object) -> None:
        await self.send_bytes(json.dumps(message).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        raise NotImplementedError

    @property
    def stderr(self) -> str:
        """What the other side wrote for people."""
        return ""

    # Waiting

    def waiting(self) -> list[str | int]:
        """The ids of requests that are not answered yet."""
        return list(self._waiting)

    async def wait_for(self, predicate: Callable[[], bool], what: str, timeout: float = ANSWER_TIMEOUT) -> None:
        """Until `predicate()` holds; it is asked again whenever something arrives."""
        try:
            async with asyncio.timeout(timeout), self._arrival:
                await self._arrival.wait_for(predicate)
        except TimeoutError:
            raise AssertionError(f"no {what} within {timeout} s; stderr: {self.stderr[-2000:]}") from None

    def received(self, method: str) -> list[Json]:
        """The parameters of the notifications of one kind, in order of arrival."""
        return [message.get("params", {}) for message in self.notifications if message["method"] == method]

    async def wait_notification(self, method: str, count: int = 1) -> list[Json]:
        await self.wait_for(lambda: len(self.received(method)) >= count, f"{count} x {method}")
        return self.received(method)

    # Reading

    async def take_line(self, line: bytes) -> None:
        """One line from the other side."""
        self.received_bytes += len(line)
        try:
            message = json.loads(line)
            assert isinstance(message, dict) and message.get("jsonrpc") == "2.0"
        except (ValueError, AssertionError):
            self.garbage.append(line)
        else:
            await self._take(message)
        async with self._arrival:
            self._arrival.notify_all()

    def hung_up(self) -> None:
        """Nothing more will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError("the process closed its output before it answered"))
                # Nobody may be waiting any more; that is no reason to warn.
                future.exception()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            future = self._waiting.pop(message.get("id", ""), None)
            if future is None or future.done():
                self.unmatched.append(message)
            else:
                future.set_result(message)
        elif "id" in message:
            self.server_requests.append(message)
            if message["method"] not in self.silent:
                await self._answer(message)
        else:
            self.notifications.append(message)

    async def _answer(self, message: Json) -> None:
        handler = self.handlers.get(message["method"])
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if handler is None:
            answer["error"] = {"code": -32601, "message": f"Method not found: {message['method']}"}
        else:
            try:
                answer["result"] = handler(message.get("params") or {})
            except RpcError as error:
                answer["error"] = error.error
        await self.send(answer)


class RawClient(Conversation):
    """Use as `async with RawClient.spawn([...]) as client`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process
        self._stderr = bytearray()
        self._readers = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]

    @classmethod
    @asynccontextmanager
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        modern: bool = False,
        expect_exit: bool = True,
        **options: Any,
    ) -> AsyncIterator[RawClient]:
        """Start `command`; at the end close its stdin and fail if it does not go (`expect_exit=False`: kill it)."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, limit=MESSAGE_LIMIT, **options
        )
        client = cls(process)
        if modern:
            client.stamp()
        try:
            yield client
            if expect_exit:
                client.close_stdin()
                await client.wait_exit()
        finally:
            await client._end()

    async def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        # A process that has gone shows itself as an answer that never comes; writing to it is not the test's subject.
        with suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.wait_for(self.process.stdin.drain(), ANSWER_TIMEOUT)

    # The process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace")

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def wait_exit(self, timeout: float = EXIT_TIMEOUT) -> int:
        # Not `process.wait()`: that also waits for the pipes, which a grandchild may hold open for ever.
        try:
            async with asyncio.timeout(timeout):
                while (status := self.process.returncode) is None:
                    await asyncio.sleep(POLL_INTERVAL)
                return status
        except TimeoutError:
            raise AssertionError(f"still running after {timeout} s; stderr: {self.stderr[-2000:]}") from None

    async def _end(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
        await self.wait_exit()
        # What the process wrote last may still be in the pipe; a grandchild that holds the pipe open must not hold us.
        await asyncio.wait(self._readers, timeout=1.0)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()
        # asyncio leaves pipes that somebody else still holds open to the garbage collector, which warns.
        self.process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    # Reading

    async def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            await self.take_line(line)
        self.hung_up()

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while piece := await self.process.stderr.read(65536):
            self._stderr += piece
            async with self._arrival:
                self._arrival.notify_all()
