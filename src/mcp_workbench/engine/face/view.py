"""What one client sees: which toolboxes it has opened, and which have changed since it last looked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.face.gate import OPEN, Gate

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.face.base import Face
    from mcp_workbench.engine.face.client_behaviour import Behaviour
    from mcp_workbench.engine.face.use import ViewUse
    from mcp_workbench.engine.face.wording import Change


# For clients that send no `clientInfo`.
NO_CLIENT_INFO: Final = b"{}"
# It is kept as long as the client is connected. Real clients send a few hundred bytes.
MAX_CLIENT_INFO_LENGTH: Final = 16 * 1024


class View:
    """Belongs to a session, or to a principal in the modern era, which has no sessions."""

    __slots__ = (
        "changed",
        "client",
        "client_info",
        "face",
        "gate",
        "missing",
        "opened",
        "principal",
        "shows_apps",
        "use",
    )
    # What its client sees. Unset only in views without requests.
    face: Face

    def __init__(self, principal: str, face: Face | None = None, gate: Gate = OPEN) -> None:
        self.principal = principal
        # Asked before anything is used that was kept for this principal.
        self.gate = gate
        if face is not None:
            self.face = face
        # The `clientInfo` as JSON, and what is known about such clients, looked up when needed.
        self.client_info = NO_CLIENT_INFO
        self.client: Behaviour | None = None
        # Whether one of its clients was listed tools because it shows their user interface.
        self.shows_apps = False
        # An insertion-ordered set.
        self.opened: dict[str, None] = {}
        # Toolboxes to announce to the client with the next result.
        self.changed: dict[str, Change] = {}
        # Servers that were unavailable when the client opened their toolbox, so it has not seen what they offer.
        self.missing: set[ServerEntry] = set()
        # None where nothing is remembered, and until it opens or searches a toolbox.
        self.use: ViewUse | None = None

    def introduced(self, client_info: bytes) -> View:
        """A copy of this view for a client that sends its `clientInfo`. Not stored, because others share this view."""
        if client_info in (self.client_info, NO_CLIENT_INFO):
            return self
        view = View(self.principal, self.face, self.gate)
        view.opened, view.changed, view.missing = self.opened, self.changed, self.missing
        view.client_info = client_info
        view.client = self.face.recognise(client_info)
        view.use = self.use
        return view


class Views:
    """All views: one for each session, and one for all clients of a principal without a session."""

    def __init__(self, face: Face, gate: Gate) -> None:
        self._face = face
        self._gate = gate
        # Whether different clients of one principal see different things.
        self.tells_clients_apart = face.tells_clients_apart
        self._of_principals: dict[str, View] = {}
        # If clients are distinguished: the views of known clients, by principal and client.
        self._of_clients: dict[str, dict[str, View]] = {}
        # The views of sessions, which end with them.
        self.of_sessions: set[View] = set()

    def of_principal(self, principal: str) -> View:
        """The view shared by the clients of this principal without a session."""
        view = self._of_principals.get(principal)
        if view is None:
            view = self._of_principals[principal] = self._new(principal)
        return view

    def of_request(self, view: View, client_info: bytes) -> View:
        """The view for a request of a modern client. Each request has its own `clientInfo`, because one connection may
        carry requests of several clients."""
        if view not in self.of_sessions:
            return self.of_client(view.principal, client_info)
        self.introduce(view, client_info)
        return view

    def of_client(self, principal: str, client_info: bytes) -> View:
        """The view shared by all clients of this principal with the same name and without a session."""
        client = self._face.recognise(client_info)
        known = self._of_clients.get(principal)
        view = None if known is None else known.get(client.name)
        if view is None:
            view = self._new(principal)
            self._of_clients.setdefault(principal, {})[client.name] = view
            self.introduce(view, client_info)
        return view

    def _new(self, principal: str) -> View:
        view = View(principal, self._face, self._gate)
        self.settle(view)
        return view

    def face_of(self, principal: str) -> Face:
        """The face for a principal, restricted by a policy if there is one."""
        return self._gate.face_of(principal, self._face)

    def settle(self, view: View) -> None:
        """Choose the face for its principal and client."""
        view.face = self.face_of(view.principal).for_client(view)

    def settle_again(self, principal: str | None) -> None:
        """The face of this principal, or of any, may be another now."""
        for view in [view for view in self if principal is None or view.principal == principal]:
            self.settle(view)
            toolboxes = view.face.catalog.toolboxes
            # Toolboxes opened before may be hidden now. The removal of a toolbox may still be announced.
            for name in [name for name in view.opened if name not in toolboxes]:
                del view.opened[name]
            for name in [name for name, how in view.changed.items() if how != "removed" and name not in toolboxes]:
                del view.changed[name]

    def introduce(self, view: View, client_info: bytes) -> None:
        """Set the `clientInfo` of its client."""
        view.client_info = client_info if len(client_info) <= MAX_CLIENT_INFO_LENGTH else NO_CLIENT_INFO
        view.client = None
        self.settle(view)

    def begin_session(self, principal: str) -> View:
        """A new view for a session, independent of what other clients have opened."""
        view = self._new(principal)
        self.of_sessions.add(view)
        return view

    def reopen(self, view: View, names: Iterable[str], known: Iterable[str] | None = None) -> None:
        """Restore the toolboxes that its client had opened in a previous workbench, if they still exist. `known` are
        all toolboxes that the client knew: changes since then are announced as if they happened now."""
        toolboxes = view.face.catalog.toolboxes
        view.opened.update({name: None for name in names if name in toolboxes})
        if known is not None:
            before = dict.fromkeys(known)
            added = [name for name in toolboxes if name not in before]
            view.face.take_note_of_toolboxes(view, added, [name for name in before if name not in toolboxes])

    def end_session(self, view: View) -> None:
        """Drop the view of a session that has ended."""
        self.of_sessions.discard(view)
        if view.use is not None:
            view.use.end()

    def forget(self, principal: str) -> None:
        """Nobody with this principal is being served."""
        views = [self._of_principals.pop(principal, None), *self._of_clients.pop(principal, {}).values()]
        for view in views:
            if view is not None and view.use is not None:
                view.use.end()

    def on_replaced(self, catalog: Catalog, plan: Plan) -> None:
        """Adapt to a new configuration."""
        for view in self._shown_of(catalog):
            for name in plan.difference.toolboxes.removed:
                view.opened.pop(name, None)
                view.changed.pop(name, None)
            view.missing.difference_update(plan.ending)
            toolboxes = plan.difference.toolboxes
            view.face.take_note_of_toolboxes(view, toolboxes.added, toolboxes.removed)

    def on_change(self, catalog: Catalog, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Record that a server's lists have changed."""
        # For views rather than sessions: a modern client without a subscription has no session to notify.
        for view in self._shown_of(catalog):
            view.face.take_note(view, entry, kinds)

    def _shown_of(self, catalog: Catalog) -> list[View]:
        return [view for view in self._of_user(catalog.principal) if view.face.catalog.whole is catalog]

    def _of_user(self, principal: str) -> Iterable[View]:
        """The views that may show a catalogue of this user; our own user has several names."""
        if not principal:
            return self
        shared = self._of_principals.get(principal)
        of_sessions = [view for view in self.of_sessions if view.principal == principal]
        return [*(() if shared is None else (shared,)), *self._of_clients.get(principal, {}).values(), *of_sessions]

    def __iter__(self) -> Iterator[View]:
        of_clients = [view for views in self._of_clients.values() for view in views.values()]
        return iter([*self._of_principals.values(), *of_clients, *self.of_sessions])
