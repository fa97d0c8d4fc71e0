"""Tasks of servers: where a request about one goes, and under which handle its client sees it.

Loaded with the first request or result that is about a task. Who gave out which handle is the face's to know
(`face.tasks`); `tasks/list` is put together in `task_lists`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcp_workbench.downstream.pool import Pool
from mcp_workbench.face.base import Params, unsupported
from mcp_workbench.face.tasks import Tasks
from mcp_workbench.face.view import View
from mcp_workbench.router.lists import Lists
from mcp_workbench.router.routed_call import RoutedCall
from mcp_workbench.router.task_lists import TaskLists

if TYPE_CHECKING:
    from mcp_workbench.downstream.traffic import Traffic
    from mcp_workbench.protocol.revisions import Revision
    from mcp_workbench.router.router import Router


class TaskRequests:
    def __init__(self, router: Router, pool: Pool, lists: Lists) -> None:
        self.handles = Tasks()
        self._router = router
        self._pool = pool
        self._lists = lists

    def ask(self, call: RoutedCall, params: Params) -> None:
        """One of the methods of tasks; without the extension, those of a sole server pass as they are, unless users
        share it, or a policy has to know which tool a task is of."""
        router, client = self._router, call.revision
        sole = None if self.handles.judge is not None else call.view.face.sole_entry()
        passes = not client.has_task_extension and sole is not None and sole.config.share != "everyone"
        # With one server there is nobody whose tasks could be mistaken for another's.
        if call.method not in client.task_methods or passes:
            router.relay(call, params)
        elif call.method == "tasks/list":
            unlisted = unsupported(call.method)
            task_lists = TaskLists(self.handles, self._lists, router.connections, router.guard)
            router.start_for(call, task_lists.answer(call, params, lambda: router.act(call, unlisted)))
        else:
            router.act(call, self.handles.resolve(call.view, call.method, params, client))

    def remember(self, call: RoutedCall, result: bytes) -> bytes:
        """A server answered with a handle: it has to stay up for it. Returns the answer that the client gets."""
        entry = call.route.entry
        assert entry is not None
        seconds, result = self.handles.remember(call.view, entry, result, call.revision, call.route.own_item)
        connection = self._router.connections.of_call(entry, call)
        # Longer than its idle timeout: a server that is stopped forgets its tasks.
        connection.held_until = max(connection.held_until, asyncio.get_running_loop().time() + seconds)
        return result

    def shown(self, call: RoutedCall, members: bytes) -> bytes:
        """What a server says about a task, under the handle that the client has."""
        assert call.route.entry is not None
        return self.handles.shown(call.view, call.route.entry, members, call.revision)

    def shown_result(self, call: RoutedCall, result: bytes) -> bytes:
        """The same for the answer to a request about a task of 2025-11-25."""
        assert call.route.entry is not None
        return self.handles.shown_result(call.view, call.route.entry, result, call.revision)

    def shown_outside(self, view: View, traffic: Traffic, members: bytes, client: Revision) -> bytes:
        """The same for a notification about a task when no call is under way."""
        if not self.handles.has_renamed:
            return members
        entry = next((each.entry for each in self._pool.connections() if each.traffic is traffic), None)
        return members if entry is None else self.handles.shown(view, entry, members, client)
