"""The composition root: builds the packages' objects, owns the task group, and takes everything down again in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from mcp_workbench import __version__
from mcp_workbench.catalog.catalog import Catalog, read_manifests
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.catalog.tool_index import ToolIndex
from mcp_workbench.config.load import has_changed
from mcp_workbench.config.model import FaceName, WorkbenchConfig
from mcp_workbench.config.redact import Redactor
from mcp_workbench.downstream.pool import Pool
from mcp_workbench.errors import SHORTAGE_HINTS, WorkbenchError, shortage
from mcp_workbench.face.base import Face, FaceSettings
from mcp_workbench.face.view import View
from mcp_workbench.faces import FACES
from mcp_workbench.jsonrpc.messages import encode
from mcp_workbench.router.lists import FIRST_LIST_PATIENCE, Lists
from mcp_workbench.router.router import Router
from mcp_workbench.session.hub import Hub
from mcp_workbench.session.parking import Parking
from mcp_workbench.session.session import Services, Session
from mcp_workbench.session.welcome import Welcome
from mcp_workbench.transport.allocator import trim
from mcp_workbench.transport.link import AnswerReceiver, Link
from mcp_workbench.transport.processes import WITHIN, ProcessTable
from mcp_workbench.transport.write_batch import WriteBatch

if TYPE_CHECKING:
    from mcp_workbench.catalog.replacement import Difference
    from mcp_workbench.downstream.connection import Connection
    from mcp_workbench.downstream.server_link import ServerLink
    from mcp_workbench.observe.status_socket import StatusSocket
    from mcp_workbench.signin.sign_ins import BrowserSignIn, SignIns
    from mcp_workbench.signin.signed_in_headers import SignInTarget
    from mcp_workbench.steps import Step
    from mcp_workbench.transport.http.client.headers import HeaderSource
    from mcp_workbench.transport.http.client.pool import HttpClient
    from mcp_workbench.transport.http.header_parameters import HeaderParameters

log = logging.getLogger(__name__)

# Servers of a toolbox become known together; once is enough for all of them.
SUMMARISE_AFTER: Final = 1.0


class Options(Struct, frozen=True, kw_only=True):
    """How we present ourselves and what we may do, beyond the configuration."""

    name: str = "mcp-workbench"
    version: str = __version__
    use_cache: bool = True
    # What the command line says; None leaves it to the configuration.
    face: FaceName | None = None
    separator: str | None = None
    # Show tools under their own names where those are unique (face `flat`).
    prefix: bool = True
    # How long the first list of face `flat` waits for servers that are not known yet, once there is something to list.
    list_timeout: float = FIRST_LIST_PATIENCE


class Gateway:
    """Everything, connected. Use as `async with gateway.running():`."""

    def __init__(self, config: WorkbenchConfig, options: Options, redactor: Redactor | None = None) -> None:
        self.config = config
        store = ManifestStore(default_folder if options.use_cache else lambda: None)
        self.catalog = Catalog(config, store)
        self.face = make_face(self.catalog, config, options)
        self._options = options
        self._hub = Hub(self.face)
        self.parking = Parking()
        self.catalog.subscribe(self._hub.on_change)
        self.catalog.on_announced.append(self._hub.on_announced)
        self.catalog.subscribe(self._summarise_soon)
        self._summary_timer: asyncio.TimerHandle | None = None
        self.welcome = Welcome(self.face, options.name, options.version)
        self.processes = ProcessTable()
        self._redactor = redactor or Redactor(config.secrets)
        self._applying = asyncio.Lock()
        # What servers inherit from, as far as the configuration lets them.
        self._environ: Mapping[str, str] = os.environ
        self.batch: WriteBatch | None = None
        # What SIGCHLD did before us; given back at the end.
        self._old_handler: Any = None
        self._status_socket: StatusSocket | None = None
        # `stdio` or the address, told by whoever serves; None where nobody is served.
        self.serving: str | None = None
        # Where a token is kept that was made for clients over HTTP. Told to our own user alone.
        self.token_file: str | None = None
        self._http: HttpClient | None = None
        self._sign_ins: SignIns | None = None
        self._started_at = 0.0
        self._is_prepared = False
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    def steps(self) -> tuple[Step, ...]:
        """What every request to a server passes, in this order; each learns how it ended (`steps.py`)."""
        return ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything that runs, runs inside."""
        loop = asyncio.get_running_loop()
        self.batch = WriteBatch()
        self._started_at = loop.time()
        self.pool = Pool(self.catalog, self.welcome.info, self._open_link, self.start_task)
        self._lists = Lists(
            self.catalog,
            self.face,
            self.start_task,
            patience=self._options.list_timeout,
            use_cache=self._options.use_cache,
        )
        self.router = Router(self.catalog, self.pool, self.face, self.start_task, self._lists, self.steps())
        self.router.is_outdated = lambda: has_changed(self.config)
        self.router.on_opened += [self._hub.on_opened, self._summarise_if_missing]
        self.router.own_resources["workbench://status"] = self.status
        self._services = Services(self.router, self.welcome, self.parking, self._hub, self)
        failure: WorkbenchError | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    yield
                except WorkbenchError as error:
                    # Raised below: the task group would wrap it.
                    failure = error
                finally:
                    if self._summary_timer is not None:
                        self._summary_timer.cancel()
                    self.parking.close()
                    await self.pool.close()
                    for task in list(self._running):
                        # What waits for a server that must not be started any more.
                        task.cancel()
        finally:
            if self._old_handler is not None:
                signal.signal(signal.SIGCHLD, self._old_handler)
            if self._status_socket is not None:
                self._status_socket.close()
            if self._sign_ins is not None:
                await self._sign_ins.close()
            if self._http is not None:
                await self._http.close()
            # There should be nothing left but strays; if there is, it does not stay.
            self.processes.kill_all()
            self.processes.close()
        if failure is not None:
            raise failure

    async def apply(self, config: WorkbenchConfig) -> Difference:
        """Put another configuration in force while everything runs. What it does not change keeps its process and its
        calls; what it changes takes new calls with the new settings and finishes those that run on the old."""
        async with self._applying:
            plan = self.catalog.plan(_within_what_is_fixed(self.config, config))
            manifests = await asyncio.to_thread(read_manifests, plan.beginning)
            # From here on nothing waits: every request sees either the one or the other.
            for entry, manifest in manifests.items():
                entry.take_manifest(manifest)
            self._redactor.add(config.secrets)
            self.config = plan.config
            self.face.settings = _face_settings(plan.config, self._options)
            difference = self.catalog.replace(plan)
            self._start_summary_timer()
            return difference

    def end_at_once(self) -> None:
        """There is no time left for any order: nothing of ours stays all the same."""
        if self._status_socket is not None:
            self._status_socket.close()
        self.processes.kill_all()

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """A task of the gateway. What goes wrong inside is logged and ends that task alone."""
        assert self._tasks is not None
        task = self._tasks.create_task(_contained(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if asyncio.iscoroutine(work):
            # One that is cancelled before its first step would leave `work` behind, and Python complain about that.
            task.add_done_callback(lambda _: work.close())
        return task

    async def _open_link(self, connection: Connection, receiver: AnswerReceiver) -> ServerLink:
        config = connection.config
        connection.conceal = connection.traffic.conceal = self._redactor.text
        if self._status_socket is None:
            await self.open_status_socket()
        if config.command is None:
            return self._open_http(connection, receiver)
        # Imported with the first server: starting up does not need it.
        from mcp_workbench.config.environment import advice, server_environment
        from mcp_workbench.transport.child import spawn

        assert self.batch is not None
        if not self.processes.is_prepared:
            self._reap_strays_when_they_end()
            self._keep_secrets_to_ourselves()
        link = spawn(
            config.command,
            config.args,
            {
                **server_environment(self._environ, config.inherit_env, config.env),
                WITHIN: os.pathsep.join(filter(None, (self._environ.get(WITHIN), self.config.path))),
            },
            config.cwd,
            table=self.processes,
            batch=self.batch,
            receiver=receiver,
            limit=self.config.max_message_bytes,
        )
        connection.advise = lambda said: advice(self._environ, config, said)
        label = connection.label
        link.stderr.conceal = self._redactor.text
        link.stderr.on_line = lambda line: log.debug("[%s] stderr: %s", label, line)
        return link

    def _keep_secrets_to_ourselves(self) -> None:
        """Before there is anybody below us: servers can read the environment that the system shows of us."""
        from mcp_workbench.config.environment import server_environment
        from mcp_workbench.transport.environment_block import erase

        harmless, secrets = server_environment(os.environ, (), {}), self.config.secrets
        erase([name for name, value in os.environ.items() if name not in harmless and value.strip() in secrets])

    def _open_http(self, connection: Connection, receiver: AnswerReceiver) -> ServerLink:
        from mcp_workbench.transport.http.client.link import HttpLink
        from mcp_workbench.transport.http.parameter_cache import HeaderParameterCache

        config, entry = connection.config, connection.entry
        assert config.url is not None
        return HttpLink(
            self.http(),
            config.url,
            self._header_source(connection),
            receiver,
            limit=self.config.max_message_bytes,
            transport="auto" if config.transport == "stdio" else config.transport,
            parameters_of=HeaderParameterCache(lambda tool: entry.tools.get(tool), lambda: entry.tools),
        )

    def http(self) -> HttpClient:
        """The one HTTP client of this workbench."""
        from mcp_workbench.transport.http.client.pool import HttpClient

        if self._http is None:
            self._http = HttpClient(f"mcp-workbench/{__version__}")
        return self._http

    def _header_source(self, connection: Connection) -> HeaderSource:
        """What the configuration says, until the server wants somebody to sign in. A token of the user's own stands."""
        from mcp_workbench.signin.store_location import may_hold
        from mcp_workbench.transport.http.client.headers import FixedHeaders, UntilRefused

        config = connection.config
        assert config.url is not None
        if any(name.lower() == "authorization" for name in config.headers):
            return FixedHeaders(config.headers)
        entry, principal = connection.entry, connection.caller.principal

        def signed_in(headers: Mapping[str, str]) -> HeaderSource:
            return self.sign_ins().source(self.sign_in_target(entry, principal), headers)

        if config.oauth is not None or may_hold(config.url):
            return signed_in(FixedHeaders(config.headers).headers())
        return UntilRefused(config.headers, signed_in)

    def sign_ins(self) -> SignIns:
        """Everything about signing in to servers."""
        from mcp_workbench.signin.sign_ins import SignIns

        if self._sign_ins is None:
            self._sign_ins = SignIns(self.http)
        return self._sign_ins

    async def begin_sign_in(self, entry: ServerEntry, principal: str) -> BrowserSignIn:
        """For a client whose user can be shown a page (`SignInService`). The page leads back to this machine."""
        from mcp_workbench.signin.flow_io import SignInFailed, is_loopback

        if self.serving not in (None, "stdio") and not is_loopback(self.serving):
            raise SignInFailed("you are served over the network, and the page leads back to the workbench's machine")
        return await self.sign_ins().begin(self.sign_in_target(entry, principal))

    def sign_in_under_way(self, entry: ServerEntry, principal: str) -> BrowserSignIn | None:
        """What the user of such a client has been shown already."""
        return self.sign_ins().under_way(self.sign_in_target(entry, principal))

    def sign_in_target(self, entry: ServerEntry, principal: str) -> SignInTarget:
        """Where this principal signs in to this server."""
        from shlex import quote

        from mcp_workbench.signin.signed_in_headers import SignInTarget
        from mcp_workbench.transport.http.server.authentication import ANONYMOUS, TOKEN_PRINCIPAL

        config = entry.config
        assert config.url is not None
        named = [each for each in self.catalog.entries() if each.name == entry.name]
        name = entry.name if len(named) == 1 else f"{entry.toolbox}/{entry.name}"
        command = f"mcp-workbench login {quote(name)} --config {quote(self.config.path)}"
        # Whoever is served without a principal of their own is our own user, who signs in at the command line.
        own = principal in ("", TOKEN_PRINCIPAL, ANONYMOUS)
        return SignInTarget("" if own else principal, config.url, config.oauth, command)

    def _reap_strays_when_they_end(self) -> None:
        loop = asyncio.get_running_loop()
        # uvloop keeps `add_signal_handler` for SIGCHLD to itself; a plain handler that hands over does the same.
        with contextlib.suppress(ValueError):  # not in the main thread: tests
            self._old_handler = signal.signal(
                signal.SIGCHLD, lambda *_: loop.call_soon_threadsafe(self.processes.reap_strays)
            )

    def readiness(self) -> tuple[bool, bytes]:
        """Whether clients may be sent here, and what an operator should see, as JSON."""
        return not self.pool.is_closing, self.status()

    def status(self) -> bytes:
        """How we are doing, and every server, as JSON."""
        return encode(self._describe())

    def _status_for_our_user(self) -> bytes:
        return encode({**self._describe(), "tokenFile": self.token_file})

    def _describe(self) -> dict[str, Any]:
        from mcp_workbench.downstream.status import status_of

        now = asyncio.get_running_loop().time()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "config": self.config.path,
            "face": self.face.name,
            "serving": self.serving,
            "uptimeSeconds": round(now - self._started_at, 3),
            "parkedCalls": len(self.parking),
            "tasks": len(asyncio.all_tasks()),
            "servers": status_of(self.catalog.entries(), self.pool.connections(), now),
        }

    def _summarise_soon(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """What tells toolboxes apart is worked out again, a moment after servers have spoken."""
        if "tools" in kinds:
            self._start_summary_timer()

    def _summarise_if_missing(self, view: View, toolbox: str) -> None:
        """Servers that list the same as last time report no change, but a new configuration has no summary yet."""
        if self.face.tool_index is not None and self.face.tool_index.is_summary_missing:
            self._start_summary_timer()

    def _start_summary_timer(self) -> None:
        if self._summary_timer is None and self.face.tool_index is not None:
            loop = asyncio.get_running_loop()
            self._summary_timer = loop.call_later(SUMMARISE_AFTER, self._summarise, self.face.tool_index)

    def _summarise(self, tool_index: ToolIndex) -> None:
        self._summary_timer = None
        self.router.in_background(self._summarise_aside(tool_index))

    async def _summarise_aside(self, tool_index: ToolIndex) -> None:
        # All that is remembered counts, also of servers that nobody has asked for this time.
        await self._lists.load(self.catalog.entries())
        # In a thread: thousands of tools take a moment, and calls must not wait for it.
        await asyncio.to_thread(tool_index.summarise)
        # The words of thousands of tools leave megabytes behind.
        trim()

    async def open_status_socket(self) -> None:
        """From now on `mcp-workbench status` finds us."""
        if self._status_socket is None:
            from mcp_workbench.observe.status_socket import StatusSocket

            self._status_socket = StatusSocket(self._status_for_our_user)
            await self._status_socket.open()

    def mirrored_parameters(self) -> Callable[[str], HeaderParameters | None]:
        """Says of each tool which parameters clients mirror into HTTP headers; None of one that is not shown."""
        from mcp_workbench.transport.http.parameter_cache import HeaderParameterCache

        return HeaderParameterCache(self.face.definition_of, lambda: self.catalog.revision)

    def _prepare(self) -> None:
        """Read what the first client is told at once. Before anybody is served, so nobody waits beside it."""
        self._is_prepared = True
        self.catalog.load(self.face.needed_first())
        if self.face.tool_index is not None:
            self.face.tool_index.load_summaries()

    def make_session(self, link: Link, principal: str, closed: Callable[[str], None] | None = None) -> Session:
        """A session for a client that has just connected. `closed` is told when it goes, where somebody has more to do
        then than to let go of it."""
        if not self._is_prepared:
            self._prepare()
        return Session(self._services, link, principal, closed)


def make_face(catalog: Catalog, config: WorkbenchConfig, options: Options) -> Face:
    """What clients see, as the command line says or else the configuration."""
    module = import_module(FACES[options.face or config.face_in_force].module)
    face: Face = module.make(catalog, _face_settings(config, options))
    return face


def _face_settings(config: WorkbenchConfig, options: Options) -> FaceSettings:
    return FaceSettings(
        options.separator or config.separator, options.prefix, config.plain, config.pin, config.check_arguments
    )


# What clients that are connected rely on, by the names of their fields, and what the user calls them.
FIXED: Final = {
    "separator": "separator",
    "max_message_bytes": "maxMessageBytes",
    "max_pending_body_bytes": "maxPendingBodyBytes",
}


def _within_what_is_fixed(before: WorkbenchConfig, after: WorkbenchConfig) -> WorkbenchConfig:
    """The new configuration with what cannot change while clients are connected left as it is, which is said."""
    changed = [name for field, name in FIXED.items() if getattr(before, field) != getattr(after, field)]
    if before.face_in_force != after.face_in_force:
        changed.append("face")
    for name in changed:
        log.warning("`%s` has changed in `%s`: restart the workbench to have it in force", name, after.path)
    return replace(after, face=before.face_in_force, **{field: getattr(before, field) for field in FIXED})


async def _contained(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception as error:
        what = shortage(error)
        if what is None:
            log.exception("internal error; please report it")
        else:
            # Not ours to mend, and what was under way is tried again when it is asked for.
            log.warning("something was left undone: %s; %s", what, SHORTAGE_HINTS[what])
