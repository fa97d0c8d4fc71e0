"""Opening a toolbox and searching for tools: which servers to start, and how long to wait for them.

Owns the order in which servers are started and listed. Does not know what the result looks like (`Face.opened`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.face.decisions import Decision, Open
from mcp_workbench.engine.face.opening import Failures
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.router.caller_connections import CallerConnections
from mcp_workbench.engine.router.lists import LISTED_STAYS, STARTS_AT_ONCE, Lists, is_large, is_rested
from mcp_workbench.engine.router.routed_call import RoutedCall
from mcp_workbench.errors import StillStarting, WorkbenchError

# How long a search in all toolboxes waits for servers that are not listed yet. Downloads by `npx` or `uvx` take longer,
# but incomplete results are better than a client that times out.
SEARCH_PATIENCE: Final = 10.0
# A catalogue that changes while it is being indexed is indexed again. At most this often, which includes reading the
# manifests that have changed, those of all servers for a new index, and those of what was found.
MAX_PREPARATIONS: Final = 5


class Toolboxes:
    def __init__(
        self,
        catalog: Catalog,
        connections: CallerConnections,
        lists: Lists,
        start_task: Callable[[Awaitable[None]], asyncio.Task[None]],
        on_opened: Sequence[Callable[[View, str], None]],
    ) -> None:
        self._catalog = catalog
        self._connections = connections
        self._lists = lists
        self._start_task = start_task
        # Called when a toolbox is opened for the first time in a view.
        self._on_opened = on_opened

    async def open(self, call: RoutedCall, decision: Open) -> Decision | None:
        """Start or list servers as decided and answer with their tools, or return a decision to carry out instead."""
        face, request, toolbox = call.view.face, decision.request, decision.request.toolbox_name
        first_time = decision.starts_known and toolbox is not None and toolbox not in call.view.opened
        if request.query is not None and not request.tools:
            # The index says what there is, and which manifests have to be read.
            await self._lists.look_up(face.catalog.entries())
        if decision.starts_known or request.query is None or request.tools:
            await self._lists.load(decision.entries)
        if decision.starts_known:
            face.settle_names(decision.entries)
            failures = await self._start_all(decision.entries, call)
        else:
            searches_everywhere = request.query is not None and toolbox is None
            failures = await self._list_all(decision.entries, call, SEARCH_PATIENCE if searches_everywhere else None)
        if (toolbox is None or toolbox in face.catalog.toolboxes) and any(
            self._connections.is_replaced(entry, call) for entry in decision.entries
        ):
            # A new configuration has replaced some of them meanwhile.
            return face.resolve_tool(call.view, call.params)
        for _ in range(MAX_PREPARATIONS):
            preparation = face.preparation(call.view, request, failures)
            if preparation is None:
                break
            # In a thread, because thousands of tools take a moment and other calls must not wait.
            unread = await asyncio.to_thread(preparation)
            await self._lists.load(unread)
        if toolbox is not None and toolbox not in face.catalog.toolboxes:
            # It was removed from the configuration while it was being opened.
            return face.no_such_toolbox(toolbox)
        # Only for faces that change nothing but the view, because other requests are served meanwhile.
        if face.opens_in_thread and is_large(decision.entries):
            call.finish_result(await asyncio.to_thread(face.opened, call.view, request, failures))
        else:
            call.finish_result(face.opened(call.view, request, failures))
        if first_time and toolbox is not None:
            for listener in self._on_opened:
                listener(call.view, toolbox)
        return None

    async def _start_all(self, entries: Sequence[ServerEntry], call: RoutedCall) -> Failures:
        """Connect to servers concurrently."""
        opening = (self._open_server(entry, call, starts_known=True) for entry in entries)
        results = await asyncio.gather(*opening, return_exceptions=True)
        failures: Failures = {}
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, WorkbenchError):
                failures[entry.toolbox, entry.name] = result
                self._catalog.servers.missed(entry, result)
            elif isinstance(result, BaseException):
                raise result
        return failures

    async def _list_all(self, entries: Sequence[ServerEntry], call: RoutedCall, patience: float | None) -> Failures:
        """List the servers that have not been listed yet, a few at a time. Others are not started."""
        places = asyncio.Semaphore(STARTS_AT_ONCE)
        failures: Failures = {}

        async def list_one(entry: ServerEntry) -> None:
            async with places:
                connection = self._connections.of_call(entry, call)
                starts = connection.starts
                try:
                    await self._open_server(entry, call, starts_known=False)
                except WorkbenchError as error:
                    failures[entry.toolbox, entry.name] = error
                    self._catalog.servers.missed(entry, error)
                if connection.starts > starts and not connection.traffic.call_count:
                    connection.linger(LISTED_STAYS)

        unknown = [entry for entry in entries if not (entry.is_available or entry.is_stored)]
        outdated = self._lists.outdated(entries, lambda entry: self._connections.of_call(entry, call))
        if outdated:
            refreshing = self._start_task(self._lists.refresh(outdated))
            if patience is None:
                # A search in all toolboxes uses the known lists: listing all servers each time would take too long.
                await asyncio.wait({refreshing})
        asked = {entry: self._start_task(list_one(entry)) for entry in unknown}
        if asked:
            await asyncio.wait(asked.values(), timeout=patience)
        still_starting = [entry for entry, task in asked.items() if not task.done()]
        for entry in still_starting:
            failures[entry.toolbox, entry.name] = StillStarting("is still starting", hint="ask again in a moment")
        return dict(failures)

    async def _open_server(self, entry: ServerEntry, call: RoutedCall, *, starts_known: bool) -> None:
        find = self._connections.for_use if starts_known else self._connections.of_call
        connection = find(entry, call)
        if starts_known:
            # Opening it is a use.
            connection.traffic.last_used = asyncio.get_running_loop().time()
        if connection.entry.is_available:
            if not starts_known:
                return
            # Answer from the known lists, and start the server in the background.
            if connection.state in (State.CONFIGURED, State.KNOWN, State.STOPPED):
                connection.start_in_background()
                return
            if connection.state in (State.STARTING, State.READY, State.STOPPING):
                await self._lists.refresh(self._lists.outdated((connection.entry,), lambda _: connection))
                return
        if starts_known or is_rested(connection):
            await connection.ensure_listed(asked=True)
            self._catalog.servers.works(connection.entry)
        elif connection.last_error is not None:
            # A search does not start a server again that has just failed.
            raise connection.last_error
