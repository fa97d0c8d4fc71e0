"""One timer for many members, instead of one for each. It runs only while it has members."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from mcp_workbench.engine.jsonrpc.pending import STOPPED_PROCESS_THRESHOLD


class TimerMember(Protocol):
    """Has something to do periodically."""

    def on_timer(self, now: float) -> None:
        """Called once per interval with the time of the loop."""


W = TypeVar("W", bound=TimerMember)


class SharedTimer(Generic[W]):
    """Calls its members once per interval, so that their timeouts are late by at most one interval.

    After this process was suspended, pending input is read before members are judged by the time that has passed.
    """

    __slots__ = ("_due", "_handle", "_interval", "_loop", "_members")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        # In order of arrival.
        self._members: dict[W, None] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: W) -> None:
        self._members[member] = None
        if self._handle is None:
            self._schedule(self._interval)

    def discard(self, member: W) -> None:
        self._members.pop(member, None)

    def members(self) -> list[W]:
        """All that are being timed, the oldest first."""
        return list(self._members)

    def stop(self) -> None:
        self._members.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._handle = self._loop.call_later(seconds, self._run)

    def _run(self) -> None:
        self._handle = None
        now = self._loop.time()
        if now - self._due > STOPPED_PROCESS_THRESHOLD:
            self._schedule(min(self._interval, STOPPED_PROCESS_THRESHOLD))
            return
        for member in self.members():
            member.on_timer(now)
        if self._members and self._handle is None:
            self._schedule(self._interval)
