"""All connected sessions. Passes changes on to those that they concern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import KINDS
from mcp_workbench.engine.face.gate import Gate
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.session.notifications import ListChangeNotifier, ListenStream

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan
    from mcp_workbench.engine.protocol.revisions import Revision
    from mcp_workbench.engine.router.subscriptions import Subscription


# The definitions that a client is shown, by kind.
Lists = dict[str, list[bytes]]


class NotifiedSession(Protocol):
    """What the registry needs of a session."""

    @property
    def view(self) -> View:
        """What its client is shown."""

    @property
    def revision(self) -> Revision | None:
        """The revision agreed in its handshake; None without one."""

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """Its legacy subscriptions to resources."""

    @property
    def streams(self) -> Mapping[bytes, ListenStream]:
        """Its `subscriptions/listen` streams."""

    def on_updated(self, params: Raw) -> None:
        """Called when a resource that it subscribed to has changed (`Subscriber`)."""

    def on_subscription_lost(self) -> None:
        """Called when a subscription has ended with its server (`Subscriber`)."""

    def renew_subscriptions(self) -> None:
        """Subscribe again where a new configuration has replaced the servers of subscriptions."""

    def end_refused_subscriptions(self) -> None:
        """End subscriptions to resources that its principal may no longer read."""

    @property
    def list_changes(self) -> ListChangeNotifier: ...


class SessionRegistry:
    def __init__(self, gate: Gate) -> None:
        # With the time when each began, by `time.monotonic`.
        self._sessions: dict[NotifiedSession, float] = {}
        self._gate = gate
        gate.follow(self)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[NotifiedSession]:
        return iter(list(self._sessions))

    def add(self, session: NotifiedSession) -> None:
        """Notify this client of changes from now on."""
        self._sessions.setdefault(session, monotonic())

    def discard(self, session: NotifiedSession) -> None:
        since = self._sessions.pop(session, None)
        # A revision without a handshake has no sessions.
        if since is not None and session.revision is not None:
            self._gate.on_session_end(session.revision.name, monotonic() - since)

    def follow(self, catalog: Catalog) -> None:
        """From now on, pass changes in this catalogue on to the sessions that use it."""
        catalog.subscribe(partial(self.on_change, catalog))
        catalog.on_announced.append(partial(self.on_announced, catalog))
        catalog.on_replaced.append(partial(self.on_replaced, catalog))

    def _shown_of(self, catalog: Catalog) -> list[NotifiedSession]:
        # Another user's is theirs alone; our own user has several names.
        who = catalog.principal
        sessions = [each for each in self._sessions if each.view.principal == who] if who else self._sessions
        return [session for session in sessions if session.view.face.catalog.whole is catalog]

    def on_change(self, catalog: Catalog, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Called when a server's lists have changed."""
        for session in self._shown_of(catalog):
            session.list_changes.add(session.view.face.announces(session.view, entry, kinds))

    def on_announced(self, catalog: Catalog, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Called when a server announced a change, but its lists are the same. Clients connected to it would be
        notified."""
        for session in self._shown_of(catalog):
            if session.view.face.relays_announcements:
                session.list_changes.add(session.view.face.announces(session.view, entry, kinds))

    def on_replaced(self, catalog: Catalog, plan: Plan) -> None:
        """Called when a new configuration has taken effect."""
        for session in self._shown_of(catalog):
            kinds = session.view.face.announces_toolboxes(plan)
            if kinds:
                session.list_changes.add(kinds)
            session.renew_subscriptions()

    def on_opened(self, view: View, toolbox: str) -> None:
        for session in list(self._sessions):
            if session.view is view:
                session.list_changes.add(view.face.announces_opening(view, toolbox))

    # ── a changed policy, which may change the lists of some clients ──

    def on_steps_changed(self) -> None:
        """Nothing that sessions have depends on them (`GateFollower`)."""

    def on_rules_changed(self, principal: str | None) -> None:
        """End what the rules no longer allow (`GateFollower`)."""
        for session in self:
            if principal is None or session.view.principal == principal:
                session.end_refused_subscriptions()

    def shown(self) -> dict[View, Lists]:
        """The lists of all clients."""
        return {session.view: _listed(session.view) for session in self._sessions}

    def notify_differences(self, before: dict[View, Lists]) -> None:
        """Notify each client of the lists that differ from before, and of no others."""
        for session in list(self._sessions):
            # A client that connected meanwhile has seen no list yet.
            former = before.get(session.view, {})
            changed = {kind for kind, listed in _listed(session.view).items() if listed != former.get(kind)}
            session.list_changes.add(
                frozenset("resources" if each == "resourceTemplates" else each for each in changed)
            )


def _listed(view: View) -> Lists:
    return {kind: list(view.face.definitions(view, kind)) for kind in KINDS}
