"""From a decision to an action: finds the connection, waits for servers that have to start, opens toolboxes.

Owns the order of things. Refuses to know how a face decides and how a connection works inside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.audience import Audience
from mcp_workbench.downstream.lifecycle import State
from mcp_workbench.downstream.pool import Pool
from mcp_workbench.downstream.sharing import SHARED, Caller
from mcp_workbench.downstream.traffic import Correspondent, ForwardedExchange, Traffic
from mcp_workbench.errors import DownstreamError, StillStarting, WorkbenchError, shortage
from mcp_workbench.face.base import Face, Params
from mcp_workbench.face.decisions import Answer, Decision, Forward, Learn, Load, NotConfigured, Open, Reject, Work
from mcp_workbench.face.opening import Failures
from mcp_workbench.face.tasks import Tasks
from mcp_workbench.face.view import View
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, encode
from mcp_workbench.lists import STARTS_AT_ONCE, Lists, is_large, is_rested
from mcp_workbench.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.catalog.replacement import Plan
    from mcp_workbench.downstream.connection import Connection
    from mcp_workbench.downstream.watch import Watch

log = logging.getLogger(__name__)

# How long a search through everything waits for servers that nobody knows yet. Downloads by `npx` or `uvx` take longer;
# what is found without them is better than a client that has given up.
SEARCH_PATIENCE: Final = 10.0
# A server that was started only to say what it offers is stopped again after this long, unless somebody calls it: an
# agent that looks through fifty servers uses one of them, and that soon.
LISTED_STAYS: Final = 60.0
# A catalogue that changes while it is indexed is indexed again, but not for ever.
MOST_PREPARATIONS: Final = 3
# A server that was not of the era that was expected is looked for again: once in the other era, and once more should
# it have been replaced meanwhile.
MOST_MEETINGS: Final = 4
CHANGES_ERAS: Final = "the server speaks another era of MCP each time that it is started"
NOBODY_ASKED: Final = "`requestState` belongs to no question that was asked here; send the request anew, without it"


class RoutedCall(ForwardedExchange):
    """A client's request, with everything that the router has to know of it."""

    __slots__ = (
        "decision",
        "entry",
        "from_modern",
        "is_retry",
        "item",
        "meta",
        "revision",
        "task",
        "traffic",
        "view",
    )

    view: View
    # The revision that its client speaks to us.
    revision: Revision
    # Whether there is such a stamp: asked for at every turn.
    from_modern: bool
    # Carries a `requestState` that is not ours: a modern server has given it out.
    is_retry: bool
    meta: Raw | None
    # Where it went, as far as it got.
    entry: ServerEntry | None
    decision: Forward | None
    # What the client called it, before there is a decision.
    item: str
    traffic: Traffic | None
    task: asyncio.Task[None] | None

    def finish_result(self, result: bytes) -> None:
        """Answer with a result."""
        raise NotImplementedError

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        """Answer with a JSON-RPC error."""
        raise NotImplementedError


