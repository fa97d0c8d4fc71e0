"""Tasks of servers: where a request about a task goes, and the id by which its client knows it.

Loaded with the first request or result about a task. The face records which server issued which id
(`engine.face.tasks`); `TaskLists` combines the results of `tasks/list`.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.pool import Pool
from mcp_workbench.engine.downstream.server_subscriptions import TASK_IDS, ServerSubscriptions
from mcp_workbench.engine.downstream.sharing import declared_capabilities
from mcp_workbench.engine.face.base import Params, unsupported
from mcp_workbench.engine.face.decisions import Forward, Load
from mcp_workbench.engine.face.error_context import with_context_in_task
from mcp_workbench.engine.face.tasks import Tasks, having_lists, refused
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.lasting_state import LastingState
from mcp_workbench.engine.protocol.results import may_be_failure
from mcp_workbench.engine.router.caller_connections import CallerConnections
from mcp_workbench.engine.router.lists import Lists
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.protocol.revisions import Revision
    from mcp_workbench.engine.router.router import Router
    from mcp_workbench.engine.router.step_runner import StepRunner
    from mcp_workbench.engine.steps import Passage

# A report on a task holds what this request would return, so both are decided alike.
GET: Final = "tasks/get"
TASKS_LIST: Final = "tasks/list"
# The time for one server's page, including its start: a server that hangs must not hold back the tasks of all others.
PAGE_PATIENCE: Final = 10.0
# The maximum number of tasks on one page of one server, because we record their ids. Servers can use more pages.
MAX_TASKS_PER_PAGE: Final = 1000
# The member of a list's `_meta` with the servers whose tasks are missing, and why.
UNAVAILABLE_META: Final = "mcp-workbench/unavailable"
BAD_CURSOR: Final = "`cursor` was not given out here; list the tasks from the beginning"


class TaskSubscription:
    """One client's subscription to the states of one task (`Subscriber`)."""

    __slots__ = ("_report", "_tasks", "call", "entry", "own", "subscriptions")

    def __init__(
        self,
        call: RoutedCall,
        entry: ServerEntry,
        own: str,
        subscriptions: ServerSubscriptions,
        tasks: Tasks,
        report: Callable[[ServerEntry, Raw], None],
    ) -> None:
        self.call = call
        self.entry = entry
        # The server's id of the task.
        self.own = own
        self.subscriptions = subscriptions
        self._tasks = tasks
        self._report = report

    def on_updated(self, params: Raw) -> None:
        """Report the state as `tasks/get` would return it."""
        view, entry = self.call.view, self.entry
        if view.face.names_failed_tools and may_be_failure(params):
            tool = self._tasks.tool_of(view.principal, entry.toolbox, entry.name, self.own)
            params = with_context_in_task(params, f"{entry.toolbox}/{entry.name}/{tool}".rstrip("/"))
        self._report(entry, Raw(self._tasks.shown(view, entry, bytes(params), self.call.revision)))

    def on_subscription_lost(self) -> None:
        """Tasks end with their server, so nobody takes over its subscriptions."""


