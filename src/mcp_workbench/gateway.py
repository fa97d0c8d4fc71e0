"""The composition root: builds the rooms, owns the task group, and takes everything down again in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from msgspec import Struct

from mcp_workbench import __version__
from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.config.model import FaceName, WorkbenchConfig
from mcp_workbench.downstream.connection import Connection, ServerLink
from mcp_workbench.downstream.pool import Pool
from mcp_workbench.errors import DownstreamError
from mcp_workbench.face.base import Face
from mcp_workbench.router import Router
from mcp_workbench.session.hub import Hub
from mcp_workbench.session.parking import Parking
from mcp_workbench.session.session import Session
from mcp_workbench.session.welcome import Welcome
from mcp_workbench.transport.link import Receiver
from mcp_workbench.transport.pipes import Batch
from mcp_workbench.transport.processes import ProcessTable

log = logging.getLogger(__name__)

# How long running calls may go on when we are asked to end. Clients give a server about as long before they kill it.
DRAIN_SECONDS: Final = 5.0
# How long the client may take to read the last answers.
FLUSH_SECONDS: Final = 1.0
DEFAULT_SEPARATOR: Final = ":"
# Over stdio there is one user: whoever started us.
LOCAL_PRINCIPAL: Final = ""


class Options(Struct, frozen=True, kw_only=True):
    """How we present ourselves and what we may do, beyond the configuration."""

    name: str = "mcp-workbench"
    version: str = __version__
    use_cache: bool = True
    # What the command line says; None leaves it to the configuration.
    face: FaceName | None = None
    separator: str = DEFAULT_SEPARATOR
    # Show tools under their own names where those are unique (face `flat`).
    prefix: bool = True
    # How long the first list of face `flat` waits for servers that nobody knows yet.
    list_timeout: float = 5.0


class Gateway:
    """All rooms, connected. Use as `async with gateway.running():`."""

    def __init__(self, config: WorkbenchConfig, options: Options) -> None:
        self.config = config
        store = ManifestStore(default_folder if options.use_cache else lambda: None)
        self.catalog = Catalog(config, store)
        self.face = _face(self.catalog, options)
        self._options = options
        self._hub = Hub(self.face)
        self.parking = Parking()
        self.catalog.subscribe(self._hub.on_change)
        self.welcome = Welcome(self.face, options.name, options.version)
        self.processes = ProcessTable()
        self._batch: Batch | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything that runs, runs inside."""
        loop = asyncio.get_running_loop()
        self._batch = Batch(loop)
        self.pool = Pool(self.catalog, self.welcome.info, self._open_link, self.start_task)
        self.router = Router(self.catalog, self.pool, self.face, self.start_task, self._options.list_timeout)
        self.router.on_opened.append(self._hub.on_opened)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    yield
                finally:
                    self.parking.close()
                    await self.pool.close()
        finally:
            self.processes.kill_strays()
            self.processes.close()

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """A task of the house. What goes wrong inside is logged and ends that task alone."""
        assert self._tasks is not None
        return self._tasks.create_task(_contained(work))

    async def _open_link(self, connection: Connection, receiver: Receiver) -> ServerLink:
        config = connection.config
        if config.command is None:
            raise DownstreamError(
                "remote servers (`url`) cannot be reached yet by this version",
                hint="use a local server (`command`) until then",
            )
        # Imported with the first server: starting up does not need it.
        from mcp_workbench.transport.child import spawn

        assert self._batch is not None
        if not self.processes.is_prepared:
            self._reap_strays_when_they_end()
        link = spawn(
            config.command,
            config.args,
            config.env,
            config.cwd,
            table=self.processes,
            batch=self._batch,
            receiver=receiver,
            limit=self.config.max_message_bytes,
        )
        label = connection.label
        link.stderr.on_line = lambda line: log.debug("[%s] stderr: %s", label, line)
        return link

    def _reap_strays_when_they_end(self) -> None:
        loop = asyncio.get_running_loop()
        # uvloop keeps `add_signal_handler` for SIGCHLD to itself; a plain handler that hands over does the same.
        with contextlib.suppress(ValueError):  # not in the main thread: tests
            signal.signal(signal.SIGCHLD, lambda *_: loop.call_soon_threadsafe(self.processes.reap_strays))

    async def serve_stdio(self) -> None:
        """Serve one client on stdin and stdout until it goes or a signal comes."""
        from mcp_workbench.transport.stdio import StdioLink

        loop = asyncio.get_running_loop()
        ending = _Ending(loop, self.processes)
        async with self.running():
            assert self._batch is not None
            link = StdioLink(self._batch, self.config.max_message_bytes)
            session = Session(link, self.router, self.welcome, self.parking, LOCAL_PRINCIPAL, ending.begin)
            self._hub.sessions.add(session)
            try:
                link.start(session)
                await ending.begun.wait()
                log.info("shutting down: %s", ending.reason)
                session.is_draining = True
                link.stop_reading()
                await _wait_until(lambda: not session.calls or ending.is_urgent, DRAIN_SECONDS)
                session.end(DownstreamError("the workbench is shutting down; the call was not finished"))
                await _wait_until(lambda: not link.unsent_bytes or ending.is_urgent, FLUSH_SECONDS)
            finally:
                link.close()
        log.info("bye")


class _Ending:
    """Why and how fast we end. The first signal begins it, the next hurries it, one more ends at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, processes: ProcessTable) -> None:
        self.begun = asyncio.Event()
        self.reason = ""
        self.is_urgent = False
        self._processes = processes
        self._signals = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)

    def begin(self, reason: str) -> None:
        """Begin to end."""
        self.reason = self.reason or reason
        self.begun.set()

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1:
            self._processes.kill_all()
            os._exit(128 + number)
        self.is_urgent = self.begun.is_set()
        self.begin(f"received {number.name}")


def _face(catalog: Catalog, options: Options) -> Face:
    config = catalog.config
    name = options.face or config.face or ("flat" if config.plain else "proxy")
    if name == "flat":
        from mcp_workbench.face.flat import FlatFace

        return FlatFace(catalog, options.separator, prefix=options.prefix)
    if name == "dynamic":
        from mcp_workbench.face.dynamic import DynamicFace

        return DynamicFace(catalog)
    from mcp_workbench.face.proxy import ProxyFace

    return ProxyFace(catalog)


async def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    # Polled: what it waits for is decided in hot paths that should not have to set events for our end.
    end = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _contained(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        log.exception("a defect of ours; please report it")
