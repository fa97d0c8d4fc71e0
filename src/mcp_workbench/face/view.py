"""What one client has before it: which toolboxes it opened, and which of all of them changed since it looked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mcp_workbench.catalog.entry import ServerEntry
    from mcp_workbench.catalog.replacement import Plan
    from mcp_workbench.face.base import Face


# What has happened to a toolbox: other tools in it, or another configuration with or without it.
Change = Literal["changed", "new", "removed"]


class View:
    """Belongs to a session where there is one, and to the principal in the modern era, which has no sessions."""

    __slots__ = ("changed", "opened", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        # An insertion-ordered set.
        self.opened: dict[str, None] = {}
        # Toolboxes that the client is to be told about with the next result.
        self.changed: dict[str, Change] = {}


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

    def reopen(self, view: View, names: Iterable[str]) -> None:
        """Its client had opened these, in a workbench before us; as far as they are still there."""
        view.opened.update({name: None for name in names if name in self._face.catalog.toolboxes})

    def end_session(self, view: View) -> None:
        """Its client is gone."""
        self.of_sessions.discard(view)

    def on_replaced(self, plan: Plan) -> None:
        """Another configuration is in force."""
        for view in (*self._of_principals.values(), *self.of_sessions):
            for name in plan.difference.toolboxes.removed:
                view.opened.pop(name, None)
                view.changed.pop(name, None)
            self._face.take_note_of_toolboxes(view, plan)

    def on_change(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """A server offers something else now."""
        # For views, not for sessions: a modern client that does not listen has none that is told of changes.
        for view in (*self._of_principals.values(), *self.of_sessions):
            self._face.take_note(view, entry, kinds)