class TaskRequests:
    def __init__(self, router: Router, pool: Pool, lists: Lists, state: LastingState) -> None:
        self.handles = Tasks(state)
        self._router = router
        self._pool = pool
        self._lists = lists

    def ask(self, call: RoutedCall, params: Params) -> None:
        """Handle one of the methods of tasks. Without the extension, those of a sole server pass unchanged, unless
        users share the server, or a policy needs the tool of a task."""
        router, client = self._router, call.revision
        sole = None if router.gate.has_rules else call.view.face.sole_entry()
        passes = not client.has_task_extension and sole is not None and sole.config.share != "everyone"
        # With one server, ids of tasks are not ambiguous.
        if call.method not in client.task_methods or passes:
            router.relay(call, params)
        elif call.method == "tasks/list":
            unlisted = unsupported(call.method)
            task_lists = TaskLists(self.handles, self._lists, router.connections, router.steps)
            router.start_for(call, task_lists.answer(call, params, lambda: router.act(call, unlisted)))
        else:
            router.act(call, self.handles.resolve(call.view, call.method, params, client))

    def remember(self, call: RoutedCall, result: bytes) -> bytes:
        """Record the task in a server's result, and keep the server running for it. Returns the result for the
        client."""
        entry = call.route.entry
        assert entry is not None
        seconds, result = self.handles.remember(call.view, entry, result, call.revision, call.route.own_item)
        connection = self._router.connections.for_use(entry, call)
        # Beyond its idle timeout, because a server that is stopped loses its tasks.
        connection.held_until = max(connection.held_until, asyncio.get_running_loop().time() + seconds)
        return result

    # ── states of tasks ──

    async def subscribe_all(
        self,
        call: RoutedCall,
        handles: Iterable[str],
        report: Callable[[ServerEntry, Raw], None],
        kept: dict[str, TaskSubscription],
    ) -> None:
        """Subscribe to the tasks of a `subscriptions/listen`, and add those that succeed to `kept`."""
        is_recalled = False
        for handle in dict.fromkeys(handles):
            params = {"taskId": Raw(encode(handle))}
            decision = self.handles.resolve(call.view, GET, params, call.revision, is_recalled=is_recalled)
            while isinstance(decision, Load):
                await self._lists.load(decision.entries)
                if decision.recall is not None:
                    # Once for all handles: each time may take seconds while the state is away.
                    await decision.recall()
                    is_recalled = True
                decision = decision.decide()
            if isinstance(decision, Forward):
                try:
                    await self._subscribe(call, decision, handle, report, kept)
                except WorkbenchError:
                    kept.pop(handle, None)

    async def _subscribe(
        self,
        call: RoutedCall,
        decision: Forward,
        handle: str,
        report: Callable[[ServerEntry, Raw], None],
        kept: dict[str, TaskSubscription],
    ) -> None:
        """Subscribe if the steps let it pass. Raises `WorkbenchError`."""
        entry, own = decision.entry, decision.item

        async def work(passage: Passage | None = None) -> None:
            subscriptions = (await self._router.connections.ready(entry, call)).subscriptions
            made = kept[handle] = TaskSubscription(call, entry, own, subscriptions, self.handles, report)
            await subscriptions.subscribe_to_task(own, made, declared_capabilities(entry, call.caller.capabilities))

        steps = self._router.steps
        if steps is None:
            await work()
        else:
            await steps.run(call, GET, entry, own, decision.body, work)

    def end(self, kept: dict[str, TaskSubscription]) -> None:
        """End all subscriptions, because the client or its stream has ended."""
        if kept:
            self._router.in_background(_end_all(list(kept.values())))
            kept.clear()

    def end_refused(self, kept: dict[str, TaskSubscription]) -> None:
        """End those to tasks that a client may no longer ask about: each report is what it would get then."""
        found = {handle: each for handle, each in kept.items() if refused(each.call.view, each.entry, each.own)}
        for handle in found:
            del kept[handle]
        self.end(found)

    def has_lost(self, kept: dict[str, TaskSubscription]) -> bool:
        """Whether a new configuration has replaced one of their servers."""
        return any(self._router.connections.is_replaced(each.entry, each.call) for each in kept.values())

    # ── ids of tasks ──

    def shown(self, call: RoutedCall, members: bytes) -> bytes:
        """A server's message about a task, with the client's id of the task."""
        assert call.route.entry is not None
        return self.handles.shown(call.view, call.route.entry, members, call.revision)

    def shown_result(self, call: RoutedCall, result: bytes) -> bytes:
        """Like `shown`, for the response to a request about a task of 2025-11-25."""
        assert call.route.entry is not None
        return self.handles.shown_result(call.view, call.route.entry, result, call.revision)

    def tool_of(self, call: RoutedCall, own: str) -> str:
        """The tool whose call became this task, by the server's id; empty if unknown."""
        entry = call.route.entry
        return "" if entry is None else self.handles.tool_of(call.view.principal, entry.toolbox, entry.name, own)

    def shown_outside(self, view: View, traffic: Traffic, members: bytes, client: Revision) -> bytes:
        """Like `shown`, for a notification that belongs to no call in flight."""
        if not self.handles.has_renamed:
            return members
        entry = next((each.entry for each in self._pool.connections() if each.traffic is traffic), None)
        return members if entry is None else self.handles.shown(view, entry, members, client)


async def _end_all(kept: list[TaskSubscription]) -> None:
    for each in kept:
        await each.subscriptions.unsubscribe(each.own, each, TASK_IDS)


# `tasks/list` of 2025-11-25 with several servers: one page combines a page of each server that lists its tasks.
# Owns how pages are combined, and the combined cursor. The cursor contains the position at each server, so nothing is
# kept here between pages.
class _Page(Struct):
    tasks: list[Raw]
    nextCursor: str | None = None


class _Position(Struct, frozen=True, array_like=True):
    """Where the list continues for one server."""

    toolbox: str
    server: str
    cursor: str | None = None


_decode_page: Final = Decoder(_Page).decode
_decode_positions: Final = Decoder(list[_Position]).decode
_decode_cursor: Final = Decoder(str | None).decode


