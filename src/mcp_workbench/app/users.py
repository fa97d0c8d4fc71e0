"""What users other than our own are shown: the same servers, with what each user's own connections have listed.

A server may list different items for each user, depending on their sign-in or on the state of their process, so no user
is shown what another user's connection has listed. Our own user, served over stdio and with the single token, has the
catalogue that all others are derived from; without other users, this is not imported. Owns these catalogues and their
faces. Knows nothing about how a user was authenticated, and what a policy hides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.base import Face, FaceSettings
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.app.runtime import Runtime
    from mcp_workbench.engine.config.model import WorkbenchConfig
    from mcp_workbench.engine.router.router import Router
    from mcp_workbench.engine.session.session_registry import SessionRegistry

# Users whose lists are kept in memory. Beyond this, users with nothing open and no server running are dropped; what
# their servers listed is on the disk.
MAX_CACHED_USERS: Final = 1_000
# How many are dropped at once: finding out who is being served requires a pass over all users.
USERS_DROPPED_AT_ONCE: Final = 50
FORGOTTEN: Final = "this user has been inactive for too long"


class KeepsUsers(Protocol):
    """Keeps something for each user; depending on the configuration, it may not exist."""

    def forget(self, catalog: Catalog) -> None:
        """This user's catalogue is no longer shown to any client."""


class UserFaces:
    """Faces by principal, each with its own catalogue; created with the first request of each."""

    def __init__(
        self,
        face: Face,
        make_face: Callable[[Catalog], Face],
        router: Router,
        sessions: SessionRegistry,
        runtime: Runtime,
        *,
        judge: Callable[[Iterable[ServerEntry]], None],
        summarise_soon: Callable[[Face, ServerEntry, frozenset[str]], None],
        keeping: Callable[[], Iterable[KeepsUsers | None]],
    ) -> None:
        self._face = face
        self._make_face = make_face
        self._router = router
        self._sessions = sessions
        self._runtime = runtime
        # Decides which items of new servers must not be shown, before any is.
        self._judge = judge
        self._summarise_soon = summarise_soon
        self._keeping = keeping
        self._made: OrderedDict[str, Face] = OrderedDict()

    def __iter__(self) -> Iterator[Face]:
        return iter(list(self._made.values()))

    def __len__(self) -> int:
        return len(self._made)

    def of(self, principal: str) -> Face:
        face = self._made.get(principal)
        if face is None:
            if len(self._made) >= MAX_CACHED_USERS:
                self._forget_some()
            face = self._made[principal] = self._begin(principal)
        self._made.move_to_end(principal)
        return face

    def touch(self, principal: str) -> None:
        """This user has called: others are dropped first."""
        if principal in self._made:
            self._made.move_to_end(principal)

    def _begin(self, principal: str) -> Face:
        catalog = self._face.catalog.of_user(principal)
        self._judge(catalog.entries())
        face = self._make_face(catalog)
        face.share_state_of(self._face)
        face.give_notice(self._face.notice)
        self._sessions.follow(catalog)
        self._router.follow(catalog)
        catalog.subscribe(partial(self._summarise_soon, face))
        return face

    def apply(self, config: WorkbenchConfig, settings: FaceSettings) -> None:
        """Switch to another configuration, after our own user has been switched. Cached lists of new servers are read
        when they are requested."""
        for face in self:
            face.configure(settings)
            plan = face.catalog.plan(config)
            self._judge(plan.beginning)
            face.catalog.replace(plan)
            self._runtime.forget(entry for entry in plan.ending if entry.ended is not None)

    def _forget_some(self) -> None:
        served = {session.view.principal for session in self._sessions}
        served.update(each.principal for each in self._runtime.pool.connections() if each.is_running)
        idle = [principal for principal in self._made if principal not in served]
        self.forget(idle[:USERS_DROPPED_AT_ONCE], DownstreamError(FORGOTTEN))

    def revoke(self, principals: Collection[str], why: str) -> None:
        """Drop what is kept of these, too: somebody else may be given the name of a revoked key."""
        if (results := self._face.kept_results()) is not None:
            results.drop(principals)
        self._router.tasks.handles.drop(principals)
        self.forget(principals, DownstreamError(why))

    def forget(self, principals: Iterable[str], why: DownstreamError) -> None:
        """Drop the catalogues of these, and end their servers."""
        for principal in principals:
            if principal not in self._made:
                continue
            catalog = self._made.pop(principal).catalog
            entries = list(catalog.entries())
            catalog.close(why)
            self._router.views.forget(principal)
            for each in self._keeping():
                if each is not None:
                    each.forget(catalog)
            self._runtime.forget(entry for entry in entries if entry.ended is not None)
        self._runtime.pool.drain_ended()
