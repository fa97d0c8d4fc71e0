"""The engine for commands: a workbench in this process, without a client.

Owns the way from a command to a running gateway and back. `open` and `check` read the catalogue that connections fill;
`call` speaks MCP to a session as any client does, so that a shell gets what an agent gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Raw, Struct, UnsetType

from mcp_workbench.app.gateway import Gateway, Options, check_names, make_face
from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.server_names import find_server
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.sharing import OWN_USER, Caller
from mcp_workbench.engine.economy.budget_ladder import Listing
from mcp_workbench.engine.face import paths
from mcp_workbench.engine.face.base import Face
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import opened
from mcp_workbench.engine.face.suggestions import Advice, about_path, about_slashes
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.engine.faces import FACE_OF_COMMANDS
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.constants import PROGRESS_TOKEN
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES
from mcp_workbench.engine.protocol.revisions import Era, newest
from mcp_workbench.engine.run import run
from mcp_workbench.errors import WorkbenchError

T = TypeVar("T")

TO_PEOPLE: Final = Advice("mcp-workbench list --connect", "mcp-workbench find", "")
# Programs started concurrently. More would slow all of them down, and those with a short timeout would fail.
MAX_SERVERS_AT_ONCE: Final = 8
# A server at a URL costs this machine only a connection, so it need not queue behind programs.
MAX_CONCURRENT_ADDRESSES: Final = 32


class StartingPlaces:
    """Limits how many servers start concurrently: `async with places.of(entry):`."""

    def __init__(self) -> None:
        self._programs = asyncio.Semaphore(MAX_SERVERS_AT_ONCE)
        self._addresses = asyncio.Semaphore(MAX_CONCURRENT_ADDRESSES)

    def of(self, entry: ServerEntry) -> asyncio.Semaphore:
        """Return the semaphore that this server waits for."""
        return self._addresses if entry.config.command is None else self._programs


class Progress(Struct):
    """The progress of a call, as reported by its server."""

    progress: float = 0.0
    total: float | None = None
    message: str | None = None


class LogMessage(Struct):
    level: str = "info"
    data: object = None


class Listed(Protocol):
    """A server that has been listed."""

    def request_stop(self) -> None:
        """Stop it; it is no longer needed."""

    async def wait_stopped(self) -> None:
        """Return when it has ended completely."""

    def counts(self) -> tuple[int, int, int, int]:
        """Return bytes of messages received and sent, lines of noise, and unexpected answers."""


class Engine:
    """A workbench that runs for the duration of one command."""

    # Whether the servers run in the shared workbench.
    is_shared = False
    # Whether a server that could not ask us will be able to when the command is run again.
    can_ask_next_time = False

    def __init__(
        self, config: WorkbenchConfig, *, use_cache: bool, redactor: Redactor | None = None, is_audited: bool = False
    ) -> None:
        options = Options(use_cache=use_cache, face=FACE_OF_COMMANDS, is_audited=is_audited, ends_with_command=True)
        self._gateway = Gateway(config, options, redactor)
        self._store = ManifestStore(default_folder)
        # What the user of this command can be asked. In one spelling, because servers receive it and connections are
        # keyed by it.
        self.capabilities = NO_CAPABILITIES
        self._local: LocalClient | None = None

    @property
    def face(self) -> Face:
        """The face of commands, whatever clients see."""
        return self._gateway.face

    @property
    def tool_index(self) -> ToolIndex:
        index = self.face.tool_index
        assert index is not None
        return index

    def shown_to_clients(self, options: Options) -> Face:
        """Return the face that clients see with these options, or else the configuration, from the cached lists."""
        check_names(self._gateway.config, options.face or self._gateway.config.face_in_force)
        self._gateway.catalog.load(self._gateway.catalog.entries())
        return make_face(self._gateway.catalog, self._gateway.config, options)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work while everything runs, then end all servers. Errors are raised unchanged."""
        return run(self._run(work))

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        failure: Exception
        async with self._gateway.running():
            # Kept until everything has ended: a task group would wrap it in an exception group.
            try:
                return await work()
            except (WorkbenchError, UsageError, OSError) as error:
                failure = error
        raise failure

    @property
    def toolboxes(self) -> Collection[str]:
        return self._gateway.catalog.toolboxes.keys()

    def path(self, path: str) -> tuple[str, str, str]:
        """Return toolbox, server and tool of a `toolbox/server/tool`. Raises `UsageError` with the paths that may be
        meant if a part is missing."""
        catalog = self._gateway.catalog
        places = paths.named(catalog, path)
        if len(places) == 1:
            entry, tool = places[0]
            return entry.toolbox, entry.name, tool
        if places:
            raise UsageError(about_slashes(path, places), hint="write three words: TOOLBOX SERVER TOOL")
        toolbox, _, rest = path.partition("/")
        server, _, tool = rest.partition("/")
        if tool:
            return toolbox, server, tool
        # Only to suggest something: what is cached never decides what is called.
        for entry in catalog.entries():
            entry.load_manifest()
        hint = "write toolbox/server/tool, or three words; mcp-workbench list shows toolboxes and servers"
        raise UsageError(about_path(catalog, path, TO_PEOPLE), hint=hint)

    def toolbox(self, name: str) -> dict[str, ServerEntry]:
        """Return the servers of a toolbox. Raises `UsageError` with similar names."""
        toolboxes = self._gateway.catalog.toolboxes
        if name not in toolboxes:
            raise UsageError(no_such("toolbox", name, toolboxes), hint="mcp-workbench list shows all toolboxes")
        return toolboxes[name]

    def server(self, toolbox: str, name: str) -> ServerEntry:
        """Return a server. Raises `UsageError` with similar names."""
        servers = self.toolbox(toolbox)
        if name not in servers:
            where = f" in toolbox `{toolbox}`"
            raise UsageError(no_such("server", name, servers, where), hint="mcp-workbench list shows all servers")
        return servers[name]

    async def tool(self, toolbox: str, server: str, name: str) -> Raw:
        """Return a tool's definition, listing the server if it is not cached. Raises `UsageError` and
        `DownstreamError`."""
        entry = self.server(toolbox, server)
        entry.load_manifest()
        if name not in entry.tools:
            # On the connection that `LocalClient` will use for the call.
            await self.listed(entry, "legacy")
        if name in entry.tools:
            return entry.tools[name]
        where = f" on server `{server}` of toolbox `{toolbox}`"
        if (reason := entry.why_withheld(name)) is not None:
            from mcp_workbench.team.lock.definition_lock import NO_FILE, UNUSABLE

            accept = f"mcp-workbench team lock accept {toolbox}/{server}/{name}"
            hint = f"mcp-workbench team lock diff shows it, {accept} accepts it"
            if reason in (NO_FILE, UNUSABLE):
                # There is nothing that this tool could be compared with.
                hint = "mcp-workbench check says what to do about the lock file"
            raise UsageError(f"tool `{name}`{where} is withheld: {reason}", hint=hint)
        # It exists, so suggesting similar names would mislead.
        if name in entry.hidden:
            raise UsageError(
                f"tool `{name}`{where} is excluded by `toolFilters` in the configuration",
                hint="change `toolFilters` of this server to allow it",
            )
        hint = f"mcp-workbench list --open {toolbox} shows all its tools"
        raise UsageError(no_such("tool", name, entry.tools, where), hint=hint)

    async def note_asking(self, toolbox: str, server: str) -> None:
        """Note that a server refused something because it could not ask a user. Nothing to do for servers in this
        process, which know our capabilities."""

    def connection(self, entry: ServerEntry, era: Era = "modern") -> Connection:
        """Return the connection to a server, which is created but not started if there is none yet."""
        caller = Caller(OWN_USER, era, self.capabilities)
        if self._local is not None and era == self._local.caller.era:
            # A server that may ask is started for one client: it must be called on the connection that listed it.
            caller = self._local.caller
        return self._gateway.runtime.pool.connection(entry, caller)

    async def listed(self, entry: ServerEntry, era: Era = "modern") -> Listed:
        """Start a server and wait until it has been listed. Raises `DownstreamError`."""
        connection = self.connection(entry, era)
        await connection.ensure_listed(asked=True)
        return connection

    def remember(self, entry: ServerEntry) -> None:
        """Cache what the server offers, even if the gateway itself does not."""
        if entry.offer is not None:
            self._store.save(entry.key, entry.offer)

    def opened(self, request: OpenRequest, failures: dict[str, WorkbenchError]) -> tuple[Listing, bytes]:
        """Return the result of `open_toolbox` for a toolbox from what is known now, and what is listed in it."""
        assert request.toolbox_name is not None
        by_place = {(request.toolbox_name, server): error for server, error in failures.items()}
        return opened(self.face.catalog, self.tool_index, request, by_place, [])

    def find_server(self, name: str) -> ServerEntry:
        return find_server(self._gateway.catalog, name)

    @property
    def gateway(self) -> Gateway:
        """The workbench itself, for what only its parts can do."""
        return self._gateway

    def client(self) -> ToolClient:
        self._local = LocalClient(self._gateway)
        return self._introduced(self._local)

    def _introduced(self, client: ToolClient) -> ToolClient:
        client.capabilities = self.capabilities
        if self._gateway.config.splits_use_tool:
            # For a person both tools are the same: what was typed is called.
            client.calls_with = "use_tool_that_writes"
        return client


