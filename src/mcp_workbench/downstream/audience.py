"""Who uses a connection: what decides whether a question that belongs to no call can be put to anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.downstream.traffic import Correspondent


class Audience:
    """The clients of one connection. Those without a session come with each request anew, and never say goodbye."""

    __slots__ = ("_last", "_passing", "_passing_are_many", "_sessions", "reserved_for")

    def __init__(self) -> None:
        # An insertion-ordered set.
        self._sessions: dict[Correspondent, None] = {}
        # The client without a session that the server is started for, where nobody else's call may come with it.
        self.reserved_for: Correspondent | None = None
        self._last: Correspondent | None = None
        self._passing: Correspondent | None = None
        self._passing_are_many = False

    def join(self, client: Correspondent, *, has_session: bool) -> None:
        """This client uses the connection."""
        if has_session or client in self._sessions:
            self._last = client
            self._sessions[client] = None
        elif client is not self._passing:
            self._passing_are_many = self._passing is not None
            self._passing = client

    def leave(self, client: Correspondent) -> None:
        """This client is gone."""
        self._sessions.pop(client, None)
        if self._last is client:
            self._last = next(reversed(self._sessions), None)

    def only(self) -> Correspondent | None:
        """The one client that there is; None where there are several, or may be."""
        found = [*self._sessions, *([] if self._passing is None else [self._passing])]
        return found[0] if len(found) == 1 and not self._passing_are_many else None

    def first(self) -> Correspondent | None:
        """Of those with a session the one that came first."""
        return next(iter(self._sessions), None)

    def last(self) -> Correspondent | None:
        """Of those with a session the one that used the connection last."""
        return self._last

    def __len__(self) -> int:
        return len(self._sessions) + (self._passing is not None) + self._passing_are_many
