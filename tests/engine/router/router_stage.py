"""A router between a face that decides what a test says and connections that note what they are asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from msgspec import Raw

from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.sharing import SHARED, Caller
from mcp_workbench.engine.face.decisions import (
    Decision,
    Forward,
)
from mcp_workbench.engine.face.gate import Gate
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.protocol.revisions import newest
from mcp_workbench.engine.router.routed_call import Route
from mcp_workbench.engine.router.router import Router
from mcp_workbench.engine.steps import Denial

LEGACY, MODERN = newest("legacy"), newest("modern")


class Catalog:
    def __init__(self) -> None:
        self.subscribed: list[Callable[..., None]] = []
        self.on_replaced: list[Callable[[Any], None]] = []

    @property
    def whole(self) -> Catalog:
        return self

    def subscribe(self, listener: Callable[..., None]) -> None:
        self.subscribed.append(listener)


class Face:
    """Decides what it was given, in this order; the last one again and again."""

    lists_everything = True
    tells_clients_apart = False

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.decisions: list[Decision] = []
        self.asked: list[tuple[str, object]] = []
        self.noted: list[bytes] = []
        self.shown: bytes | None = None
        self.listed: list[bytes] = []
        self.is_health_check = False
        self.own: dict[str, bytes] = {}
        self.links = SimpleNamespace(note=lambda principal, entry, result: self.noted.append(bytes(result)))
        self.worked_in: list[str] = []
        self.servers: list[Any] = []

    def _next(self, what: str, detail: object = None) -> Decision:
        self.asked.append((what, detail))
        return self.decisions.pop(0) if len(self.decisions) > 1 else self.decisions[0]

    def resolve_tool(self, view: Any, params: Any, *, fresh: bool = False) -> Decision:
        return self._next("tool", fresh)

    def resolve_prompt(self, view: Any, params: Any) -> Decision:
        return self._next("prompt")

    def resolve_resource(self, view: Any, params: Any, revision: Any) -> Decision:
        return self._next("resource", revision)

    def resolve_completion(self, view: Any, params: Any, revision: Any) -> Decision:
        return self._next("completion", revision)

    def resolve_unknown(self, view: Any, method: str, params: Any) -> Decision:
        return self._next("unknown", method)

    def resolve_skill(self, view: Any, method: str, params: Any, revision: Any) -> Decision:
        return self._next("skill", (method, revision))

    def known(self, view: Any) -> list[Any]:
        return self.servers

    def app_tools(self, view: Any) -> list[bytes]:
        return [b"an app"]

    def own_resource(self, view: Any, uri: str) -> bytes | None:
        return self.own.get(uri)

    def sole_entry(self) -> None:
        return None

    def definitions(self, view: Any, kind: str) -> list[bytes]:
        return self.listed

    def client_of(self, view: Any) -> Any:
        return SimpleNamespace(health_check=self.is_health_check)

    def shortening(self, view: Any, decision: Any, result: Raw, info: bytes) -> Any:
        if self.shown is None:
            return None
        shown = result if self.shown == b"same" else self.shown

        def work() -> None:
            is_main = threading.current_thread() is threading.main_thread()
            self.worked_in.append("loop" if is_main else "thread")

        return SimpleNamespace(work=work, finish=lambda: shown)


class Entry:
    def __init__(self, catalog: Catalog, name: str = "server") -> None:
        self.name, self.toolbox = name, "box"
        self.catalogs = {catalog}
        self.asks = False
        self.has_resources = False
        self.task_tools: frozenset[str] = frozenset()
        self.extensions: dict[str, Raw] = {}


class Traffic:
    def __init__(self) -> None:
        self.takes_retries = True
        self.forwarded: list[tuple[Any, ...]] = []
        self.cancelled: list[tuple[int, dict[str, Raw]]] = []
        self.notified: list[tuple[str, bytes | None]] = []
        self.clients = SimpleNamespace(holder=None, last=None, passing=None, reserved_for=None)
        self.clients.hold = lambda client, number: setattr(self.clients, "holder", client)
        self.clients.join = lambda client, has_session: setattr(self.clients, "last", client)

    def forward(self, *request: Any) -> int:
        self.forwarded.append(request)
        return 40 + len(self.forwarded)

    def cancel(self, id: int, params: dict[str, Raw]) -> None:
        self.cancelled.append((id, params))

    def notify(self, method: str, params: bytes | None) -> None:
        self.notified.append((method, params))


class Connection:
    def __init__(self, entry: Entry, state: State = State.READY) -> None:
        self.entry, self.state, self.traffic = entry, state, Traffic()
        self.revision: Any = LEGACY
        self.config = SimpleNamespace(timeout=12.5)
        self.lists = SimpleNamespace(is_done=True)
        self.levels: list[str] = []
        self.subscriptions = SimpleNamespace(want_log_level=self.levels.append)
        self.did: list[str] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def ensure_ready(self) -> None:
        self.did.append("ready")
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.state = State.READY

    async def ensure_listed(self) -> None:
        self.did.append("listed")
        self.lists.is_done = True

    async def list_again(self) -> None:
        self.did.append("listed again")
        if self.failure is not None:
            raise self.failure


class Pool:
    def __init__(self) -> None:
        self.by_entry: dict[Entry, Connection] = {}
        # What the router looks into before it asks: nothing is known, so it always asks.
        self.found: dict[tuple[Entry, Caller], Connection] = {}
        self.alone: list[Entry] = []
        self.levels: list[str] = []

    def connection(self, entry: Entry, caller: Caller) -> Connection:
        return self.by_entry[entry]

    def connections(self) -> list[Connection]:
        return list(self.by_entry.values())

    def used_by(self, caller: Caller, catalog: Catalog) -> list[Connection]:
        return list(self.by_entry.values())

    def caller_alone(self, entry: Entry, caller: Caller, client: object) -> Caller:
        self.alone.append(entry)
        return Caller("", "legacy", client=-5)

    def set_log_level(self, caller: Caller, catalog: Catalog, level: str) -> None:
        self.levels.append(level)


class Lists:
    """`waits`: what has to be awaited before lists can be used."""

    def __init__(self) -> None:
        self.waits: list[Callable[[], Awaitable[None]] | None] = []
        self.loaded: list[tuple[Any, ...]] = []
        self.looked_at: list[tuple[str, bool]] = []
        self.failures: dict[str, Exception] = {}
        self.forgotten: list[object] = []
        self.reason: str | None = None
        self.prepared: list[str] = []
        self.followed: list[object] = []

    def follow(self, catalog: object) -> None:
        self.followed.append(catalog)

    def prepare(self, view: Any, kind: str, reach: Any) -> Callable[[], Awaitable[None]] | None:
        self.prepared.append(kind)
        return self.waits.pop(0) if self.waits else None

    def prepare_introduction(self, view: Any, reach: Any) -> Callable[[], Awaitable[None]] | None:
        return self.waits.pop(0) if self.waits else None

    def why_empty(self, view: Any) -> str | None:
        return self.reason

    def forget(self, entries: object) -> None:
        self.forgotten.append(entries)

    async def load(self, entries: tuple[Any, ...]) -> None:
        self.loaded.append(entries)

    async def look_again(self, connection: Connection, *, may_start: bool) -> None:
        self.looked_at.append((connection.entry.name, may_start))
        if (error := self.failures.get(connection.entry.name)) is not None:
            raise error


class Call:
    """Notes how it ends."""

    id = b"1"
    is_retry = False
    is_inner = False
    log_level: str | None = None
    progress_token: Raw | None = None
    meta: Raw | None = None
    revision = LEGACY
    client_info, introduction = b"{}", (b"{}", "")

    def __init__(self, face: Face, method: str = "tools/call", number: int = SHARED) -> None:
        self.method = method
        self.caller = Caller("", "legacy", client=number)
        self.route: Any = Route(self.caller)
        self.view = SimpleNamespace(face=face, principal="ann", use=None)
        self.params: dict[str, Raw] = {}
        self.ends: list[Any] = []
        self.reminded = 0

    @property
    def client(self) -> Call:
        return self

    def finish_result(self, result: bytes) -> None:
        self.ends.append(("result", result))

    def pass_on(self, result: Raw, *, is_whole: bool = True) -> None:
        self.ends.append(("passed on", bytes(result), is_whole))

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        self.ends.append(("error", code, message, data))

    def on_failure(self, error: Exception) -> None:
        self.ends.append(("failure", str(error)))

    def refuse(self, denial: Denial) -> None:
        self.ends.append(("refused", denial.message))

    def route_again(self) -> None:
        self.ends.append(("routed again",))

    def keep_waiting(self) -> None:
        self.reminded += 1


class Stage:
    """A router with two servers."""

    def __init__(self, start_task: Callable[[Any], asyncio.Task[None]], **options: Any) -> None:
        self.catalog = Catalog()
        self.face = Face(self.catalog)
        self.pool, self.lists = Pool(), Lists()
        self.one, self.other = Entry(self.catalog, "one"), Entry(self.catalog, "other")
        for entry in (self.one, self.other):
            self.pool.by_entry[entry] = Connection(entry)
        parts: Any = (self.catalog, self.pool, self.face, start_task, self.lists, Gate())
        self.router: Any = Router(*parts, **options)

    def connection(self, entry: Entry) -> Connection:
        return self.pool.by_entry[entry]

    def forward(self, entry: Entry | None = None, body: bytes = b'{"name":"work"', **members: Any) -> Forward:
        target: Any = entry or self.other
        return Forward(target, "work", TOOLS_CALL, body, **members)

    def call(self, *decisions: Decision, number: int = SHARED) -> Call:
        self.face.decisions = list(decisions)
        return Call(self.face, number=number)


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[Stage]:
    tasks: set[asyncio.Task[None]] = set()

    def start(work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        tasks.add(task)
        return task

    yield Stage(start, **options)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
        # A defect of the router itself.
        assert [each.exception() for each in tasks if not each.cancelled()] == [None] * sum(
            not each.cancelled() for each in tasks
        )


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def ended(call: Call) -> list[Any]:
    async with asyncio.timeout(20):
        while not call.ends:
            await asyncio.sleep(0)
    await settle()
    return call.ends
