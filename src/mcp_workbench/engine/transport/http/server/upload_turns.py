"""Whose large body is read next, while several arrive.

The event loop reads a connection for as long as there is something to read, several megabytes if the client is fast,
and then the next one. Here each principal has one read in each iteration of the loop, however many connections it
uploads on; requests of others are served in between.

Owns the order. Knows nothing about what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Uploading(Protocol):
    """A connection on which a large body arrives, and which is not read from at the moment."""

    def read_turn(self) -> None:
        """Read once."""


class UploadTurns:
    __slots__ = ("_is_scheduled", "_loop", "_waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, deque[Uploading]] = {}
        self._is_scheduled = False

    def __repr__(self) -> str:
        return f"<UploadTurns, {sum(map(len, self._waiting.values()))} of {len(self._waiting)} principals waiting>"

    def wait(self, principal: str, connection: Uploading) -> None:
        """Call `read_turn` when it is this connection's turn."""
        self._waiting.setdefault(principal, deque()).append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        for principal in list(self._waiting):
            queue = self._waiting[principal]
            connection = queue.popleft()
            if not queue:
                del self._waiting[principal]
            connection.read_turn()
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._next_turn)