class TaskLists:
    """Lists of the tasks of several servers."""

    def __init__(self, tasks: Tasks, lists: Lists, connections: CallerConnections, steps: StepRunner | None) -> None:
        self._tasks = tasks
        self._lists = lists
        self._connections = connections
        self._steps = steps

    async def answer(self, call: RoutedCall, params: Params, no_server: Callable[[], None]) -> None:
        """Answer with the next page of each server that has one. Call `no_server` if none lists its tasks."""
        await self._lists.load(call.view.face.needed(call.view, "prompts"))
        having = having_lists(call.view.face.entries(call.view))
        if not having:
            call.route.task = None
            no_server()
            return
        try:
            positions = _read_cursor(params, having)
        except (DecodeError, ValidationError, ValueError):
            call.finish_error(INVALID_PARAMS, BAD_CURSOR)
            return
        pages = await asyncio.gather(*(self._page(call, *position) for position in positions))
        call.route.task = None
        failures = [page for page in pages if isinstance(page, WorkbenchError)]
        if failures and len(failures) == len(pages):
            _fail(call, [entry for entry, _ in positions], failures)
            return
        tasks: list[bytes] = []
        following: list[_Position] = []
        unavailable: dict[str, str] = {}
        for (entry, _), page in zip(positions, pages, strict=True):
            if isinstance(page, WorkbenchError):
                unavailable[entry.label] = page.message
            elif page is not None:
                tasks += self._tasks.listed(call.view, entry, page.tasks, call.revision)
                if page.nextCursor is not None:
                    following.append(_Position(entry.toolbox, entry.name, page.nextCursor))
        call.finish_result(_written(tasks, following, unavailable))

    async def _page(self, call: RoutedCall, entry: ServerEntry, cursor: str | None) -> _Page | WorkbenchError | None:
        """One page of one server, or the error; None if a step denies the request."""
        pages: list[_Page] = []
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)

        async def work(passage: Passage | None = None) -> None:
            pages.append(await self._ask(call, entry, members))

        try:
            if self._steps is None:
                await work()
            else:
                await self._steps.run(call, TASKS_LIST, entry, "", b"{" + members, work)
        except WorkbenchError as error:
            return error
        return pages[0] if pages else None

    async def _ask(self, call: RoutedCall, entry: ServerEntry, members: bytes) -> _Page:
        try:
            async with asyncio.timeout(PAGE_PATIENCE):
                connection = await self._connections.ready(entry, call)
                result = await connection.traffic.ask_as_era(TASKS_LIST, members)
        except TimeoutError:
            raise DownstreamError(f"the server did not list its tasks within {PAGE_PATIENCE:g} s") from None
        try:
            page = await asyncio.to_thread(_decode_page, result)
        except (DecodeError, ValidationError) as error:
            raise DownstreamError(f"its tasks cannot be listed: {error}") from None
        if len(page.tasks) > MAX_TASKS_PER_PAGE:
            raise DownstreamError(f"its tasks cannot be listed: more than {MAX_TASKS_PER_PAGE} on one page")
        return page


def _read_cursor(params: Params, having: list[ServerEntry]) -> list[tuple[ServerEntry, str | None]]:
    """The servers to ask, each with its cursor. Raises `ValueError` and the errors of msgspec."""
    cursor = _decode_cursor(params.get("cursor", b"null"))
    if cursor is None:
        return [(entry, None) for entry in having]
    by_name = {(entry.toolbox, entry.name): entry for entry in having}
    positions = _decode_positions(urlsafe_b64decode(cursor.encode()))
    found = [(by_name.get((each.toolbox, each.server)), each.cursor) for each in positions]
    known: list[tuple[ServerEntry, str | None]] = [
        (entry, own) for entry, own in found if entry is not None and own is not None
    ]
    # Our cursors name each server once. If one has been removed since, the client has to start the list again, rather
    # than get an incomplete one.
    if not known or len({entry for entry, _ in known}) != len(positions):
        raise ValueError(cursor)
    return known


def _written(tasks: list[bytes], following: list[_Position], unavailable: dict[str, str]) -> bytes:
    result = b'{"tasks":[%b]' % b",".join(tasks)
    if following:
        result += b',"nextCursor":' + encode(urlsafe_b64encode(encode(following)).decode())
    if unavailable:
        result += b',"_meta":' + encode({UNAVAILABLE_META: unavailable})
    return result + b"}"


def _fail(call: RoutedCall, entries: list[ServerEntry], failures: list[WorkbenchError]) -> None:
    """Answer with the error of the only server, or with the errors of all."""
    (first, *others) = failures
    if isinstance(first, RemoteError) and not others:
        call.on_error(Raw(encode(first.error)))
        return
    reasons = [f"[{entry.label}] {failure.message}" for entry, failure in zip(entries, failures, strict=True)]
    call.finish_error(INTERNAL_ERROR, "no server could list its tasks:\n" + "\n".join(reasons))
