"""The operations of a session: the face decides, the router acts.

The only way to a server: every request of a client to a server passes the steps (`step_runner.py`) here. Knows neither
how a face decides nor how a connection works.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.offer import SKILLS_EXTENSION
from mcp_workbench.engine.downstream.clients import ConnectionClients
from mcp_workbench.engine.downstream.lifecycle import READY
from mcp_workbench.engine.downstream.pool import Pool
from mcp_workbench.engine.downstream.sharing import SHARED
from mcp_workbench.engine.face.base import Face, Params, unsupported
from mcp_workbench.engine.face.decisions import (
    Answer,
    CallEach,
    Decision,
    Forward,
    HandOver,
    Learn,
    Load,
    Open,
    Reject,
    RunProgram,
    Work,
)
from mcp_workbench.engine.face.gate import Gate
from mcp_workbench.engine.face.view import View, Views
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, Body, encode
from mcp_workbench.engine.lasting_state import LOCAL_STATE, LastingState
from mcp_workbench.engine.protocol.results import result_type
from mcp_workbench.engine.router.caller_connections import CallerConnections, CallerReach
from mcp_workbench.engine.router.lists import Lists, Preparation
from mcp_workbench.engine.router.routed_call import Notifier, RoutedCall, passage_of, remind, why_unhandled
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.downstream.connection import Connection
    from mcp_workbench.engine.router.step_runner import JudgeResult, StepRunner
    from mcp_workbench.engine.router.subscriptions import Subscriptions
    from mcp_workbench.engine.router.task_requests import TaskRequests
    from mcp_workbench.engine.router.toolboxes import Toolboxes
    from mcp_workbench.engine.steps import Denial, Passage, Step, Tracker

log = logging.getLogger(__name__)

# Results larger than this are shortened in a thread, so that other calls need not wait.
LARGE_TO_SHORTEN: Final = 256 * 1024
NO_RESOURCES: Final[Mapping[str, Callable[[View], bytes]]] = {}
# A result that is smaller may say everything twice, as text and as structured content.
MIN_DEDUPLICATED_BYTES: Final = 1024
_twice: Final = re.compile(rb'"structuredContent"').search
# In the capabilities of clients that show user interfaces of tools.
APPS: Final = b"io.modelcontextprotocol/ui"
UNKNOWN_STATE: Final = (
    "`requestState` does not belong to any question that waits here; the call that asked it may have been accepted. To "
    "make it anew, send it without `requestState`"
)


ProgramRunner = Callable[["Router", RoutedCall, RunProgram], Awaitable[bytes]]


class Router:
    """Carries out the requests of clients."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        face: Face,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        lists: Lists,
        gate: Gate,
        *,
        on_opened: Sequence[Callable[[View, str], None]] = (),
        own_resources: Mapping[str, Callable[[View], bytes]] = NO_RESOURCES,
        state: LastingState = LOCAL_STATE,
        programs: ProgramRunner | None = None,
    ) -> None:
        """`on_opened`: called when a toolbox is opened for the first time in a view. `own_resources`: our own by URI,
        such as our status, limited to what a view shows. `state`: where handles of tasks are left for other
        instances. `programs`: runs the program of a call, if agents may send some."""
        self._state = state
        self._programs = programs
        self.gate = gate
        self._pool = pool
        self._start_task = start_task
        self._lists = lists
        self.views = Views(face, gate)
        self.connections = CallerConnections(pool)
        self._catalog = catalog
        # None unless there are steps.
        self.steps: StepRunner | None = None
        self._on_opened = on_opened
        self._own_resources = own_resources
        self.follow(catalog)
        gate.follow(self)
        self.on_steps_changed()

    def follow(self, catalog: Catalog) -> None:
        """From now on, pass changes in this catalogue on to views."""
        self._lists.follow(catalog)
        catalog.subscribe(partial(self.views.on_change, catalog))
        catalog.on_replaced.append(partial(self._on_replaced, catalog))

    def _on_replaced(self, catalog: Catalog, plan: Plan) -> None:
        self._lists.forget(plan.ending)
        self.views.on_replaced(catalog, plan)

    # Imported with the first request that needs them, to keep them out of start-up.

    @cached_property
    def _toolboxes(self) -> Toolboxes:
        from mcp_workbench.engine.router.toolboxes import Toolboxes

        return Toolboxes(self._catalog, self.connections, self._lists, self._start_task, self._on_opened)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Resources that clients subscribe to."""
        from mcp_workbench.engine.router.subscriptions import Subscriptions

        return Subscriptions(self)

    @cached_property
    def tasks(self) -> TaskRequests:
        """Tasks, which servers continue after their response."""
        from mcp_workbench.engine.router.task_requests import TaskRequests

        return TaskRequests(self, self._pool, self._lists, self._state)

    def on_steps_changed(self) -> None:
        """Send every new request through the steps of the gate (`GateFollower`). Requests in flight continue as they
        began."""
        steps, tracker = self.gate.steps(), self.gate.tracker
        self.steps = _make_runner(steps, tracker, self) if steps or tracker is not None else None

    def on_rules_changed(self, principal: str | None) -> None:
        """Show clients what they may see now (`GateFollower`)."""
        self.views.settle_again(principal)

    def in_background(self, work: Awaitable[None]) -> None:
        """Start work that no request waits for. The task group owns it."""
        _ = self._start_task(work)

    def has_one_server(self, view: View) -> bool:
        return view.face.sole_entry() is not None

    # ── requests ──

    def call_tool(self, call: RoutedCall, params: Params) -> None:
        """Handle a `tools/call`. A call to a ready server waits for nothing on its way."""
        view = call.view
        decision = view.face.resolve_tool(view, params)
        if type(decision) is Forward:
            # Nearly all, so the others are not looked at.
            self._forward(call, decision)
        else:
            self.act(call, decision, params)

    def get_prompt(self, call: RoutedCall, params: Params) -> None:
        self._resolve(call, "prompts", lambda: call.view.face.resolve_prompt(call.view, params))

    def read_resource(self, call: RoutedCall, params: Params) -> None:
        """Handle a `resources/read`, except for our own resources."""
        self._resolve(call, "resources", lambda: call.view.face.resolve_resource(call.view, params, call.revision))

    def ask_about_skill(self, call: RoutedCall, params: Params) -> None:
        """Handle a `skills/get` or a `resources/directory/read`; if no server has skills, like any unknown method."""

        def act() -> None:
            if self.has_skills(call.view):
                self.act(call, call.view.face.resolve_skill(call.view, call.method, params, call.revision))
            else:
                self.relay(call, params)

        self.when_listed(call, "skills", act)

    def has_skills(self, view: View) -> bool:
        """Whether a server that this client sees has skills."""
        return any(SKILLS_EXTENSION in entry.extensions for entry in view.face.known(view))

    def complete(self, call: RoutedCall, params: Params) -> None:
        self._resolve(call, "prompts", lambda: call.view.face.resolve_completion(call.view, params, call.revision))

    def relay(self, call: RoutedCall, params: Params) -> None:
        # Refused, because the result would not be filtered for tasks of other users.
        if call.method.startswith("tasks/") and call.method not in call.revision.task_methods:
            self.act(call, unsupported(call.method))
        else:
            self.act(call, call.view.face.resolve_unknown(call.view, call.method, params))

    def _resolve(self, call: RoutedCall, kind: str, decide: Callable[[], Decision]) -> None:
        """Carry out a decision. An item that no server is known to have is looked up again after all have been
        listed."""
        decision = decide()
        if isinstance(decision, Reject):
            self.when_listed(call, kind, lambda: self.act(call, decide()))
        else:
            self.act(call, decision)

    def act(self, call: RoutedCall, decision: Decision, params: Params | None = None) -> None:
        """Carry out a decision."""
        match decision:
            case Forward():
                self._forward(call, decision)
            case CallEach():
                self.start_for(call, self._call_each(call, decision))
            # A tool that is looked up again may be found, and is counted when it is called.
            case Answer() | Reject() | Open() | Work() | RunProgram() | HandOver() if (
                self.steps and self.steps.refuses_to_answer(call)
            ):
                return
            # An error of the face passes here twice: it is noted for observers, then answered.
            case Answer() | Reject() if self.steps and not call.route.passage and self.steps.notes(call, decision):
                self.act(call, decision)
            case Answer():
                call.finish_result(decision.result)
            case Work():
                self.start_for(call, self._work(call, decision))
            case Reject():
                call.finish_error(decision.code, decision.message, decision.data)
            case HandOver():
                decision.take(call)
            case RunProgram():
                self.start_for(call, self._run_program(call, decision))
            case Open():
                self.start_for(call, self._open(call, decision))
            case Load():
                self.start_for(call, self._load_and_act(call, decision, params))
            case Learn():
                assert params is not None
                call.route.entry, call.route.item = decision.entry, decision.item
                self.start_for(call, self._list_and_call(call, decision, params))

    def start_for(self, call: RoutedCall, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that a call waits for. If it fails because of a defect of ours, the call still ends."""
        if self.steps is not None:
            self.steps.begin_to_wait(call)
        task = call.route.task = self._start_task(self._ending_in_an_answer(call, work))
        # If a call is cancelled before its task first runs, `work` would never be awaited or closed.
        task.add_done_callback(lambda _: work.close())
        if call.progress_token is not None:
            remind(task, call)

    async def _ending_in_an_answer(self, call: RoutedCall, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._note_unsent(call)
            call.finish_error(INTERNAL_ERROR, why_unhandled(error))

    async def _work(self, call: RoutedCall, decision: Work) -> None:
        make = (call.is_inner and decision.make_whole) or decision.make
        call.finish_result(await asyncio.to_thread(make))

    async def _call_each(self, call: RoutedCall, decision: CallEach) -> None:
        # Imported with the first list of calls.
        from mcp_workbench.engine.router.call_list import call_each

        result = await call_each(self, call, decision)
        call.route.task = None
        call.finish_result(result)

    async def _run_program(self, call: RoutedCall, decision: RunProgram) -> None:
        assert self._programs is not None
        result = await self._programs(self, call, decision)
        call.route.task = None
        call.finish_result(result)

    async def _open(self, call: RoutedCall, decision: Open) -> None:
        instead = await self._toolboxes.open(call, decision)
        if instead is not None:
            self.go_on(call)
            self.act(call, instead)

    def go_on(self, call: RoutedCall) -> None:
        """Restore the identity of a call that had to wait: decisions are about the user who made it, and no later
        one."""
        if self.steps is not None:
            self.steps.recall_identity(call)

    def _note_unsent(self, call: RoutedCall) -> None:
        """Record the end of a call that never reached the steps, because it may have started a server."""
        if passage_of(call) is None and self.steps is not None:
            call.route.passage = self.steps.unsent(call)

    async def _load_and_act(self, call: RoutedCall, decision: Load, params: Params | None) -> None:
        await self._lists.load(decision.entries)
        if decision.recall is not None:
            await decision.recall()
        call.route.task = None
        self.go_on(call)
        self.act(call, decision.decide(), params)

    async def _list_and_call(self, call: RoutedCall, learn: Learn, params: Params) -> None:
        entries = (learn.entry, *learn.others)
        # No server is started for a guess: of several candidates, only the running ones are listed again.
        may_start = not learn.others
        listing = [
            self._lists.look_again(self.connections.of_call(entry, call), may_start=may_start) for entry in entries
        ]
        outcomes = dict(zip(entries, await asyncio.gather(*listing, return_exceptions=True), strict=True))
        self.go_on(call)
        if any(self.connections.is_replaced(entry, call) for entry in entries):
            call.route_again()
            return
        decision = call.view.face.resolve_tool(call.view, params, fresh=True)
        for (entry, outcome), item in zip(outcomes.items(), learn.items, strict=True):
            # One of several candidates may fail if another has the tool.
            if isinstance(outcome, WorkbenchError) and not (learn.others and isinstance(decision, Forward)):
                call.route.entry, call.route.item = entry, item
                self._note_unsent(call)
                call.on_failure(outcome)
                return
            if isinstance(outcome, BaseException) and not isinstance(outcome, WorkbenchError):
                raise outcome
        self.act(call, decision, params)

    # ── sending ──

    def _forward(self, call: RoutedCall, decision: Forward) -> None:
        steps = self.steps
        if steps is not None:
            tracker, route = steps.plain_tracker, call.route
            if tracker is not None and route.arrived is None and not (route.passage or tracker.is_watched):
                # It is only counted, and that when it ends.
                route.tracker, route.arrived = tracker, monotonic()
            elif not steps.lets_pass(call, decision):
                return
        # Over stdio, nothing shows which call a question belongs to, so a client without a session gets a
        # connection without calls of other clients.
        if decision.entry.asks and not call.caller.client:
            call.route.caller = self._pool.caller_alone(decision.entry, call.caller, call.client)
        connection = self.connections.for_use(decision.entry, call)
        if connection.state is READY and (steps is None or not steps.definition_steps or connection.lists.is_done):
            self._send(call, decision, connection)
        else:
            self._forward_later(call, decision, connection)

    def _forward_later(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        call.route.entry, call.route.decision = decision.entry, decision
        if self.steps is not None:
            self.steps.wait_for_server(call)
        self.start_for(call, self._forward_when_ready(call, decision))
        if decision.entry.asks and call.route.caller.client <= SHARED and call.route.task is not None:
            # No call of another client joins while the server starts for this one: its first question is for this
            # client.
            connection.traffic.clients.reserved_for = call.client
            call.route.task.add_done_callback(lambda _: _release(connection.traffic.clients))

    async def _forward_when_ready(self, call: RoutedCall, decision: Forward, *, is_first: bool = True) -> None:
        """Send a call once its server is ready. `is_first`: nothing of it was sent before."""
        act: Callable[[], None]
        try:
            connection = await self.connections.ready(decision.entry, call)
            if self._must_list(connection):
                await connection.ensure_listed()
        except WorkbenchError as error:
            act = partial(call.on_failure, error)
        else:
            act = partial(self._send_unless_withheld, call, decision, connection)
        if is_first and self.connections.is_replaced(decision.entry, call):
            self.go_on(call)
            act = call.route_again
        act()

    def _send_unless_withheld(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        """Send a call that has passed the steps, unless its server's lists have changed and it is denied now."""
        if self.steps is None:
            self._send(call, decision, connection)
        elif not self.steps.denies_again(call, decision):
            self.steps.note_sent(call)
            self._send(call, decision, connection)

    def _must_list(self, connection: Connection) -> bool:
        """Whether this server has to be listed before anything is sent to it."""
        return self.steps is not None and bool(self.steps.definition_steps) and not connection.lists.is_done

    async def judge_by_list(
        self, call: RoutedCall, method: str, connection: Connection, item: str, passage: Passage | None
    ) -> None:
        """Check a call, which may have started its server, against the server's lists. Raises `WorkbenchError`."""
        if self._must_list(connection):
            await connection.ensure_listed()
        if self.steps is not None:
            self.steps.judge_by_list(call, method, connection.entry, item, passage)

    def _send(self, call: RoutedCall, decision: Forward, connection: Connection) -> None:
        route = call.route
        route.entry = decision.entry
        route.decision = decision
        # It no longer waits for a task of ours. From now on, it is cancelled at the server.
        if route.task is not None:
            route.task = None
        route.traffic = traffic = connection.traffic
        if call.is_retry and not traffic.takes_retries:
            # A legacy server would take it for a new call and do everything a second time.
            call.finish_error(INVALID_PARAMS, UNKNOWN_STATE)
            return
        if call.log_level is not None:
            connection.subscriptions.want_log_level(call.log_level)
        if decision.entry.task_tools and decision.item in decision.entry.task_tools and self._is_task(call, connection):
            self.run_task(call, decision, connection)
            return
        timeout = connection.config.timeout
        route.wire_id = traffic.forward(
            call, decision.method, decision.item, decision.body, call.meta, call.revision, timeout
        )

    # ── tasks, for clients that know nothing of them ──

    def _is_task(self, call: RoutedCall, connection: Connection) -> bool:
        """Whether a call has to be made as a task of 2025-11-25, and its client did not."""
        revision = connection.revision
        is_spoken = revision is not None and revision.has_task_capability
        return is_spoken and call.method == "tools/call" and "task" not in call.params

    def run_task(self, call: RoutedCall, decision: Forward, connection: Connection, created: Raw | None = None) -> None:
        """Make a call as a task and wait for its result. `created`: its server has made a task of it already."""
        # Few tools need it.
        from mcp_workbench.engine.router.task_runs import TaskRun

        call.route.is_task, call.route.wire_id = True, 0
        self.start_for(call, TaskRun(self, call, decision, connection).run(created))

    def run_refused_as_task(self, call: RoutedCall) -> None:
        """Make a call as a task that its server has refused without: it has done nothing yet."""
        decision = call.route.decision
        assert decision is not None
        self.run_task(call, decision, self.connections.for_use(decision.entry, call))

    def ask_for_task_result(
        self, call: RoutedCall, decision: Forward, connection: Connection, id: str, on_cancelled: Callable[[], None]
    ) -> None:
        """Ask for the result of a task of 2025-11-25, as the request of its client."""
        call.route.on_cancelled = on_cancelled
        body, timeout = b'{"taskId":' + encode(id), connection.config.timeout
        call.route.wire_id = connection.traffic.forward(
            call, b'"tasks/result"', decision.item, body, call.meta, call.revision, timeout
        )

    def cancel(self, call: RoutedCall, params: dict[str, Raw]) -> None:
        """Cancel a call, because the client did or has disconnected."""
        route = call.route
        self._note_unsent(call)
        if route.passage is not None:
            route.passage.end("cancelled")
        if route.traffic is not None:
            route.traffic.cancel(route.wire_id, params)
        if route.on_cancelled is not None:
            route.on_cancelled()
        self.stop_work(call)

    def stop(self, call: RoutedCall, denial: Denial) -> None:
        """End a request wherever it is: cancel it at its server, and answer its client with this error."""
        if call.route.traffic is not None:
            call.route.traffic.cancel(call.route.wire_id, {"reason": Raw(b'"a limit of the workbench was reached"')})
        if call.route.on_cancelled is not None:
            call.route.on_cancelled()
        if call.route.passage is not None:
            call.route.passage.failure = "timeout"
        self.stop_work(call)
        call.refuse(denial)

    def stop_work(self, call: RoutedCall) -> None:
        """Cancel the task that this call waits for."""
        task, call.route.task = call.route.task, None
        if task is not None:
            # No reference is kept: a cancelled task refers to this call and everything it holds.
            task.cancel()

    def work_done(self, call: RoutedCall) -> None:
        """Detach the task of a call that has finished waiting: the task goes on to answer or send it, and cancelling
        the call must not stop the task in the middle of that."""
        call.route.task = None

    def forget_body(self, call: RoutedCall) -> None:
        """Drop the body, which may be large: the server has accepted it, and it is never sent again."""
        if call.route.decision is not None:
            call.route.decision = replace(call.route.decision, body=b"")

    def send_again(self, call: RoutedCall, body: Body) -> None:
        """Send a request again with what the server asked for. The steps have let it pass already."""
        assert call.route.decision is not None
        # It keeps what was sent first.
        passage_of(call)
        decision = replace(call.route.decision, body=body)
        connection = self.connections.for_use(decision.entry, call)
        if connection.state is READY and not self._must_list(connection):
            self._send_unless_withheld(call, decision, connection)
        else:
            self.start_for(call, self._forward_when_ready(call, decision, is_first=False))

    def send_after_listing(self, call: RoutedCall) -> None:
        """Send a request again after listing the server again, because its headers depend on the lists."""
        assert call.route.decision is not None
        self.start_for(call, self._list_and_send(call, call.route.decision))

    async def _list_and_send(self, call: RoutedCall, decision: Forward) -> None:
        try:
            connection = await self.connections.ready(decision.entry, call)
            await connection.list_again()
        except WorkbenchError as error:
            call.on_failure(error)
            return
        self._send_unless_withheld(call, decision, connection)

    # ── results ──

    def take_result(self, call: RoutedCall, result: Raw, *, is_judged: bool = False) -> None:
        """Pass a server's result on as the client's face shows it: shortened to its budget, with its links recorded."""
        decision = call.route.decision
        if decision is None:
            call.pass_on(result)
            return
        use = call.view.use
        if use is not None and (decision.entry, decision.item) not in use.seen:
            use.note(decision, result)
        if decision.entry.has_resources:
            steps = self.steps
            if not is_judged and steps is not None and decision.method in steps.judged_methods:
                self._judge_result(call, decision, result, steps.judge_of_result(call, decision))
                return
            call.view.face.links.note(call.view.principal, decision.entry, result)
            if decision.rewrite is not None:
                result = Raw(decision.rewrite(result))
        # No token is shorter than a byte, so most results fit without a look at them.
        size, budget = len(result), decision.result_budget
        if not budget or (
            size <= budget and not decision.select and not (size > MIN_DEDUPLICATED_BYTES and _twice(result))
        ):
            call.pass_on(result)
        elif len(result) > LARGE_TO_SHORTEN:
            self.start_for(call, self._shorten_aside(call, decision, result))
        # A client needs the whole of a result that asks for input or is a task.
        elif result_type(result) in (None, "complete"):
            shortening = call.view.face.shortening(call.view, decision, result, call.introduction[0])
            if shortening is None:
                call.pass_on(result)
                return
            shortening.work()
            shown = shortening.finish()
            call.pass_on(Raw(bytes(shown)), is_whole=shown is result)
        else:
            call.pass_on(result)

    def _judge_result(self, call: RoutedCall, decision: Forward, result: Raw, judge: JudgeResult) -> None:
        if len(result) > LARGE_TO_SHORTEN:
            self.start_for(call, self._judge_aside(call, decision, result, judge))
        else:
            self._take_unless_withheld(call, decision, result, judge(result))

    async def _judge_aside(self, call: RoutedCall, decision: Forward, result: Raw, judge: JudgeResult) -> None:
        denial = await asyncio.to_thread(judge, result)
        call.route.task = None
        self._take_unless_withheld(call, decision, result, denial)

    def _take_unless_withheld(self, call: RoutedCall, decision: Forward, result: Raw, denial: Denial | None) -> None:
        if denial is None:
            self.take_result(call, result, is_judged=True)
        elif self.steps is None:
            call.refuse(denial)
        else:
            self.steps.withhold_result(call, decision, denial)

    async def _shorten_aside(self, call: RoutedCall, decision: Forward, result: Raw) -> None:
        """Shorten a large result in a thread, so that other calls need not wait."""
        shown: Raw | bytes = result
        if await asyncio.to_thread(result_type, result) in (None, "complete"):
            shortening = call.view.face.shortening(call.view, decision, result, call.introduction[0])
            if shortening is not None:
                await asyncio.to_thread(shortening.work)
                shown = shortening.finish()
        call.route.task = None
        call.pass_on(result if shown is result else Raw(bytes(shown)), is_whole=shown is result)

    # ── lists ──

    def list(self, call: RoutedCall, kind: str, answer: Callable[[Sequence[bytes]], None]) -> None:
        """Call `answer` with the definitions that this client sees, once the servers that are needed have been
        listed."""

        def list_now() -> None:
            definitions = call.view.face.definitions(call.view, kind)
            face = call.view.face
            if kind == "tools" and APPS in call.caller.capabilities:
                definitions = _with_apps(call, definitions)
            must_say_why = not definitions and face.lists_everything and not face.client_of(call.view).health_check
            reason = self._lists.why_empty(call.view) if must_say_why else None
            if reason is None:
                if kind == "tools" and self.gate.tracker is not None:
                    self.gate.on_listed(face, definitions)
                answer(definitions)
            else:
                call.finish_error(INTERNAL_ERROR, reason)

        # Tools with a user interface may be those of any server.
        is_apart = kind == "tools" and APPS in call.caller.capabilities and not call.view.face.lists_everything
        if self.steps is None or not self.steps.refuses_to_answer(call):
            self.when_listed(call, "apps" if is_apart else kind, list_now)

    def when_listed(self, call: RoutedCall, kind: str, act: Callable[[], None]) -> None:
        """Call `act` once the servers that are needed have been listed."""
        waiting = self._lists.prepare(call.view, kind, CallerReach(self.connections, call))
        if waiting is None:
            act()
        else:
            self.start_for(call, self._act_after(call, waiting, act))

    def when_introducible(self, call: RoutedCall, act: Callable[[], None]) -> None:
        """Call `act` once as much is known of servers as an introduction can wait for."""
        waiting = self._lists.prepare_introduction(call.view, CallerReach(self.connections, call))
        if waiting is None:
            act()
        else:
            self.start_for(call, self._act_after(call, waiting, act))

    async def _act_after(self, call: RoutedCall, waiting: Preparation, act: Callable[[], None]) -> None:
        await waiting()
        call.route.task = None
        self.go_on(call)
        act()

    async def wait_for_list(self, call: RoutedCall, kind: str) -> None:
        """Like `when_listed`, for a call that already has a task."""
        waiting = self._lists.prepare(call.view, kind, CallerReach(self.connections, call))
        if waiting is not None:
            await waiting()
            self.go_on(call)

    def read_own_resource(self, call: RoutedCall, uri: str) -> bool:
        """Answer with our own resource. False if there is none with this URI."""
        if (result := self.own_resource(call.view, uri)) is None:
            return False
        self.act(call, Answer(result))
        return True

    def own_resource(self, view: View, uri: str) -> bytes | None:
        """The result of reading our own resource; None if there is none with this URI."""
        if uri in self._own_resources:
            text = self._own_resources[uri](view).decode()
            return encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})
        return view.face.own_resource(view, uri)

    # ── log levels, and notifications to servers ──

    def set_log_level(self, call: RoutedCall, level: str, accepted: Callable[[], None]) -> None:
        """Set the log level of all servers that serve this caller, including those started later."""

        def send() -> None:
            accepted()
            self._pool.set_log_level(call.caller, call.view.face.catalog.whole, level)
            call.finish_result(b"{}")

        if self.steps is None:
            send()
        else:
            self.steps.admit(call, call.method, None, "", encode({"level": level})[:-1], send)

    def notify_servers(self, sender: Notifier, method: str, params: bytes | None) -> None:
        """Send a notification to all running servers that serve this caller."""

        def send() -> None:
            for connection in self._pool.used_by(sender.caller, sender.view.face.catalog.whole):
                revision = connection.revision
                if connection.state is READY and revision is not None and revision.has_handshake:
                    connection.traffic.notify(method, params)

        if self.steps is None:
            send()
        else:
            self.steps.notify(sender, method, b"{" if params is None else params[:-1], send)


def _make_runner(steps: tuple[Step, ...], tracker: Tracker | None, router: Router) -> StepRunner:
    tracer, means = router.gate.tracer, (router.start_for, router.in_background, router.stop, router.act)
    if tracer is not None and tracker is not None:
        from mcp_workbench.engine.router.traced_steps import TracedStepRunner

        return TracedStepRunner(steps, tracker, *means, tracer)
    from mcp_workbench.engine.router.step_runner import StepRunner

    return StepRunner(steps, tracker, *means)


def _with_apps(call: RoutedCall, definitions: Sequence[bytes]) -> Sequence[bytes]:
    # Few clients show user interfaces.
    from mcp_workbench.engine.face.app_tools import shows_apps

    if not shows_apps(call.caller.capabilities):
        return definitions
    call.view.shows_apps = True
    return [*definitions, *call.view.face.app_tools(call.view)]


def _release(clients: ConnectionClients) -> None:
    clients.reserved_for = None
