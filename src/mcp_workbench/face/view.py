"""What one client has before it: which toolboxes it opened, and which of them changed since it looked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.catalog.entry import ServerEntry
    from mcp_workbench.face.base import Face


class View:
    """Belongs to a session where there is one, and to the principal in the modern era, which has no sessions."""

    __slots__ = ("changed", "opened", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        # Insertion-ordered sets.
        self.opened: dict[str, None] = {}
        self.changed: dict[str, None] = {}


class Views:
    """All views: one for each session, one for all clients of a principal that keep none."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._of_principals: dict[str, View] = {}
        # Those of sessions, which end with them.
        self.of_sessions: set[View] = set()

    def of_principal(self, principal: str) -> View:
        """Shared by the clients of this principal that keep no session."""
        view = self._of_principals.get(principal)
        if view is None:
            view = self._of_principals[principal] = View(principal)
        return view

    def begin_session(self, principal: str) -> View:
        """For a client that has begun a session: what others opened is not its business."""
        view = View(principal)
        self.of_sessions.add(view)
        return view

    def end_session(self, view: View) -> None:
        """Its client is gone."""
        self.of_sessions.discard(view)

    def forget_toolboxes(self, names: Iterable[str]) -> None:
        """These are no more."""
        for view in (*self._of_principals.values(), *self.of_sessions):
            for name in names:
                view.opened.pop(name, None)
                view.changed.pop(name, None)

    def on_change(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """A server offers something else now."""
        # For views, not for sessions: a modern client that does not listen has none that is told of changes.
        for view in (*self._of_principals.values(), *self.of_sessions):
            self._face.take_note(view, entry, kinds)