def connect(engine: Engine, only: Sequence[ServerEntry] | None = None) -> dict[str, WorkbenchError]:
    """List all servers that have not been listed yet, or those of `only`. Returns the failures by `toolbox/server`."""
    entries = engine.face.catalog.entries() if only is None else only
    unknown = [entry for entry in entries if entry.load_manifest() is None]
    places = StartingPlaces()
    failures: dict[str, WorkbenchError] = {}

    async def list_one(entry: ServerEntry) -> None:
        async with places.of(entry):
            try:
                connection = await engine.listed(entry)
            except WorkbenchError as error:
                failures[entry.label] = error
            else:
                connection.request_stop()

    async def list_all() -> None:
        await asyncio.gather(*map(list_one, unknown))

    if unknown:
        engine.run(list_all)
    return failures


class ToolClient:
    """An MCP client that calls tools. Subclasses transport its messages."""

    def __init__(self) -> None:
        self.on_progress: Callable[[Progress], None] = lambda progress: None
        self.on_log: Callable[[LogMessage], None] = lambda message: None
        # Answers questions of servers; without it they get an error.
        self.on_question: Callable[[str, Raw], Awaitable[object]] | None = None
        self.capabilities = NO_CAPABILITIES
        self.calls_with = "use_tool"
        # Whether a question has been received.
        self.was_asked = False
        self.unsent_bytes = 0
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        # Why no more answers will come.
        self._failure: WorkbenchError | None = None
        self._asked: dict[bytes, asyncio.Task[None]] = {}

    def deliver(self, message: bytes) -> None:
        raise NotImplementedError

    def fail(self, error: WorkbenchError) -> None:
        """Fail all requests: no more answers will come."""
        self._failure = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def initialize(self) -> None:
        info = {"name": "mcp-workbench call", "version": "1"}
        params = {"protocolVersion": newest("legacy").name, "capabilities": Raw(self.capabilities), "clientInfo": info}
        await self.request("initialize", params)

    async def use_tool(self, toolbox: str, server: str, tool: str, arguments: bytes) -> Raw:
        """Call a tool as an agent does. Raises `RemoteError` for a JSON-RPC error."""
        identifier = {"toolbox": toolbox, "server": server, "tool": tool}
        return await self.call_tool(self.calls_with, {"tool": identifier, "arguments": Raw(arguments)})

    async def call_tool(self, name: str, arguments: dict[str, object]) -> Raw:
        """Call one of the workbench's own tools. Raises `RemoteError` for a JSON-RPC error."""
        params = {"name": name, "arguments": arguments, "_meta": {PROGRESS_TOKEN: 1}}
        return await self.request("tools/call", params)

    async def request(self, method: str, params: object) -> Raw:
        """Return the result of a request. Raises `RemoteError` for a JSON-RPC error."""
        if self._failure is not None:
            raise self._failure
        # Entries are never removed: a command sends a handful of requests, and an id is never reused.
        id = len(self._waiting) + 1
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        self.deliver(messages.request(id, method, messages.encode(params)))
        try:
            return await future
        except asyncio.CancelledError:
            # Ctrl-C: cancel the call on the server before anything ends.
            cancelled = messages.encode({"requestId": id, "reason": "the user pressed Ctrl-C"})
            self.deliver(messages.notification("notifications/cancelled", cancelled))
            raise
        finally:
            # The server has its answer, or will get none: a question still open at the terminal has become pointless.
            for task in self._asked.values():
                task.cancel()

    def send(self, *parts: bytes | Raw | memoryview, about: bytes | None = None) -> None:
        message = messages.read(b"".join(bytes(part) for part in parts))
        if isinstance(message.method, UnsetType):
            assert not isinstance(message.id, UnsetType)
            future = self._waiting[int(bytes(message.id))]
            # After Ctrl-C, the answer to a cancelled call may still arrive.
            if future.done():
                return
            if not isinstance(message.error, UnsetType):
                future.set_exception(RemoteError(messages.read_error(message.error)))
            elif not isinstance(message.result, UnsetType):
                future.set_result(Raw(bytes(message.result)))
        elif not isinstance(message.id, UnsetType):
            self._ask(bytes(message.id), message.method, message.params)
        elif not isinstance(message.params, UnsetType):
            self._on_notification(message.method, message.params)

    def _ask(self, id: bytes, method: str, params: Raw | UnsetType) -> None:
        """Handle a server's question in a task, because the answer may take a while."""
        self.was_asked = True
        if self.on_question is None or isinstance(params, UnsetType):
            self._answer(id, b'"error"', {"code": METHOD_NOT_FOUND, "message": f"`{method}` is not supported"})
            return
        self._asked[id] = asyncio.ensure_future(self._answer_with(id, self.on_question(method, Raw(bytes(params)))))

    async def _answer_with(self, id: bytes, answering: Awaitable[object]) -> None:
        answer = await answering
        self._asked.pop(id, None)
        if answer is None:
            self._answer(id, b'"error"', {"code": METHOD_NOT_FOUND, "message": "this cannot be asked here"})
        else:
            self._answer(id, b'"result"', answer)

    def _answer(self, id: bytes, kind: bytes, content: object) -> None:
        self.deliver(b'{"jsonrpc":"2.0","id":%b,%b:%b}' % (id, kind, messages.encode(content)))

    def _on_notification(self, method: str, params: Raw) -> None:
        from msgspec import MsgspecError
        from msgspec.json import decode

        # A server may send anything here; what cannot be shown is no reason to fail a call.
        try:
            if method == "notifications/progress":
                self.on_progress(decode(params, type=Progress))
            elif method == "notifications/message":
                self.on_log(decode(params, type=LogMessage))
            elif method == "notifications/cancelled":
                # The server has cancelled its question.
                asked = self._asked.pop(bytes(messages.decode_object(params).get("requestId", b"")), None)
                if asked is not None:
                    asked.cancel()
        except MsgspecError:
            return


class LocalClient(ToolClient):
    """A client in the same process: a link whose other end is a session."""

    # The origin of calls in the audit log.
    peer = "command line"

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._session = gateway.make_session(self, OWN_USER, lambda reason: None)

    @property
    def caller(self) -> Caller:
        """The caller that connections see."""
        return self._session.caller

    def deliver(self, message: bytes) -> None:
        self._session.on_message(message)
