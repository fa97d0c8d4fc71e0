"""A budget for the bodies of all requests that are arriving.

A body is held in memory until its request is complete. Each is bounded by the largest message, but a few dozen at once
add up to gigabytes; so a large body reserves its memory before it is read, and is refused if there is not enough. Small
ones are always accepted: an ordinary call must not fail because another client is uploading.

Owns the sum. Knows nothing about whose bodies they are.
"""

from __future__ import annotations

import asyncio

from mcp_workbench.engine.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.engine.transport.http.server.limits import SMALL_BODY


class BodyBudget:
    __slots__ = ("_dropped", "_most", "reserved")

    def __init__(self, most: int) -> None:
        self.reserved = 0
        self._most = most
        # Bytes of incomplete bodies dropped since memory was last returned to the system.
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<BodyBudget {self.reserved} of {self._most} bytes>"

    def reserve(self, size: int, *, held: int = 0) -> bool:
        """Reserve `size` more bytes for a body that has `held` already. False if the budget is used up."""
        if held + size > SMALL_BODY and self.reserved + size > self._most:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        """The request has been handed on."""
        self.reserved -= size

    def drop(self, size: int, arrived: int) -> None:
        """Release a body that will not become a request. `arrived` is how much of it had been received."""
        self.reserved -= size
        self._dropped += arrived
        if self._dropped > KEPT_BYTES:
            self._dropped = 0
            trim_soon(asyncio.get_running_loop())
