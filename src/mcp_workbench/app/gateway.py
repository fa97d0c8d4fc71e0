"""The composition root: builds the packages for one configuration and connects them, on the runtime of the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, Struct

from mcp_workbench import __version__
from mcp_workbench.app.runtime import GatewayFacts, ProcessOwner, Runtime
from mcp_workbench.app.team_gate import TeamGate
from mcp_workbench.engine.catalog.catalog import Catalog, read_manifests
from mcp_workbench.engine.catalog.entry import OWN_CONTEXT, ServerEntry
from mcp_workbench.engine.config.model import FaceName, ServerContext, WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.face.base import STATUS_URI, Face, FaceSettings
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.faces import FACES, JOINING_FACES
from mcp_workbench.engine.lasting_state import LOCAL_STATE, LastingState
from mcp_workbench.engine.printable import report_json
from mcp_workbench.engine.router.lists import FIRST_LIST_PATIENCE, Lists
from mcp_workbench.engine.router.router import Router
from mcp_workbench.engine.session.parking import Parking
from mcp_workbench.engine.session.session import Services, Session
from mcp_workbench.engine.session.session_registry import SessionRegistry
from mcp_workbench.engine.session.welcome import Welcome
from mcp_workbench.engine.transport.allocator import trim
from mcp_workbench.engine.transport.link import Link
from mcp_workbench.errors import ConfigError, DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.app.client_sign_ins import ClientSignIns
    from mcp_workbench.app.use_memory import UseMemory
    from mcp_workbench.engine.catalog.replacement import Difference
    from mcp_workbench.engine.config.auth_settings import AuthConfig
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.face.decisions import RunProgram
    from mcp_workbench.engine.router.routed_call import RoutedCall
    from mcp_workbench.engine.router.toolbox_summaries import ToolboxSummaries
    from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters
    from mcp_workbench.programs.program_run import Programs
    from mcp_workbench.team.identity.identities import Identity
    from mcp_workbench.team.policy.approval_socket import ApprovalReply, ApprovalRequest

log = logging.getLogger(__name__)

# Without any of these, no variable of OpenTelemetry has a meaning.
OTLP_VARIABLES: Final = frozenset({"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"})
# Tools of which it is remembered what is mirrored into headers for users with a face of their own.
MAX_MIRRORING_TOOLS: Final = 1000
NOT_IN_USE: Final = "no client uses the configuration of this server any more"


class Options(Struct, frozen=True, kw_only=True):
    """How we present ourselves and what we may do, in addition to the configuration."""

    name: str = "mcp-workbench"
    version: str = __version__
    use_cache: bool = True
    # From the command line; None leaves it to the configuration.
    face: FaceName | None = None
    separator: str | None = None
    # Show tools under their own names if those are unique (face `flat`).
    prefix: bool = True
    # How long the first list of face `flat` waits for servers not listed yet, once there is something to list.
    list_timeout: float = FIRST_LIST_PATIENCE
    # Stdout carries neither answers nor data, so the audit may be written there.
    stdout_is_free: bool = False
    # Commands that only look at what servers offer are not audited.
    is_audited: bool = True
    # It ends with the command that it was made for, so nobody can approve its calls from outside.
    ends_with_command: bool = False
    # What other instances of a cluster find when this one has ended.
    state: LastingState = LOCAL_STATE
    on_opened: tuple[Callable[[View, str], None], ...] = ()
    # Whether searches learn from use, if the configuration does not say; None: they never do.
    learns: bool | None = None
    # Where a generated token for clients over HTTP is stored. Shown only to our own user.
    token_file: str | None = None


class ReloadStatus(Struct):
    """What became of changes of the configuration."""

    count: int = 0
    # Why the last one is not used.
    rejected: str | None = None
    needs_restart: list[str] = []


class Gateway(ProcessOwner):
    """One configuration, its catalogue, its face and its clients, connected. If it is alone in its process, use it as
    `async with gateway.running():`; of several on one runtime, each is opened and closed."""

    def __init__(
        self,
        config: WorkbenchConfig,
        options: Options,
        redactor: Redactor | None = None,
        *,
        runtime: Runtime | None = None,
        context: ServerContext = OWN_CONTEXT,
        auth: AuthConfig | None = None,
    ) -> None:
        """`auth`: that of the configuration, with its references resolved."""
        check_names(config, options.face or config.face_in_force)
        self.config = config
        self.options = options
        self.auth = auth or config.auth
        self.welcome = Welcome(options.name, options.version)
        # With several gateways on one runtime, none speaks for all.
        self._is_alone = runtime is None
        self.runtime = runtime = runtime or Runtime(redactor or Redactor(config.secrets), self)
        self.catalog = Catalog(config, runtime.store(use_cache=options.use_cache), runtime.servers, context)
        self.face = self.make_face(self.catalog)
        self.gate = TeamGate(self)
        self.sessions = SessionRegistry(self.gate)
        self.parking = Parking()
        self.sessions.follow(self.catalog)
        self.catalog.subscribe(partial(self.summarise_soon, self.face))
        # One after another: a plan is made against the current configuration, and reading manifests takes time.
        self._applying = asyncio.Lock()
        self.reloads = ReloadStatus()
        # `stdio` or the address; None if no client is served.
        self._serving: str | None = None
        self._is_prepared = False
        self.is_open = False
        self._is_closed = False
        if self._is_alone:
            self.gate.lock_at_once(config)
        else:
            runtime.redactor.replace(self, config.secrets)

    def make_face(self, catalog: Catalog) -> Face:
        """The face over a catalogue, by the current configuration."""
        return make_face(catalog, self.config, self.options, self._use_memory)

    @cached_property
    def _use_memory(self) -> Callable[[], UseMemory] | None:
        """Loads what remembers the needs of users, where that is wanted."""
        learns = self.options.learns if self.config.learn is None else self.config.learn
        is_wanted = learns and self.options.learns is not None
        return (lambda: self.runtime.use_memory) if is_wanted else None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the gateway; everything happens within this context."""
        async with self.runtime.running():
            await self.open()
            try:
                yield
            finally:
                self._stop_work()
                if self.gate.oversight is not None:
                    await self.gate.oversight.wait_recorded()

    async def open(self) -> None:
        """Begin to serve. The runtime is already running."""
        await self.gate.prepare(self.config)
        self.gate.use_prepared(self.catalog.entries())
        self.is_open = True
        if not self.options.ends_with_command and (missing := about_programs(self.config)) is not None:
            log.warning("%s; run_program is not offered. hint: %s", missing.message, missing.hint)
        start_task = self.runtime.start_task
        self.lists = Lists(
            self.catalog,
            start_task,
            patience=self.options.list_timeout,
            use_cache=self.options.use_cache,
        )
        self.router = Router(
            self.catalog,
            self.runtime.pool,
            self.face,
            start_task,
            self.lists,
            self.gate,
            on_opened=(self.sessions.on_opened, self._summarise_if_missing, *self.options.on_opened),
            own_resources={STATUS_URI: lambda view: self._status_json(view.principal, view.face)},
            state=self.options.state,
            programs=self._run_program,
        )
        self.runtime.counting.on_change.append(self.gate.tell_of_steps)
        self.runtime.gateway_facts.append(self._facts)
        self._serve_metrics()
        self._send_traces()
        services = Services(self.router, self.welcome, self.parking, self.sessions, self.sign_ins)
        self._begin_session = partial(_session_type().begin, services)
        self.gate.restrict()
        if not self._is_alone:
            # Clients of other configurations must not wait while this one reads what its first client needs.
            await self.lists.load(self.catalog.entries() if self.gate.has_rules else self.face.needed_first())
            await asyncio.to_thread(self._prepare)

    @cached_property
    def _programs(self) -> Programs:
        # Imported with the first program.
        from mcp_workbench.programs.program_pool import ProgramPool
        from mcp_workbench.programs.program_run import Programs

        pool = ProgramPool(self.runtime)
        self.runtime.on_end.append(pool.close)
        return Programs(pool)

    async def _run_program(self, router: Router, call: RoutedCall, decision: RunProgram) -> bytes:
        assert self.config.programs is not None, "it needs a restart, so it was on when the face offered it"
        return await self._programs.run(router, call, decision, self.config.programs)

    def _serve_metrics(self) -> None:
        """Serve metrics at the configured address, once for all gateways of the process that want them there."""
        settings, served = self.config.metrics, self.runtime.metrics
        if settings is None or settings.address is None or settings.address in served:
            return
        served[settings.address] = None
        from mcp_workbench.app.metrics_page import Metrics, serve_at

        metrics = Metrics(self.runtime, per_tool=settings.per_tool)
        reference = next((value for value in self.config.references if value.field == ("metrics", "token")), None)
        token = settings.token if reference is None else reference
        work = serve_at(settings.address, token, self.catalog.environ, metrics, self.runtime)
        _ = self.runtime.start_task(work)

    def _send_traces(self) -> None:
        """Trace calls if the configuration or the environment says so."""
        if self.may_trace:
            from mcp_workbench.app.traces import begin_traces

            begin_traces(self.runtime, self.config, self.catalog.environ, self.gate.trace)

    @property
    def may_trace(self) -> bool:
        """Whether the configuration or the environment says anything about traces."""
        return self.config.telemetry is not None or not OTLP_VARIABLES.isdisjoint(self.catalog.environ)

    def _facts(self) -> GatewayFacts:
        oversight = self.gate.oversight
        audit = None if oversight is None else oversight.audit_step
        return GatewayFacts(
            servers=[(entry.toolbox, entry.name) for entry in self.gate.every_entry()],
            has_rules=self.gate.has_rules,
            approvals_waiting=len(self.waiting_approvals()),
            audit_lost=None if audit is None else audit.lost,
            path=self.config.path,
            record=self.gate.record,
            catalog=self.catalog,
            listed=lambda: self.face.definitions(self.router.views.of_principal(""), "tools"),
        )

    @property
    def address(self) -> str | None:
        """Where clients are served: `stdio`, or an address; None before that, and in the shared workbench."""
        return self._serving

    def serve_at(self, address: str) -> None:
        """Clients are served from now on: over `stdio`, or at this address."""
        self._serving = address

    def close(self) -> None:
        """Stop serving: servers that no other catalogue shows are ended, the others continue."""
        self._is_closed = True
        self._stop_work()
        entries = self.gate.every_entry()
        for face in reversed(self.gate.whole_faces()):
            face.catalog.close(DownstreamError(NOT_IN_USE))
        if self.gate.oversight is not None:
            self.gate.oversight.release(entries)
        self.runtime.forget(entry for entry in entries if entry.ended is not None)
        self.runtime.redactor.release(self)
        self.runtime.pool.drain_ended()

    def _stop_work(self) -> None:
        if self.gate.tell_of_steps in self.runtime.counting.on_change:
            self.runtime.counting.on_change.remove(self.gate.tell_of_steps)
            self.runtime.gateway_facts.remove(self._facts)
        self.gate.stop_tracing()
        self.runtime.drop_approvals(self.decide)
        self.gate.stop_counting()
        if "_summaries" in self.__dict__:
            self._summaries.close()
        if "_programs" in self.__dict__:
            self._programs.pool.cool_down()
        self.parking.close()
        if self.gate.oversight is not None:
            self.gate.oversight.stop_recording()

    async def apply(self, config: WorkbenchConfig) -> Difference | None:
        """Switch to another configuration while everything runs. Unchanged servers keep their processes and calls;
        changed ones accept new calls with the new settings and finish running calls with the old. None: the gateway was
        closed before it could take effect."""
        # Not a thread pool, which would be joined on exit, even if a disk hangs forever.
        from mcp_workbench.engine.blocking_work import aside
        from mcp_workbench.engine.config.fixed_settings import with_fixed_settings

        async with self._applying:
            config, needs_restart = with_fixed_settings(self.config, config)
            check_names(config, self.face.name)
            await self.gate.prepare(config)
            self.reloads.needs_restart = needs_restart
            plan = self.catalog.plan(config)
            manifests = await aside(partial(read_manifests, plan.beginning))
            while not self._is_closed and any(entry.ended is not None for entry in plan.beginning):
                # It was to be shared with another catalogue, which released it meanwhile.
                plan = self.catalog.plan(config)
                manifests = await aside(partial(read_manifests, plan.beginning))
            if self._is_closed:
                self.catalog.abandon(plan, DownstreamError(NOT_IN_USE))
                return None
            # No awaits from here on: every request sees either the old or the new configuration.
            self.gate.use_prepared(plan.beginning)
            for entry, manifest in manifests.items():
                entry.take_manifest(manifest)
            # Before the catalogue is replaced, so that secrets are redacted from the first output of new servers.
            self.runtime.redactor.replace(self, config.secrets)
            has_rules = self.gate.has_rules or bool(config.policy or config.limits)
            # Rules hide and show items that no server has changed, so compare what clients see with what they saw.
            before = self.sessions.shown() if has_rules else {}
            self.config = plan.config
            settings = _face_settings(plan.config, self.options, self._use_memory)
            self.face.configure(settings)
            difference = self.catalog.replace(plan)
            if self.gate.users is not None:
                self.gate.users.apply(plan.config, settings)
            if has_rules:
                self.gate.restrict()
                self.sessions.notify_differences(before)
            self.gate.settle(plan.ending)
            self.runtime.forget(entry for entry in plan.ending if entry.ended is not None)
            self._summarise(self.face)
            self.reloads.count += 1
            self.reloads.rejected = None
            self._notice(None)
            return difference

    def reject(self, problem: str, in_short: str) -> None:
        """Keep the current configuration because the changed one cannot be used, and report why."""
        self.reloads.count += 1
        if self.reloads.rejected != problem:
            self.gate.record("configuration", decision="rejected", reason=in_short, config=self.config.path)
        self.reloads.rejected = problem
        self._notice(
            f"Note: the configuration file has changed, and the change is not in force because of a problem that the "
            f"user has to solve: {self.runtime.redactor.text(in_short)}"
        )

    def _notice(self, text: str | None) -> None:
        for face in self.gate.faces():
            face.give_notice(text)

    def sign_ins(self) -> ClientSignIns:
        """Sign-ins to servers for clients, by the current configuration."""
        from mcp_workbench.app.client_sign_ins import ClientSignIns

        is_wanted = self.gate.recorder is not None or self.runtime.figures is not None
        return ClientSignIns(self.runtime, self.config, self._serving, self.gate.record if is_wanted else None)

    def readiness(self, principal: str) -> tuple[bool, bytes]:
        """Whether clients may be sent here, and a JSON report for operators."""
        return not self.runtime.pool.is_closing, self._status_json(principal, self.router.views.face_of(principal))

    def _status_json(self, principal: str, face: Face) -> bytes:
        """For a client: without what is hidden from it, and without the connections of others."""
        return report_json(self.gate.status_for(face, self._describe(principal)))

    def status(self) -> bytes:
        """The status of this workbench and of every server, as JSON."""
        return report_json(self._describe())

    # ── for the process, if this is its only gateway (`ProcessOwner`) ──

    @property
    def state(self) -> LastingState:
        return self.options.state

    @property
    def own_info(self) -> bytes:
        return self.welcome.info

    def identity_of(self, principal: str) -> Identity:
        return self.gate.identities().of_request(principal)

    async def look_up(self) -> None:
        await self.lists.load(self.catalog.entries())

    def describe(self) -> bytes:
        from mcp_workbench.engine.session.client_name import client_names

        return report_json(
            {
                **self._describe(names=True),
                "clientNames": client_names(self.sessions),
                "tokenFile": self.options.token_file,
                "approvals": self.waiting_approvals(),
                "clusterState": self.options.state.health(),
            }
        )

    def waiting_approvals(self) -> list[dict[str, object]]:
        """Calls that wait for their user's approval. Shown only to our own user."""
        shared = self.gate.shared_approvals
        elsewhere = () if shared is None else shared.described()
        return [*(() if self.gate.access is None else self.gate.access.approvals.waiting()), *elsewhere]

    def decide(self, wanted: ApprovalRequest, by: str, peer: str = "command line") -> ApprovalReply:
        """Approve or deny a waiting call, or show it to our own user. `by`: who does, `peer`: from where."""
        from mcp_workbench.team.policy.approval_socket import ApprovalReply

        access = self.gate.access
        return ApprovalReply() if access is None else access.decide(wanted, by=by, peer=peer)

    def _describe(self, principal: str | None = None, *, names: bool = False) -> dict[str, Any]:
        """As one principal may see it; None for our own user. The output of another user's process is private to
        them. `names`: with who uses which server, which is for our own user alone."""
        from mcp_workbench.engine.downstream.server_status import status_of
        from mcp_workbench.engine.version import full_version

        now, shown = asyncio.get_running_loop().time(), self.gate.whole_face_of(principal or "").catalog
        rejected = None if self.reloads.rejected is None else self.runtime.redactor.text(self.reloads.rejected)
        seen = (each for each in self.runtime.pool.connections() if each.is_seen_by(principal))
        connections = [each for each in seen if self._is_alone or self.catalog in each.entry.catalogs]
        return {
            "pid": os.getpid(),
            "version": full_version(),
            "config": self.config.path,
            "face": self.face.name,
            "serving": self._serving,
            "uptimeSeconds": round(now - self.runtime.started_at, 3),
            "configuration": {
                "reloads": self.reloads.count,
                "rejected": rejected,
                "needsRestart": self.reloads.needs_restart,
            },
            "lock": None if self.gate.oversight is None else self.gate.oversight.problem,
            # Counts over all users are shown only to our own.
            "parkedCalls": len(self.parking) if (principal or "") in OWN_PRINCIPALS else None,
            "tasks": len(asyncio.all_tasks()) if (principal or "") in OWN_PRINCIPALS else None,
            "servers": status_of(shown.entries(), connections, now, _users_of if names else None),
        }

    def summarise_soon(self, face: Face, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Schedule new toolbox summaries a moment after servers have changed their tools."""
        if "tools" in kinds:
            self._summarise(face)

    def _summarise_if_missing(self, view: View, toolbox: str) -> None:
        """Servers that list what another process has cached meanwhile report no change, but there is no summary for it
        yet."""
        if (index := self.gate.whole_face_of(view.principal).tool_index) is not None and index.is_summary_missing:
            self._summaries.start_timer(index)

    def _summarise(self, face: Face) -> None:
        # A command that joins the shared workbench has its own catalogue, but serves no client from it.
        if face.tool_index is not None and self.is_open:
            self._summaries.start_timer(face.tool_index)

    @cached_property
    def _summaries(self) -> ToolboxSummaries:
        from mcp_workbench.engine.router.toolbox_summaries import ToolboxSummaries

        return ToolboxSummaries(self.router, self.lists, trim)

    def mirrored_parameters(self) -> Callable[[str, str], HeaderParameters | None]:
        """Returns, for a tool, the parameters that a principal's clients mirror into HTTP headers; None for a tool that
        is not visible to it, so as not to reveal that it exists."""
        from mcp_workbench.engine.transport.http.parameter_cache import HeaderParameterCache, read_parameters

        # What a definition says does not change, and a server that is listed again has others.
        read: dict[str, tuple[Raw, HeaderParameters | None]] = {}

        gate, views = self.gate, self.router.views

        def read_for(tool: str, principal: str) -> HeaderParameters | None:
            if views.tells_clients_apart:
                face = views.face_of(principal)
            else:
                # Settled already, for the request that follows.
                face = views.of_principal(principal).face
                if gate.users is not None:
                    gate.users.touch(principal)
            definition = face.definition_of(tool)
            if definition is None:
                return None
            known = read.get(tool)
            if known is None or known[0] is not definition:
                if len(read) >= MAX_MIRRORING_TOOLS:
                    read.clear()
                known = read[tool] = definition, read_parameters(definition)
            return known[1]

        def state(principal: str) -> object | None:
            return self.catalog.revision if gate.access is None and principal in OWN_PRINCIPALS else None

        return HeaderParameterCache(self.face.definition_of, state, read_for=read_for)

    def _prepare(self) -> None:
        """Read what the first client needs at once. Called before any client is served, so none has to wait."""
        self._is_prepared = True
        self.catalog.load(self.face.needed_first())
        if self.face.tool_index is not None:
            self.face.tool_index.load_summaries()

    def make_session(
        self, link: Link, principal: str, closed: Callable[[str], None] | None = None, *, lasts: bool = False
    ) -> Session:
        """Create a session for a client that has just connected. `closed` is called when it disconnects, if more has to
        be done then than releasing it. `lasts`: the link is one of several, and lives as long as its client."""
        if not self._is_prepared:
            self._prepare()
        return self._begin_session(link, principal, closed, lasts)


def _users_of(connection: Connection) -> dict[str, object]:
    """Whose connection it is, unless it is our own user's, which clients use it, and what it says otherwise now."""
    from mcp_workbench.engine.session.client_name import client_names

    own = connection.principal in OWN_PRINCIPALS
    names = client_names(connection.traffic.clients.sessions())
    return {"user": None if own else connection.principal, "clientNames": names, "changed": connection.entry.changed}


def _session_type() -> type[Session]:
    if not log.isEnabledFor(logging.DEBUG):
        return Session
    from mcp_workbench.engine.session.request_log import LoggedSession

    return LoggedSession


def check_names(config: WorkbenchConfig, face: str) -> None:
    """Raise `ConfigError` for names that this face cannot show, although the file allows them: it need not know of
    `--face`."""
    if face not in JOINING_FACES:
        return
    from mcp_workbench.engine.config.reading import registered_name_fault

    named = [("toolbox", toolbox) for toolbox in config.toolboxes]
    named += [("server", server.name) for _, server in config.servers()]
    for what, name in named:
        if (fault := registered_name_fault(name, what)) is not None:
            found, expected = fault
            hint = f"rename the {what} in the file, or choose another face"
            raise ConfigError(f"the {what} name `{name}` {found}, expected {expected}", hint=hint)


def make_face(
    catalog: Catalog, config: WorkbenchConfig, options: Options, use_memory: Callable[[], UseMemory] | None = None
) -> Face:
    """The face selected by the command line, or else by the configuration."""
    module = import_module(FACES[options.face or config.face_in_force].module)
    face: Face = module.make(catalog, _face_settings(config, options, use_memory))
    return face


def about_programs(config: WorkbenchConfig) -> DownstreamError | None:
    """Return why agents' programs, if they are on, cannot run."""
    if config.programs is None:
        return None
    from mcp_workbench.programs import program_pool

    return program_pool.why_not()


def _face_settings(
    config: WorkbenchConfig, options: Options, use_memory: Callable[[], UseMemory] | None
) -> FaceSettings:
    return FaceSettings(
        options.separator or config.separator,
        options.prefix,
        config.plain,
        config.pin,
        config.check_arguments,
        config.splits_use_tool,
        config.programs is not None and about_programs(config) is None,
        config.clients,
        state=options.state,
        use=use_memory,
    )
