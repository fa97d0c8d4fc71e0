"""A budget for the bodies of all requests that are arriving.

A body is held in memory until its request is complete. Each is bounded by the largest message, but a few dozen at once
add up to gigabytes; so a large body reserves its memory before it is read, and is refused if there is not enough. Small
ones are always accepted: an ordinary call must not fail because another client is uploading.

Of several principals, each may hold as much as is left for the others when it has it: one alone half, two a third each,
and so on (a *dynamic threshold*, as switches share their buffers). Each has its first body as long as there is room at
all. The workbench's only user has everything.

Owns the sums.
"""

from __future__ import annotations

import asyncio

from mcp_workbench.engine.transport.allocator import KEPT_BYTES, trim_soon
from mcp_workbench.engine.transport.http.server.limits import SMALL_BODY


class BodyBudget:
    __slots__ = ("_dropped", "_held", "_most", "reserved")

    def __init__(self, most: int) -> None:
        self.reserved = 0
        self._most = most
        # By principal, what is reserved.
        self._held: dict[str, int] = {}
        # Bytes of incomplete bodies dropped since memory was last returned to the system.
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<BodyBudget {self.reserved} of {self._most} bytes>"

    def reserve(self, size: int, *, held: int = 0, principal: str = "") -> bool:
        """Reserve `size` more bytes for a body that has `held` already. False if the budget is used up, or the
        principal's share of it."""
        if held + size > SMALL_BODY and not self._has_room(size, held, principal):
            return False
        self.reserved += size
        if principal:
            self._held[principal] = self._held.get(principal, 0) + size
        return True

    def _has_room(self, size: int, held: int, principal: str) -> bool:
        free = self._most - self.reserved - size
        beside = self._held.get(principal, 0) - held
        return free >= 0 and (not principal or not beside or beside + held + size <= free)

    def release(self, size: int, principal: str = "") -> None:
        """The request has been handed on."""
        self.reserved -= size
        if principal:
            self._held[principal] -= size
            if not self._held[principal]:
                del self._held[principal]

    def drop(self, size: int, arrived: int, principal: str = "") -> None:
        """Release a body that will not become a request. `arrived` is how much of it had been received."""
        self.release(size, principal)
        self._dropped += arrived
        if self._dropped > KEPT_BYTES:
            self._dropped = 0
            trim_soon(asyncio.get_running_loop())
