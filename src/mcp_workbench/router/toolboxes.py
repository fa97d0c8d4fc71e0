"""Opening a toolbox and searching for tools: which servers are started for it, and for how long that is waited for.

Owns the order in which servers are started and listed. Refuses to know what the answer looks like (`Face.opened`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.lifecycle import State
from mcp_workbench.errors import StillStarting, WorkbenchError
from mcp_workbench.face.decisions import Decision, Open
from mcp_workbench.face.opening import Failures
from mcp_workbench.face.view import View
from mcp_workbench.router.caller_connections import CallerConnections
from mcp_workbench.router.lists import STARTS_AT_ONCE, Lists, is_large, is_rested
from mcp_workbench.router.routed_call import RoutedCall

# How long a search through everything waits for servers that are not listed yet. Downloads by `npx` or `uvx` take
# longer; what is found without them is better than a client that has timed out.
SEARCH_PATIENCE: Final = 10.0
# A server that was started only to say what it offers is stopped again after this long, unless somebody calls it: an
# agent that looks through fifty servers uses one of them, and that soon.
LISTED_STAYS: Final = 60.0
# A catalogue that changes while it is indexed is indexed again, but not for ever.
MOST_PREPARATIONS: Final = 3


class Toolboxes:
    """Opens toolboxes and searches them."""

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
        # Told when a toolbox is opened for the first time in a view.
        self._on_opened = on_opened

    async def open(self, call: RoutedCall, decision: Open) -> Decision | None:
        """Start or list servers as decided, and answer with what they offer; or return what is to be done instead."""
        face, request, toolbox = call.view.face, decision.request, decision.request.toolbox_name
        first_time = decision.starts_known and toolbox is not None and toolbox not in call.view.opened
        await self._lists.load(decision.entries)
        if decision.starts_known:
            face.settle_names(decision.entries)
            failures = await self._start_all(decision.entries, call)
        else:
            searches_everywhere = request.query is not None and toolbox is None
            failures = await self._list_all(decision.entries, call, SEARCH_PATIENCE if searches_everywhere else None)
        for _ in range(MOST_PREPARATIONS):
            preparation = face.preparation(request)
            if preparation is None:
                break
            # In a thread: thousands of tools take a moment, and other calls must not wait for it.
            await asyncio.to_thread(preparation)
        if toolbox is not None and toolbox not in face.catalog.toolboxes:
            # Removed from the configuration while it was opened.
            return face.no_such_toolbox(toolbox)
        # Only a face that changes nothing but its view may do so while other requests are served.
        if face.opens_in_thread and is_large(decision.entries):
            call.finish_result(await asyncio.to_thread(face.opened, call.view, request, failures))
        else:
            call.finish_result(face.opened(call.view, request, failures))
        if first_time and toolbox is not None:
            for listener in self._on_opened:
                listener(call.view, toolbox)
        return None

    async def _start_all(self, entries: Sequence[ServerEntry], call: RoutedCall) -> Failures:
        """Connect servers side by side."""
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
        """Have the servers that are not listed yet say what they offer, a few at a time; others are not started."""
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

        unknown = [entry for entry in entries if not entry.is_available]
        outdated = self._lists.outdated(entries, lambda entry: self._connections.of_call(entry, call))
        if outdated:
            refreshing = self._start_task(self._lists.refresh(outdated))
            if patience is None:
                # A search through everything goes by what is known: asking all servers each time would take too long.
                await asyncio.wait({refreshing})
        asked = {entry: self._start_task(list_one(entry)) for entry in unknown}
        if asked:
            await asyncio.wait(asked.values(), timeout=patience)
        still_starting = [entry for entry, task in asked.items() if not task.done()]
        for entry in still_starting:
            failures[entry.toolbox, entry.name] = StillStarting("is still starting", hint="ask again in a moment")
        return dict(failures)

    async def _open_server(self, entry: ServerEntry, call: RoutedCall, *, starts_known: bool) -> None:
        connection = self._connections.of_call(entry, call)
        if connection.entry.is_available:
            if not starts_known:
                return
            # Answer from what is known, and start the server behind it.
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
            # Looking through everything does not try again what has just failed.
            raise connection.last_error
