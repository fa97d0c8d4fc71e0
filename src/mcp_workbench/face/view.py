"""What one client has before it: which toolboxes it opened, and which of all of them changed since it looked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp_workbench.catalog.catalog import Catalog
    from mcp_workbench.catalog.entry import ServerEntry
    from mcp_workbench.catalog.replacement import Plan
    from mcp_workbench.clients.behaviour import Behaviour
    from mcp_workbench.face.base import Face
    from mcp_workbench.face.wording import Change


# The `clientInfo` of a client that has none.
NO_CLIENT_INFO: Final = b"{}"
# It is kept for as long as its client is there. Those of real clients are some hundred bytes.
LONGEST_INFO: Final = 16 * 1024


class View:
    """Belongs to a session where there is one, and to the principal in the modern era, which has no sessions."""

    __slots__ = ("changed", "client", "client_info", "face", "missing", "opened", "principal")
    # What its client sees. Only views that no request belongs to are without.
    face: Face

    def __init__(self, principal: str, face: Face | None = None) -> None:
        self.principal = principal
        if face is not None:
            self.face = face
        # How its client introduced itself, as JSON, and what is known of such clients once somebody has asked.
        self.client_info = NO_CLIENT_INFO
        self.client: Behaviour | None = None
        # An insertion-ordered set.
        self.opened: dict[str, None] = {}
        # Toolboxes to announce to the client with the next result.
        self.changed: dict[str, Change] = {}
        # Servers that had failed for good when the client opened their toolbox: it has not seen what they offer.
        self.missing: set[ServerEntry] = set()

    def introduced(self, client_info: bytes) -> View:
        """The same for a client that says who it is, before its first look. Not kept: others may share this one."""
        if client_info in (self.client_info, NO_CLIENT_INFO):
            return self
        view = View(self.principal, self.face)
        view.opened, view.changed, view.missing = self.opened, self.changed, self.missing
        view.client_info = client_info
        view.client = self.face.recognise(client_info)
        return view


class Views:
    """All views: one for each session, one for all clients of a principal that keep none."""

    def __init__(self, face: Face) -> None:
        self._face = face
        # Says what a principal may be shown: the face, or what a policy leaves of it.
        self.face_of: Callable[[str], Face] = lambda principal: face
        # Whether clients of one principal see different things.
        self.tells_clients_apart = face.tells_clients_apart
        self._of_principals: dict[str, View] = {}
        # Where clients are distinguished: those of known clients, by principal and client.
        self._of_clients: dict[tuple[str, str], View] = {}
        # Those of sessions, which end with them.
        self.of_sessions: set[View] = set()

    def of_principal(self, principal: str) -> View:
        """Shared by the clients of this principal that keep no session."""
        view = self._of_principals.get(principal)
        if view is None:
            view = self._of_principals[principal] = self._new(principal)
        return view

    def of_request(self, view: View, client_info: bytes) -> View:
        """The view for a request of a modern client, which says with each of them who it is: one connection may carry
        those of several."""
        if view not in self.of_sessions:
            return self.of_client(view.principal, client_info)
        self.introduce(view, client_info)
        return view

    def of_client(self, principal: str, client_info: bytes) -> View:
        """Shared by all clients of one kind of this principal that keep no session."""
        client = self._face.recognise(client_info)
        view = self._of_clients.get((principal, client.name))
        if view is None:
            view = self._of_clients[principal, client.name] = self._new(principal)
            self.introduce(view, client_info)
        return view

    def _new(self, principal: str) -> View:
        view = View(principal, self._face)
        self.settle(view)
        return view

    def settle(self, view: View) -> None:
        """Show it what suits its client of what its principal may see."""
        view.face = self.face_of(view.principal).for_client(view)

    def introduce(self, view: View, client_info: bytes) -> None:
        """Its client has said who it is."""
        view.client_info = client_info if len(client_info) <= LONGEST_INFO else NO_CLIENT_INFO
        view.client = None
        self.settle(view)

    def begin_session(self, principal: str) -> View:
        """For a client that has begun a session: what others opened is not its business."""
        view = self._new(principal)
        self.of_sessions.add(view)
        return view

    def reopen(self, view: View, names: Iterable[str], known: Iterable[str] | None = None) -> None:
        """Its client had opened these, in a workbench before us; as far as they are still there. `known` are all
        toolboxes that it was told of: what has become of them since is told as if it happened now."""
        toolboxes = view.face.catalog.toolboxes
        view.opened.update({name: None for name in names if name in toolboxes})
        if known is not None:
            before = dict.fromkeys(known)
            added = [name for name in toolboxes if name not in before]
            view.face.take_note_of_toolboxes(view, added, [name for name in before if name not in toolboxes])

    def end_session(self, view: View) -> None:
        """Its client is gone."""
        self.of_sessions.discard(view)

    def forget(self, principal: str) -> None:
        """Nobody with this principal is being served."""
        self._of_principals.pop(principal, None)
        for key in [key for key in self._of_clients if key[0] == principal]:
            del self._of_clients[key]

    def on_replaced(self, catalog: Catalog, plan: Plan) -> None:
        """Another configuration is in force."""
        for view in self._shown_of(catalog):
            for name in plan.difference.toolboxes.removed:
                view.opened.pop(name, None)
                view.changed.pop(name, None)
            view.missing.difference_update(plan.ending)
            toolboxes = plan.difference.toolboxes
            view.face.take_note_of_toolboxes(view, toolboxes.added, toolboxes.removed)

    def on_change(self, catalog: Catalog, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """A server offers something else now."""
        # For views, not for sessions: a modern client that does not listen has none that is told of changes.
        for view in self._shown_of(catalog):
            view.face.take_note(view, entry, kinds)

    def _shown_of(self, catalog: Catalog) -> list[View]:
        return [view for view in self if view.face.catalog.whole is catalog]

    def __iter__(self) -> Iterator[View]:
        return iter([*self._of_principals.values(), *self._of_clients.values(), *self.of_sessions])
