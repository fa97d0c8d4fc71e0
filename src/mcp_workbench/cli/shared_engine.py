"""The engine of commands on the user's shared workbench, if it is running: its servers are started already.

Owns the connection. Requests do there what `Engine` does in this process; everything else, such as looking up names, is
done here from the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeVar

from msgspec import Raw, Struct
from msgspec.json import decode

from mcp_workbench.cli.engine import Engine, Listed, ToolClient, connect
from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.faces import FACE_OF_COMMANDS
from mcp_workbench.engine.jsonrpc.framing import LineSplitter
from mcp_workbench.engine.jsonrpc.pending import DEADLINE_CHECK_INTERVAL, RemoteError
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES
from mcp_workbench.engine.protocol.revisions import Era
from mcp_workbench.engine.run import run
from mcp_workbench.errors import DownstreamError, SignInNeeded, WorkbenchError
from mcp_workbench.sharing.commands import ASKS_METHOD, OFFER
from mcp_workbench.sharing.front.copying import SILENCE_TIMEOUT
from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning, introduce
from mcp_workbench.sharing.front.line_protocol import ACCEPTED, BORROW, CONTROL, PING_LINE, written_hello

T = TypeVar("T")

GONE: Final = "the shared workbench ended before it answered"
SILENT: Final = "the shared workbench accepted the command and does not answer any more (is it stopped?)"
_WHEN_SILENT: Final = "mcp-workbench status says how to end it; with --private the command starts servers of its own"
_SHARED_READ_BYTES: Final = 256 * 1024


def engine_for(
    parsed: Parsed, config: WorkbenchConfig, *, use_cache: bool, redactor: Redactor, is_audited: bool = False
) -> Engine:
    """Return an engine on the shared workbench if there is one, or in this process otherwise and with `--private`.

    With `--no-cache` servers have to be listed again, and servers of other clients would not be.
    """
    if not parsed.has("private") and not parsed.has("no-cache"):
        try:
            # `proxy`, whatever face the file has: there, every tool can be called by its path. The absolute path of the
            # file, so that the workbench finds the one that this command has read.
            hello = written_hello(("--config", config.path, "--face", FACE_OF_COMMANDS), command=BORROW)
            # Not started for a command: it would outlive it, and a single call is faster here.
            connection, verb, _ = introduce(hello, may_start=False)
            if verb == ACCEPTED:
                return SharedEngine(config, use_cache=use_cache, redactor=redactor, descriptor=connection.detach())
            connection.close()
        except NotRunning:
            pass
        except CannotJoin as error:
            if not error.is_expected:
                remark("note", f"{error}; the command starts what it needs itself")
    return Engine(config, use_cache=use_cache, redactor=redactor, is_audited=is_audited)


def engine_that_knows(
    parsed: Parsed, config: WorkbenchConfig, redactor: Redactor
) -> tuple[Engine, dict[str, WorkbenchError]]:
    """Return an engine for commands that show what servers offer: from the cache or, with `--connect`, after listing
    the others. Also returns the failures by `toolbox/server`."""
    if not parsed.has("connect"):
        return Engine(config, use_cache=True, redactor=redactor), {}
    engine = engine_for(parsed, config, use_cache=True, redactor=redactor)
    return engine, connect(engine)


def reported(failures: Mapping[str, WorkbenchError], redactor: Redactor) -> int:
    """Warn about each failure. Returns the exit status."""
    for place, error in failures.items():
        remark("warning", f"{place}: {redactor.text(error.message.partition(chr(10))[0])}")
    return FAILED_STATUS if failures else 0


class ListedThere(Struct):
    """A listed server of the shared workbench. It is not ours to stop."""

    offer: Offer
    noise: int = 0

    def request_stop(self) -> None:
        """Do nothing: other clients use it."""

    async def wait_stopped(self) -> None:
        """Return at once: it keeps running."""

    def counts(self) -> tuple[int, int, int, int]:
        """As for a connection: the third is lines of noise."""
        return 0, 0, self.noise, 0


class _OfferError(Struct):
    hint: str | None = None
    signIn: bool = False


class SharedEngine(Engine):
    """A client of the shared workbench, for the duration of one command."""

    is_shared = True

    def __init__(self, config: WorkbenchConfig, *, use_cache: bool, redactor: Redactor, descriptor: int) -> None:
        super().__init__(config, use_cache=use_cache, redactor=redactor)
        self._socket = socket.socket(fileno=descriptor)
        self._client: SharedClientEnd | None = None

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work while connected. Errors are raised unchanged."""
        return run(self._run_there(work))

    async def _run_there(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._connected():
            return await work()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        # A copy, because a command may call `run` more than once.
        reader, writer = await asyncio.open_unix_connection(sock=self._socket.dup(), limit=_SHARED_READ_BYTES)
        client = self._client = SharedClientEnd(reader, writer)
        self._introduced(client)
        reading = asyncio.create_task(client.read())
        try:
            await client.initialize()
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            writer.close()

    async def tool(self, toolbox: str, server: str, name: str) -> Raw:
        """Look it up as `Engine` does, and then on a separate connection: a server that runs for clients it cannot ask
        may hide tools that ask."""
        try:
            return await super().tool(toolbox, server, name)
        except UsageError:
            entry = self.server(toolbox, server)
            if self.capabilities == NO_CAPABILITIES or name in entry.hidden or entry.why_withheld(name) is not None:
                raise
            await self._listed(entry, apart=True)
        return await super().tool(toolbox, server, name)

    async def note_asking(self, toolbox: str, server: str) -> None:
        """Have the server started separately for each client that it can ask."""
        assert self._client is not None
        # Workbenches of earlier versions do not know this request.
        with contextlib.suppress(RemoteError):
            await self._client.request(ASKS_METHOD, {"toolbox": toolbox, "server": server})
            self.can_ask_next_time = True

    async def listed(self, entry: ServerEntry, era: Era = "modern") -> Listed:
        """Have the shared workbench list a server. Raises `DownstreamError`."""
        return await self._listed(entry, apart=False)

    async def _listed(self, entry: ServerEntry, *, apart: bool) -> ListedThere:
        assert self._client is not None
        wanted = {"toolbox": entry.toolbox, "server": entry.name, "apart": apart}
        try:
            answer = await self._client.request(OFFER, wanted)
        except RemoteError as error:
            data = error.error.data
            more = decode(data, type=_OfferError) if isinstance(data, Raw) else _OfferError()
            raise (SignInNeeded if more.signIn else DownstreamError)(error.error.message, hint=more.hint) from None
        found = decode(answer, type=ListedThere)
        # Not cached here: the shared workbench has done that.
        entry.catalogs[0].servers.learn(entry, found.offer, remember=False)
        return found

    def client(self) -> ToolClient:
        """Our client in the shared workbench."""
        assert self._client is not None
        return self._client


class SharedClientEnd(ToolClient):
    """Our end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer
        self._is_introduced = False

    async def initialize(self) -> None:
        """Do the handshake, once."""
        if not self._is_introduced:
            self._is_introduced = True
            await super().initialize()

    def deliver(self, message: bytes) -> None:
        self._writer.write(message + b"\n")

    async def read(self) -> None:
        """Read until the workbench closes the connection."""
        # The workbench bounds what it sends (`maxMessageBytes`); this end need not know the limit.
        lines = LineSplitter(1 << 31)
        error = DownstreamError(
            GONE, hint="a call may have been carried out; run the command again if that does no harm"
        )
        # A workbench that is killed with our request unread resets the connection.
        with contextlib.suppress(OSError):
            try:
                while data := await self._next_bytes():
                    for line in lines.feed(data):
                        if line and line[:1] != CONTROL:
                            self.send(line)
            except TimeoutError:
                error = DownstreamError(SILENT, hint=_WHEN_SILENT)
        self.fail(error)

    async def _next_bytes(self) -> bytes:
        """Read the next bytes. Like front ends, raises `TimeoutError` if the workbench does not even answer a ping,
        which it does at once, whatever its servers are doing."""
        # The second round is for data that arrived while this process was stopped and is still unread.
        for seconds in (SILENCE_TIMEOUT, SILENCE_TIMEOUT):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._reader.read(_SHARED_READ_BYTES), seconds)
            self._writer.write(PING_LINE)
        return await asyncio.wait_for(self._reader.read(_SHARED_READ_BYTES), DEADLINE_CHECK_INTERVAL)
