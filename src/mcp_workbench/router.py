"""From a decision to an action: finds the connection, waits for servers that have to start, opens toolboxes.

Owns the order of things. Refuses to know how a face decides and how a connection works inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Raw

from mcp_workbench.catalog.catalog import Catalog, ServerEntry
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.lifecycle import State
from mcp_workbench.downstream.pool import Pool
from mcp_workbench.downstream.traffic import ForwardedExchange, Traffic
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.decisions import Answer, Decision, Forward, Learn, Open, Reject


class RoutedCall(ForwardedExchange):
    """A client's request, with everything that the router has to know of it."""

    __slots__ = ("capabilities", "entry", "from_modern", "item", "meta", "principal", "task", "traffic")

    principal: str
    capabilities: bytes
    from_modern: bool
    meta: Raw | None
    # Where it went, as far as it got.
    entry: ServerEntry | None
    item: str
    traffic: Traffic | None
    task: asyncio.Task[None] | None

    def finish_result(self, result: bytes) -> None:
        """Answer with a result."""
        raise NotImplementedError

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        """Answer with a JSON-RPC error."""
        raise NotImplementedError


class Face(Protocol):
    """What the router needs of a face."""

    def resolve(self, name: str, arguments: Raw | None, extras: dict[str, Raw], *, fresh: bool = False) -> Decision:
        """Decide about a call."""

    def opened(self, toolbox: str, failures: dict[str, WorkbenchError]) -> bytes:
        """The answer to an opened toolbox."""


class Router:
    """Carries out decisions."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        face: Face,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
    ) -> None:
        self._catalog = catalog
        self._pool = pool
        self._face = face
        self._start_task = start_task

    def call_tool(self, call: RoutedCall, name: str, arguments: Raw | None, extras: dict[str, Raw]) -> None:
        """A `tools/call`. Nothing on the way of a call to a ready server waits for anything."""
        decision = self._face.resolve(name, arguments, extras)
        match decision:
            case Forward():
                connection = self._connection(decision.entry, call)
                if connection.state is State.READY:
                    self._send(call, decision, connection)
                else:
                    call.task = self._start_task(self._forward_when_ready(call, decision, connection))
            case Answer():
                call.finish_result(decision.result)
            case Reject():
                call.finish_error(decision.code, decision.message, decision.data)
            case Open():
                call.task = self._start_task(self._open(call, decision.toolbox))
            case Learn():
                call.task = self._start_task(self._learn_and_call(call, decision.entry, name, arguments, extras))

    async def open_toolbox(
        self, toolbox: str, principal: str, capabilities: bytes, caller: RoutedCall | None = None
    ) -> dict[str, WorkbenchError]:
        """Connect all servers of a toolbox side by side; returns what failed, by server."""
        entries = self._catalog.toolboxes[toolbox]
        connections = {name: self._pool.connection(entry, principal, capabilities) for name, entry in entries.items()}
        if caller is not None:
            for connection in connections.values():
                connection.traffic.audience = connection.traffic.audience or caller.caller
        results = await asyncio.gather(
            *(self._open_server(connection) for connection in connections.values()), return_exceptions=True
        )
        failures: dict[str, WorkbenchError] = {}
        for name, result in zip(connections, results, strict=True):
            if isinstance(result, WorkbenchError):
                failures[name] = result
            elif isinstance(result, BaseException):
                raise result
        return failures

    async def _open_server(self, connection: Connection) -> None:
        known = connection.entry.recall() is not None
        if known and connection.state in (State.CONFIGURED, State.KNOWN, State.STOPPED):
            # Answer from what is remembered, and start the server behind it.
            connection.start_in_background()
            return
        if known and connection.state in (State.STARTING, State.READY, State.STOPPING):
            return
        await connection.ensure_listed(asked=True)

    async def _open(self, call: RoutedCall, toolbox: str) -> None:
        failures = await self.open_toolbox(toolbox, call.principal, call.capabilities, call)
        call.finish_result(self._face.opened(toolbox, failures))

    async def _learn_and_call(
        self, call: RoutedCall, entry: ServerEntry, name: str, arguments: Raw | None, extras: dict[str, Raw]
    ) -> None:
        call.entry = entry
        connection = self._connection(entry, call)
        try:
            await connection.ensure_listed()
        except WorkbenchError as error:
            call.on_failure(error)
            return
        decision = self._face.resolve(name, arguments, extras, fresh=True)
        match decision:
            case Forward():
                self._send(call, decision, connection)
            case Answer():
                call.finish_result(decision.result)
            case Reject():
                call.finish_error(decision.code, decision.message, decision.data)
            case Open() | Learn():
                raise AssertionError(f"undecided about {name!r} after its server was listed")

    async def _forward_when_ready(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        call.entry, call.item = decision.entry, decision.item
        try:
            await connection.ensure_ready()
        except WorkbenchError as error:
            call.on_failure(error)
            return
        self._send(call, decision, connection)

    def _send(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        call.entry = decision.entry
        call.item = decision.item
        call.task = None
        call.traffic = traffic = connection.traffic
        traffic.forward(call, decision.method, decision.body, call.meta, call.from_modern, connection.config.timeout)

    def _connection(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        connection = self._pool.connection(entry, call.principal, call.capabilities)
        if connection.traffic.audience is None:
            connection.traffic.audience = call.caller
        return connection
