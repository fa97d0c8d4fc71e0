"""Computes the summaries that distinguish toolboxes again, shortly after their servers have been listed.

Owns the timing, and that no request waits for it. Imported with the first server whose tools differ from its manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.catalog.tool_index import ToolIndex

if TYPE_CHECKING:
    from mcp_workbench.engine.router.lists import Lists
    from mcp_workbench.engine.router.router import Router

# The servers of a toolbox are listed at about the same time, so once is enough for all of them.
SUMMARISE_AFTER: Final = 1.0


class ToolboxSummaries:
    def __init__(self, router: Router, lists: Lists, trim: Callable[[], None]) -> None:
        self._router = router
        self._lists = lists
        # Returns memory to the system.
        self._trim = trim
        self._timers: dict[ToolIndex, asyncio.TimerHandle] = {}

    def start_timer(self, tool_index: ToolIndex) -> None:
        if tool_index not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[tool_index] = loop.call_later(SUMMARISE_AFTER, self._summarise, tool_index)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _summarise(self, tool_index: ToolIndex) -> None:
        del self._timers[tool_index]
        self._router.in_background(self._summarise_aside(tool_index))

    async def _summarise_aside(self, tool_index: ToolIndex) -> None:
        # All cached lists count, including those of servers that have not been used since we started.
        await self._lists.load(tool_index.catalog.entries())
        # In a thread, because thousands of tools take a moment and calls must not wait.
        await asyncio.to_thread(tool_index.summarise)
        # Indexing thousands of tools leaves megabytes of free memory behind.
        self._trim()
