"""What the bodies of all requests that are arriving may hold together.

A body is held in memory until its request is whole. Each one is bounded by the largest message, but a few dozen of them
at once are gigabytes; so a large body reserves its room before it is read, and is refused where there is none. Small
ones always come in: an ordinary call must not fail because somebody uploads.

Owns the sum. Refuses to know whose bodies they are.
"""

from __future__ import annotations

import asyncio

from mcp_workbench.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.transport.http.server.limits import SMALL_BODY


class BodyBudget:
    """How much is reserved, of how much there is."""

    __slots__ = ("_dropped", "_most", "reserved")

    def __init__(self, most: int) -> None:
        self.reserved = 0
        self._most = most
        # Of bodies that never became a request, since memory was last given back.
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<BodyBudget {self.reserved} of {self._most} bytes>"

    def reserve(self, size: int, *, held: int = 0) -> bool:
        """Room for so many bytes more of a body that holds some already. False where there is none."""
        if held + size > SMALL_BODY and self.reserved + size > self._most:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        """The request has been handed on."""
        self.reserved -= size

    def drop(self, size: int, arrived: int) -> None:
        """The body will not become a request: its client is gone, or was refused. `arrived` is what had come of it."""
        self.reserved -= size
        self._dropped += arrived
        if self._dropped > KEPT_BYTES:
            self._dropped = 0
            trim_soon(asyncio.get_running_loop())
