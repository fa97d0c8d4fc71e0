"""What a process has once, however many catalogues it serves: processes, connections, sign-ins, and all tasks.

Several gateways may share one runtime, each with its own configuration, face and clients; a server that is equal in two
of them is shared (`engine/catalog/registry.py`). Owns the task group and the order in which everything ends. Knows
nothing about what clients are shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mcp_workbench import __version__
from mcp_workbench.engine.catalog.catalog import Catalog, Servers
from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.pool import Pool
from mcp_workbench.engine.lasting_state import LOCAL_STATE as LASTING_LOCAL
from mcp_workbench.engine.lasting_state import LastingState
from mcp_workbench.engine.transport.link import AnswerReceiver
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import SHORTAGE_HINTS, WorkbenchError, shortage

if TYPE_CHECKING:
    from mcp_workbench.app.use_memory import UseMemory
    from mcp_workbench.app.watching import PageOpener, Watching
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.config.auth_settings import AuthConfig
    from mcp_workbench.engine.config.model import ServerConfig
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.downstream.server_link import LinkOpener, ServerLink
    from mcp_workbench.engine.observe.call_figures import CallFigures
    from mcp_workbench.engine.observe.status_socket import StatusSocket
    from mcp_workbench.engine.router.routed_call import RoutedCall
    from mcp_workbench.engine.steps import EventKind, EventRecorder
    from mcp_workbench.engine.transport.http.client.headers import HeaderSource
    from mcp_workbench.engine.transport.http.client.http_client import HttpClient
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.seeing.span_sender import SpanSender
    from mcp_workbench.signin.secrets.servers import ResolvedServers
    from mcp_workbench.signin.sign_ins import SignIns
    from mcp_workbench.team.identity.identities import Identity
    from mcp_workbench.team.identity.identity_assertions import IdentityAssertions
    from mcp_workbench.team.identity.token_exchange import SubjectTokens, TokenExchanges
    from mcp_workbench.team.policy.approval_socket import (
        ApprovalReply,
        ApprovalRequest,
        ApprovalSocket,
        Decide,
        DecideElsewhere,
    )

log = logging.getLogger(__name__)


class ProcessOwner:
    """What the process is asked about everything that it serves: its only gateway, or the shared workbench."""

    # The settings for users' identities, with references resolved.
    auth: AuthConfig | None = None

    @property
    def state(self) -> LastingState:
        """What other instances find when this one has ended."""
        return LASTING_LOCAL

    @property
    def own_info(self) -> bytes:
        """How we introduce ourselves to servers, as JSON."""
        return b"{}"

    def describe(self) -> bytes:
        """The report for `mcp-workbench status`, as JSON."""
        return b"{}"

    async def look_up(self) -> None:
        """Read from the disk what that report needs."""

    def identity_of(self, principal: str) -> Identity:
        """What is known about a user whose identity is forwarded to servers."""
        from mcp_workbench.team.identity.identities import known_by_name

        return known_by_name(principal)


class GatewayFacts(NamedTuple):
    """What metrics tell of a gateway."""

    # The toolbox and name of every server that it shows to anybody.
    servers: list[tuple[str, str]]
    # Whether rules hide some of them from some.
    has_rules: bool
    approvals_waiting: int
    # Lines of its audit that were lost; None without one.
    audit_lost: int | None
    # Its configuration, and how it records events.
    path: str
    record: EventRecorder
    catalog: Catalog
    # The definitions of tools that clients of our own user are listed.
    listed: Callable[[], Sequence[bytes]]


class CallCounting:
    """The figures of the calls of all gateways, for as long as somebody wants them."""

    def __init__(self, find_running: Callable[[], None]) -> None:
        self.figures: CallFigures | None = None
        self._find_running = find_running
        self._wanted_by = 0
        # Makes each gateway start or stop counting.
        self.on_change: list[Callable[[], None]] = []
        # One for each collector that traces are sent to, which are made of figures.
        self.span_senders: list[SpanSender] = []
        self.metrics: dict[str, HttpServer | None] = {}

    def start(self) -> CallFigures:
        self._wanted_by += 1
        if self.figures is None:
            from mcp_workbench.engine.observe.call_figures import CallFigures

            self.figures = CallFigures(self._find_running)
            self._tell()
        return self.figures

    def stop(self) -> None:
        """Without anybody who wants them, the figures are dropped."""
        self._wanted_by -= 1
        if not self._wanted_by:
            self.figures = None
            self._tell()

    def note_server_session(self, entry: ServerEntry, version: str, seconds: float) -> None:
        if self.figures is not None:
            self.figures.note_session((entry.toolbox, entry.name), version, seconds)

    async def send_last_spans(self) -> None:
        if self.span_senders:
            from mcp_workbench.engine.blocking_work import aside

            # Each for a limited time.
            await asyncio.gather(*(aside(each.close) for each in self.span_senders))

    def _tell(self) -> None:
        for use in self.on_change:
            use()


class Runtime:
    """Use as `async with runtime.running():`."""

    def __init__(self, redactor: Redactor, owner: ProcessOwner, servers: Servers | None = None) -> None:
        self.redactor = redactor
        self.owner = owner
        self.servers = Servers() if servers is None else servers
        self.processes = ProcessTable()
        self.open_link: LinkOpener = self.open_server
        self.header_source: Callable[[Connection], HeaderSource] = self._header_source
        self.started_at = 0.0
        self.batch: WriteBatch | None = None
        self._stores: dict[bool, ManifestStore] = {}
        # The previous SIGCHLD handler; restored at the end.
        self._old_handler: Any = None
        self._status_socket: StatusSocket | None = None
        # Created with the first call that waits for `mcp-workbench team approve`; and the gateways with such calls.
        self._approval_socket: ApprovalSocket | None = None
        # With what reaches calls of other instances, if there are any.
        self._approvers: dict[Decide, DecideElsewhere | None] = {}
        self._watching: Watching | None = None
        # Makes the page of our own user, when it is asked for; None if nothing is served.
        self._make_page: Callable[[], PageOpener] | None = None
        self.counting = CallCounting(self._note_running_calls)
        # Asks each gateway that serves clients now.
        self.gateway_facts: list[Callable[[], GatewayFacts]] = []
        self._holder_of: Callable[[str], str] = lambda principal: principal
        self._http: HttpClient | None = None
        # By the `keychain` setting: each configuration has the store that it requires.
        self._sign_ins: dict[bool | None, SignIns] = {}
        self._resolved: ResolvedServers | None = None
        self._assertions: IdentityAssertions | None = None
        self._exchanges: TokenExchanges | None = None
        # Awaited when no task is left.
        self.on_end: list[Callable[[], Awaitable[None]]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the process; everything happens within this context."""
        self.batch = WriteBatch()
        self.started_at = asyncio.get_running_loop().time()
        self.pool = Pool(
            self.servers,
            self.owner.own_info,
            self.open_link,
            self.start_task,
            self.counting.note_server_session,
            self.redactor.text,
        )
        failure: WorkbenchError | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    yield
                except WorkbenchError as error:
                    # Raised below: the task group would wrap it.
                    failure = error
                finally:
                    if self._watching is not None:
                        await self._watching.close_page()
                    await self.pool.close()
                    await self.close_metrics()
                    for task in list(self._running):
                        # Tasks that wait for a server, which must not be started any more.
                        task.cancel()
        finally:
            if self._old_handler is not None:
                signal.signal(signal.SIGCHLD, self._old_handler)
            self._close_sockets()
            await self.counting.send_last_spans()
            await asyncio.gather(*(end() for end in self.on_end))
            await asyncio.gather(*(sign_ins.close() for sign_ins in self._sign_ins.values()))
            if self._http is not None:
                await self._http.close()
            # Only strays should be left; anything else is killed too.
            self.processes.kill_all()
            self.processes.close()
        if failure is not None:
            raise failure

    async def close_metrics(self) -> None:
        """Free the addresses at which only metrics are served."""
        served = [each for each in self.metrics.values() if each is not None]
        # Still known, so that none is opened again.
        self.metrics.update(dict.fromkeys(self.metrics))
        await asyncio.gather(*(each.stop() for each in served))

    def end_at_once(self) -> None:
        """End without any order, because there is no time left; no process stays behind."""
        self._close_sockets()
        self.processes.kill_all()

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Start a task of this process. An exception in it is logged and ends that task alone."""
        assert self._tasks is not None
        task = self._tasks.create_task(_contained(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if asyncio.iscoroutine(work):
            # A task cancelled before its first step never awaits `work`, and Python would warn about that.
            task.add_done_callback(lambda _: work.close())
        return task

    def store(self, *, use_cache: bool) -> ManifestStore:
        """The cache of what servers offer; without `use_cache`, one that keeps nothing."""
        if use_cache not in self._stores:
            self._stores[use_cache] = ManifestStore(default_folder if use_cache else lambda: None)
        return self._stores[use_cache]

    async def open_server(self, connection: Connection, receiver: AnswerReceiver) -> ServerLink:
        """Start a server, or connect to its address."""
        # Imported with the first server: starting up does not need it.
        from mcp_workbench.app.server_links import open_link

        await self.open_status_socket()
        run = connection.run
        config = await self.resolve(connection.entry, lambda: connection.is_running and connection.run is run)
        return await open_link(self, connection, config, receiver)

    async def resolve(self, entry: ServerEntry, is_in_use: Callable[[], bool] = lambda: False) -> ServerConfig:
        """The server's configuration with all references resolved now, for the client that it runs for. Kept as long as
        the server is in use. Raises `DownstreamError`."""
        config = entry.config
        if not (config.references or config.env_files):
            return config
        from mcp_workbench.signin.secrets.servers import ResolvedServers

        if not self.processes.is_prepared:
            self.reap_strays_when_they_end()
        if self._resolved is None:
            self._resolved = ResolvedServers(self.processes, self.redactor)
        return await self._resolved.resolve(entry, entry.label, config, entry.context.environ, is_in_use)

    def record(self, entry: ServerEntry, kind: EventKind, /, **fields: str) -> None:
        """Record an event about a server in the audits of the gateways that show it."""
        for facts in self.gateway_facts:
            gateway = facts()
            if gateway.path == entry.context.path and (entry.toolbox, entry.name) in gateway.servers:
                gateway.record(kind, **fields)

    def resolved(self, entry: ServerEntry) -> ServerConfig:
        """The configuration as of the last start; as written, if it was never started."""
        return entry.config if self._resolved is None else self._resolved.known(entry, entry.config)

    def forget(self, entries: Iterable[ServerEntry]) -> None:
        """These servers are no longer shown."""
        if self._resolved is not None:
            self._resolved.forget(entries)

    def _header_source(self, connection: Connection) -> HeaderSource:
        from mcp_workbench.app.server_links import header_source

        return header_source(self, connection)

    def follow_keys(self, holder_of: Callable[[str], str]) -> None:
        """Go by the keys in force for whom a principal's name stands: one may have been revoked and created again."""
        self._holder_of = holder_of

    @cached_property
    def use_memory(self) -> UseMemory:
        """What users need, for all configurations that learn from it."""
        from mcp_workbench.app.use_memory import UseMemory

        memory = UseMemory(holder_of=lambda principal: self._holder_of(principal))
        self.on_end.append(memory.close)
        return memory

    def forget_use(self, holders: frozenset[str]) -> None:
        """Delete what these, who are gone, needed."""
        _ = self.start_task(self.use_memory.drop(holders))

    def http(self) -> HttpClient:
        from mcp_workbench.engine.transport.http.client.http_client import HttpClient

        if self._http is None:
            self._http = HttpClient(f"mcp-workbench/{__version__}")
        return self._http

    def sign_ins(self, keychain: bool | None) -> SignIns:
        """All sign-ins to servers, for configurations with this `keychain` setting."""
        from mcp_workbench.signin.sign_ins import SignIns
        from mcp_workbench.signin.store import TokenStore

        if keychain not in self._sign_ins:
            store, shared = TokenStore(keychain=keychain), None
            if self.owner.state.is_shared:
                from mcp_workbench.signin.shared_sign_ins import SharedSignIns

                shared = SharedSignIns(self.owner.state, store)
            self._sign_ins[keychain] = SignIns(self.http, store, self.redactor, shared)
        return self._sign_ins[keychain]

    def identity_of(self, principal: str) -> Identity:
        """What is known about a user whose identity is forwarded to servers."""
        return self.owner.identity_of(principal)

    def identity_assertions(self) -> IdentityAssertions:
        """Signs who the user is, for servers that require it. Raises `DownstreamError`."""
        from mcp_workbench.errors import DownstreamError
        from mcp_workbench.team.identity.identity_assertions import IdentityAssertions, key_path

        if self._assertions is None:
            path, auth = key_path(), self.owner.auth
            if path is None:
                raise DownstreamError(
                    "there is no home folder to keep a key for `forwardIdentity` in", hint="set `HOME`"
                )
            self._assertions = IdentityAssertions(path, None if auth is None else auth.public_url)
        return self._assertions

    @cached_property
    def subject_tokens(self) -> SubjectTokens:
        """The tokens of callers, as long as they are valid."""
        from mcp_workbench.team.identity.token_exchange import SubjectTokens

        return SubjectTokens()

    def token_exchanges(self) -> TokenExchanges:
        """Exchanges users' tokens for tokens that are valid at servers."""
        from mcp_workbench.signin.flow_runner import send
        from mcp_workbench.team.identity.token_exchange import TokenExchanges

        if self._exchanges is None:
            auth, subjects = self.owner.auth, self.subject_tokens
            self._exchanges = TokenExchanges(auth, subjects, lambda asked: send(self.http(), asked))
        return self._exchanges

    def reap_strays_when_they_end(self) -> None:
        """Install the SIGCHLD handler, with the first server."""
        if self._old_handler is not None:
            return
        loop = asyncio.get_running_loop()

        def reap(*_: object) -> None:
            # Of several runtimes in one process, the last to end restores the handler of one that ended before.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.processes.reap_strays)

        # uvloop reserves `add_signal_handler` for SIGCHLD; a plain handler that calls into the loop does the same.
        with contextlib.suppress(ValueError):  # not in the main thread: tests
            self._old_handler = signal.signal(signal.SIGCHLD, reap)

    async def open_status_socket(self) -> None:
        """Make this process visible to `mcp-workbench status`, and its memory to nobody. Done soon after the start, and
        before the first server."""
        if self._status_socket is None:
            from mcp_workbench.engine.observe.status_socket import StatusSocket
            from mcp_workbench.engine.process_context import hide_memory
            from mcp_workbench.engine.version import full_version

            # Before an update in place changes what the files say.
            full_version()
            # Servers are processes of our own user, and could read the secrets of all others.
            hide_memory()
            self._status_socket = StatusSocket(self.owner.describe, self._watch, self.owner.look_up)
            await self._status_socket.open()

    async def reopen_status_socket(self) -> None:
        """Open the sockets for `status` and `approve` again, whose files were removed."""
        for each in (self._status_socket, self._approval_socket):
            if each is not None:
                each.close()
                await each.open()

    def take_approvals(self, decide: Decide, elsewhere: DecideElsewhere | None = None) -> None:
        """Make the waiting calls of a gateway visible to `mcp-workbench team approve`. `elsewhere`: and those of other
        instances."""
        self._approvers[decide] = elsewhere
        if self._approval_socket is None:
            from mcp_workbench.team.policy.approval_socket import ApprovalSocket

            self._approval_socket = ApprovalSocket(self._decide)
            _ = self.start_task(self._approval_socket.open())

    def drop_approvals(self, decide: Decide) -> None:
        """The gateway has no more waiting calls."""
        self._approvers.pop(decide, None)

    async def _decide(self, wanted: ApprovalRequest, by: str) -> ApprovalReply:
        from mcp_workbench.team.policy.approval_socket import ApprovalReply

        reply = ApprovalReply()
        for each in self._approvers:
            reply = each(wanted, by)
            if reply.found is not None or reply.decided is not None:
                return reply
        for elsewhere in list(self._approvers.values()):
            if elsewhere is not None:
                reply = await elsewhere(wanted, by, "command line")
        return reply

    def _close_sockets(self) -> None:
        for each in (self._status_socket, self._approval_socket):
            if each is not None:
                each.close()

    @property
    def figures(self) -> CallFigures | None:
        """Those of all calls, while somebody wants them."""
        return self.counting.figures

    @property
    def metrics(self) -> dict[str, HttpServer | None]:
        """Where metrics are served besides the MCP endpoint, by address; None until that is open."""
        return self.counting.metrics

    def _note_running_calls(self) -> None:
        # A sign-in has a runtime as well, and routes nothing.
        from mcp_workbench.engine.router.routed_call import passage_of

        for call in self.pool.calls():
            # Whoever forwards a call has routed it.
            passage_of(cast("RoutedCall", call))

    def count_calls(self) -> CallFigures:
        """Count all calls from now on, until everybody who called this has called `stop_counting`."""
        return self.counting.start()

    def stop_counting(self) -> None:
        """One of those who called `count_calls` wants no more figures."""
        self.counting.stop()

    def offer_page(self, make: Callable[[], PageOpener]) -> None:
        """Serve `mcp-workbench page` with what this makes."""
        self._make_page = make

    def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of `mcp-workbench top`."""
        from mcp_workbench.app.watching import Watching

        if self._watching is None:
            self._watching = Watching(
                self.pool.connections, self.owner.describe, self.count_calls, self.stop_counting, self._make_page,
                redact=self.redactor.text,
            )  # fmt: skip
        # Our own task, which ends with us: `top` may stay connected indefinitely.
        _ = self.start_task(self._watching.serve(reader, writer))


async def _contained(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception as error:
        what = shortage(error)
        if what is None:
            log.exception("internal error; please report it")
        else:
            # Not our bug, and the operation is tried again when it is requested again.
            log.warning("an operation failed: %s; %s", what, SHORTAGE_HINTS[what])