class Router:
    """Carries out decisions."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        face: Face,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        lists: Lists,
    ) -> None:
        self.face = face
        self._catalog = catalog
        self._pool = pool
        self.start_task = start_task
        self.lists = lists
        # Whether the configuration has changed since it was read. Looks at the disk.
        self.is_outdated: Callable[[], bool] = lambda: False
        # Told when a toolbox is opened for the first time in a view.
        self.on_opened: list[Callable[[View, str], None]] = []
        self.tasks = Tasks(self.face)
        # Resources of ours, by URI: how we are doing.
        self.own_resources: dict[str, Callable[[], bytes]] = {}
        self._views: dict[str, View] = {}
        # Those of sessions, which go with them.
        self._session_views: set[View] = set()
        catalog.subscribe(self._take_note)
        catalog.on_replaced.append(self._on_replaced)

    def view(self, principal: str) -> View:
        """What the clients of this principal have before them that keep no session."""
        view = self._views.get(principal)
        if view is None:
            view = self._views[principal] = View(principal)
        return view

    def forget_client(self, client: Correspondent) -> None:
        """A client with a session is gone: no server asks it anything any more."""
        for connection in self._pool.connections():
            connection.traffic.audience.leave(client)
        self._pool.end_client(client.caller.client)

    def end_session_view(self, view: View) -> None:
        """Its client is gone."""
        self._session_views.discard(view)

    def session_view(self, principal: str) -> View:
        """What one client has before it that has begun a session: what others opened is not its business."""
        view = View(principal)
        self._session_views.add(view)
        return view

    def _take_note(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        # For views, not for sessions: a modern client that does not listen has none that is told of changes.
        for view in (*self._views.values(), *self._session_views):
            self.face.take_note(view, entry, kinds)

    def _on_replaced(self, plan: Plan) -> None:
        self.lists.forget(plan.ending)
        for view in (*self._views.values(), *self._session_views):
            for toolbox in plan.difference.toolboxes.removed:
                view.opened.pop(toolbox, None)
                view.changed.pop(toolbox, None)

    def in_background(self, work: Awaitable[None]) -> None:
        """Work that nobody waits for; the task group owns it."""
        _ = self.start_task(work)

    # ── calls ──

    def call_tool(self, call: RoutedCall, params: Params) -> None:
        """A `tools/call`. Nothing on the way of a call to a ready server waits for anything."""
        self.act(call, self.face.resolve_tool(call.view, params), params)

    def act(self, call: RoutedCall, decision: Decision, params: Params | None = None) -> None:
        """Do what was decided."""
        match decision:
            case Forward():
                if decision.entry.asks and not call.caller.client:
                    call.caller = self._pool.caller_alone(decision.entry, call.caller, call.client)
                connection = self.connection(decision.entry, call)
                if connection.state is State.READY:
                    self._send(call, decision, connection)
                else:
                    call.entry, call.decision = decision.entry, decision
                    call.task = self.start_for(call, self._forward_when_ready(call, decision))
                    if decision.entry.asks and call.caller.client <= SHARED:
                        connection.traffic.audience.reserved_for = call.client
                        call.task.add_done_callback(lambda _: _release(connection.traffic.audience))
            case Answer():
                call.finish_result(decision.result)
            case Work():
                call.task = self.start_for(call, self._work(call, decision))
            case Reject():
                call.finish_error(decision.code, decision.message, decision.data)
            case Open():
                call.task = self.start_for(call, self._open(call, decision))
            case Load():
                call.task = self.start_for(call, self._load_and_act(call, decision, params))
            case NotConfigured():
                call.task = self.start_for(call, self._answer_not_configured(call, decision))
            case Learn():
                assert params is not None
                call.entry, call.item = decision.entry, decision.item
                call.task = self.start_for(call, self._learn_and_call(call, decision, params))

    def start_for(self, call: RoutedCall, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that a call waits for: should it fail by a defect of ours, the call ends all the same."""
        task = self.start_task(self._ending_in_an_answer(call, work))
        # A call that is given up before the first step of its task leaves `work` behind.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _ending_in_an_answer(self, call: RoutedCall, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            what = shortage(error)
            if what is not None:
                log.warning("a request could not be handled: %s", what)
                call.finish_error(INTERNAL_ERROR, f"the workbench could not handle this request: {what}")
                return
            log.exception("a request could not be handled; please report this")
            call.finish_error(INTERNAL_ERROR, "the workbench could not handle this request; its log says why")

    async def _work(self, call: RoutedCall, decision: Work) -> None:
        call.finish_result(await asyncio.to_thread(decision.make))

    async def _load_and_act(self, call: RoutedCall, decision: Load, params: Params | None) -> None:
        await self.lists.load(decision.entries)
        call.task = None
        self.act(call, decision.decide(), params)

    async def _answer_not_configured(self, call: RoutedCall, decision: NotConfigured) -> None:
        is_outdated = await asyncio.to_thread(self.is_outdated)
        call.finish_result(decision.result(is_outdated=is_outdated))

    async def _learn_and_call(self, call: RoutedCall, learn: Learn, params: Params) -> None:
        entries = (learn.entry, *learn.others)
        may_start = not learn.others
        heard = [self.lists.look_again(self.connection(entry, call), may_start=may_start) for entry in entries]
        outcomes = dict(zip(entries, await asyncio.gather(*heard, return_exceptions=True), strict=True))
        decision = self.face.resolve_tool(call.view, params, fresh=True)
        for entry, outcome in outcomes.items():
            if isinstance(outcome, WorkbenchError) and not (learn.others and isinstance(decision, Forward)):
                call.entry = entry
                call.on_failure(outcome)
                return
            if isinstance(outcome, BaseException) and not isinstance(outcome, WorkbenchError):
                raise outcome
        self.act(call, decision, params)

    async def _forward_when_ready(self, call: RoutedCall, decision: Forward) -> None:
        try:
            connection = await self.ready_connection(decision.entry, call)
        except WorkbenchError as error:
            call.on_failure(error)
            return
        self._send(call, decision, connection)

    def _send(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        call.entry = decision.entry
        call.decision = decision
        call.task = None
        call.traffic = traffic = connection.traffic
        if call.is_retry and not traffic.takes_retries:
            # A legacy server would take it for a new call, and do once more what was done before.
            call.finish_error(INVALID_PARAMS, NOBODY_ASKED)
            return
        if call.log_level is not None:
            connection.watch.want_log_level(call.log_level)
        timeout = connection.config.timeout
        traffic.forward(call, decision.method, decision.item, decision.body, call.meta, call.revision, timeout)

    def send_again(self, call: RoutedCall, body: bytes) -> None:
        """The same request with more in it, as the server asked for."""
        assert call.decision is not None
        decision = replace(call.decision, body=body)
        connection = self.connection(decision.entry, call)
        if connection.state is State.READY:
            self._send(call, decision, connection)
        else:
            call.task = self.start_for(call, self._forward_when_ready(call, decision))

    def send_after_listing(self, call: RoutedCall) -> None:
        """The same request once more, when the server has said anew what it offers: its headers depend on that."""
        assert call.decision is not None
        call.task = self.start_for(call, self._list_and_send(call, call.decision))

    async def _list_and_send(self, call: RoutedCall, decision: Forward) -> None:
        try:
            connection = await self.ready_connection(decision.entry, call)
            await connection.list_anew()
        except WorkbenchError as error:
            call.on_failure(error)
            return
        self._send(call, decision, connection)

    def connection(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """The connection that this call uses."""
        return self._connection(entry, call.caller, call.client)

    def _connection(self, entry: ServerEntry, caller: Caller, client: Correspondent | None) -> Connection:
        connection = self._pool.connection(entry, caller)
        if client is not None:
            connection.traffic.audience.join(client, has_session=caller.client > SHARED)
        return connection

    async def ready_connection(self, entry: ServerEntry, call: RoutedCall) -> Connection:
        """The same once requests can be sent on it. Raises `DownstreamError`.

        Meeting a server may show that it speaks other eras than was thought, and then this call takes another one.
        """
        for _ in range(MOST_MEETINGS):
            connection = self.connection(entry, call)
            await connection.ensure_ready()
            if connection is self.connection(entry, call):
                return connection
        raise DownstreamError(CHANGES_ERAS, hint="set `protocol` of this server to the revision that it speaks")

    # ── opening a toolbox ──

    async def open_toolbox(
        self, toolbox: str, caller: Caller, client: Correspondent | None = None
    ) -> dict[str, WorkbenchError]:
        """Connect all servers of a toolbox side by side; returns what failed, by server."""
        entries = tuple(self._catalog.toolboxes[toolbox].values())
        await self.lists.load(entries)
        failures = await self._open_all(entries, caller, client)
        return {server: error for (_, server), error in failures.items()}

    async def _open_all(
        self,
        entries: Sequence[ServerEntry],
        caller: Caller,
        client: Correspondent | None,
    ) -> Failures:
        opening = (self._open_server(entry, caller, client, starts_known=True) for entry in entries)
        results = await asyncio.gather(*opening, return_exceptions=True)
        failures: Failures = {}
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, WorkbenchError):
                failures[entry.toolbox, entry.name] = result
                self._catalog.missed(entry, result)
            elif isinstance(result, BaseException):
                raise result
        return failures

    async def _ask_all(self, entries: Sequence[ServerEntry], call: RoutedCall, patience: float | None) -> Failures:
        """Have the servers that nobody knows yet say what they offer, a few at a time; those that are known rest."""
        places = asyncio.Semaphore(STARTS_AT_ONCE)
        failures: Failures = {}

        async def ask(entry: ServerEntry) -> None:
            async with places:
                connection = self.connection(entry, call)
                starts = connection.starts
                try:
                    await self._open_server(entry, call.caller, call.client, starts_known=False)
                except WorkbenchError as error:
                    failures[entry.toolbox, entry.name] = error
                    self._catalog.missed(entry, error)
                if connection.starts > starts and not connection.traffic.call_count:
                    connection.linger(LISTED_STAYS)

        unknown = [entry for entry in entries if entry.offer is None or entry.failure is not None]
        outdated = self.lists.outdated(entries, lambda entry: self.connection(entry, call))
        if outdated:
            refreshing = self.start_task(self.lists.refresh(outdated))
            if patience is None:
                # A search through everything goes by what is known: asking all servers each time would take too long.
                await asyncio.wait({refreshing})
        asked = {entry: self.start_task(ask(entry)) for entry in unknown}
        if asked:
            await asyncio.wait(asked.values(), timeout=patience)
        still_starting = [entry for entry, task in asked.items() if not task.done()]
        for entry in still_starting:
            failures[entry.toolbox, entry.name] = StillStarting("is still starting", hint="ask again in a moment")
        return dict(failures)

    async def _open_server(
        self, entry: ServerEntry, caller: Caller, client: Correspondent | None, *, starts_known: bool
    ) -> None:
        connection = self._connection(entry, caller, client)
        if connection.entry.offer is not None and connection.entry.failure is None:
            if not starts_known:
                return
            # Answer from what is known, and start the server behind it.
            if connection.state in (State.CONFIGURED, State.KNOWN, State.STOPPED):
                connection.start_in_background()
                return
            if connection.state in (State.STARTING, State.READY, State.STOPPING):
                await self.lists.refresh(self.lists.outdated((connection.entry,), lambda _: connection))
                return
        if starts_known or is_rested(connection):
            await connection.ensure_listed(asked=True)
            self._catalog.works(connection.entry)
        elif connection.last_error is not None:
            # Looking through everything does not try again what has just failed.
            raise connection.last_error

    async def _open(self, call: RoutedCall, decision: Open) -> None:
        request, toolbox = decision.request, decision.request.toolbox_name
        first_time = decision.starts_known and toolbox is not None and toolbox not in call.view.opened
        await self.lists.load(decision.entries)
        if decision.starts_known:
            self.face.settle_names(decision.entries)
            failures = await self._open_all(decision.entries, call.caller, call.client)
        else:
            searches_everywhere = request.query is not None and toolbox is None
            failures = await self._ask_all(decision.entries, call, SEARCH_PATIENCE if searches_everywhere else None)
        for _ in range(MOST_PREPARATIONS):
            preparation = self.face.preparation(request)
            if preparation is None:
                break
            # In a thread: thousands of tools take a moment, and other calls must not wait for it.
            await asyncio.to_thread(preparation)
        if toolbox is not None and toolbox not in self._catalog.toolboxes:
            # Removed from the configuration while it was opened.
            self.act(call, self.face.no_such_toolbox(toolbox))
            return
        if self.face.opens_in_thread and is_large(decision.entries):
            call.finish_result(await asyncio.to_thread(self.face.opened, call.view, request, failures))
        else:
            call.finish_result(self.face.opened(call.view, request, failures))
        if first_time and toolbox is not None:
            for listener in self.on_opened:
                listener(call.view, toolbox)

    # ── lists ──

    def list_when_possible(self, call: RoutedCall, kind: str, answer: Callable[[], None]) -> None:
        """Call `answer` when the list can be given: at once, unless servers have to be heard first."""
        waiting = self.lists.prepare(call.view, kind, lambda entry: self.connection(entry, call))
        if waiting is None:
            answer()
        else:
            call.task = self.start_for(call, self._answer_after(call, waiting, answer))

    async def hear_servers(self, call: RoutedCall, kind: str) -> None:
        """Wait for the servers that have to be heard before one can say what is in this list."""
        waiting = self.lists.prepare(call.view, kind, lambda entry: self.connection(entry, call))
        if waiting is not None:
            await waiting

    async def _answer_after(
        self, call: RoutedCall, waiting: Coroutine[Any, Any, None], answer: Callable[[], None]
    ) -> None:
        await waiting
        call.task = None
        answer()

    def own_resource(self, view: View, uri: str) -> bytes | None:
        """The result of reading a resource of ours."""
        if uri in self.own_resources:
            text = self.own_resources[uri]().decode()
            return encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})
        return self.face.own_resource(view, uri)

    # ── what clients want to be told ──

    async def watch(self, call: RoutedCall, entry: ServerEntry) -> Watch:
        """Where resources of this server are watched for this call's client, now and later. Raises `WorkbenchError`."""
        return (await self.ready_connection(entry, call)).watch

    def set_log_level(self, caller: Caller, level: str) -> None:
        """Have every server that callers like this one use log from this level on, those started later included."""
        self._pool.set_log_level(caller, level)

    def tell_servers(self, caller: Caller, method: str, params: bytes | None) -> None:
        """A notification that concerns all servers of these callers which are running."""
        for connection in self._pool.used_by(caller):
            if (
                connection.state is State.READY
                and connection.revision is not None
                and connection.revision.has_handshake
            ):
                connection.traffic.tell(method, params)


def _release(audience: Audience) -> None:
    audience.reserved_for = None
