"""One instance of a cluster: takes over users who come from another one, and leaves its own for others.

Loaded only if `cluster` is configured. A user arrives with the first request that is authenticated here; what other
instances have left for them is read then, once, and bounded. A legacy session is taken over when its id is used. Owns
who is here; what is kept of them has its owners in the engine and in `team/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import decode, encode

from mcp_workbench.cluster.examination import open_state
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.lasting_state import APPROVAL, OPENED, SESSION, TASK, StateUnavailable
from mcp_workbench.engine.session.questions import number_questions_elsewhere
from mcp_workbench.engine.session.resuming import ResumedLink, mark_of, restore, written_down
from mcp_workbench.engine.transport.http.server.served_session import SessionUnknowable
from mcp_workbench.engine.version import full_version
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.engine.config.cluster_settings import ClusterConfig
    from mcp_workbench.engine.session.session import Session
    from mcp_workbench.engine.transport.http.server.http_server import HttpServer
    from mcp_workbench.engine.transport.http.server.served_session import SavedSession, ServedSession
    from mcp_workbench.engine.transport.http.server.sessions import LegacySession
    from mcp_workbench.engine.transport.link import Link
    from mcp_workbench.signin.shared_sign_ins import SharedSignIns

T = TypeVar("T")

# Users whose arrival is remembered; one that is forgotten arrives again.
MAX_USERS_HERE: Final = 100_000
# A session is written again before it expires, if it is used or has a stream open.
SESSION_REFRESH_INTERVAL: Final = SESSION.lifetime / 4
# Whether a user's session or toolbox exists is not guessed. Many clients take a 503 for a failed call, so it is looked
# for until the state is back: it may only be slow to an instance that has just started on a busy machine. Counted from
# when it went away, so nobody waits in an outage that lasts. Clients wait longer than this.
RECALL_TIMEOUT: Final = 10.0
# The same for a session that is served here, and that another instance may have continued: it can be used as it is.
DOUBTED_RECALL_TIMEOUT: Final = 1.5
# Between two attempts, if it is not found to be back before.
RECALL_INTERVAL: Final = 1.0
# How often streams are ended whose user is at another instance now. Not at once: clients of one user that are at two
# instances would end each other's streams as fast as they can open them.
MOVED_CHECK_INTERVAL: Final = 5.0
# So many take a few milliseconds; then others have a turn.
SESSIONS_AT_ONCE: Final = 100


class _LeftToolboxes(Struct):
    toolboxes: list[str]
    # The client's, by which faces tell clients apart.
    client_info: Raw = Raw(b"{}")


class _LeftSession(Struct):
    instance: str
    revision: str
    state: Raw


class _SavedSession:
    """A session as another instance left it (`SavedSession`)."""

    def __init__(self, gateway: Gateway, principal: str, saved: _LeftSession, *, is_own: bool) -> None:
        self._gateway = gateway
        self._principal = principal
        self._saved = saved
        self.revision = saved.revision
        self.is_own = is_own

    def resume(self, link: Link) -> ServedSession:
        session = self._gateway.make_session(ResumedLink(link), self._principal)
        restore(session, bytes(self._saved.state))
        return session


class ClusterInstance:
    def __init__(self, config: ClusterConfig, folder: str, password: str | None) -> None:
        """`folder`: where relative paths start. Raises `ConfigError`."""
        self.state = open_state(config, folder, password, self._describe)
        self.state.on_told("arrived", self._on_arrived_elsewhere)
        self.state.on_emptied(self._leave_again)
        self._gateway: Gateway | None = None
        self._server: HttpServer | None = None
        self._started_at = time.time()
        # Users who have arrived: asked for with every request.
        self.here: OrderedDict[str, None] = OrderedDict()
        # Who has waited for the state in vain: they are not kept waiting again, whatever is wrong with it.
        self._in_vain: set[str] = set()
        # Who has arrived at another instance since streams were looked at, and not here again.
        self._moved: set[str] = set()
        # By session, what was written last.
        self._written: dict[str, tuple[object, ...]] = {}
        # Clients may still answer questions of other instances.
        number_questions_elsewhere()

    def join(self, gateway: Gateway) -> None:
        """Serve the clients of this gateway."""
        self._gateway = gateway

    def serve(self, server: HttpServer) -> None:
        """Clients are served from now on."""
        self._server = server

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            _ = tasks.create_task(self.state.run())
            if (shared := self._shared_sign_ins()) is not None:
                _ = tasks.create_task(shared.run())
            _ = tasks.create_task(self._follow_moved())
            while True:
                await asyncio.sleep(SESSION_REFRESH_INTERVAL)
                await self._leave_used()

    async def leave(self) -> None:
        """Write what is left to write. The sessions stay for other instances."""
        gateway = self._gateway
        if gateway is not None and self._shared_sign_ins() is not None:
            # What they get must be shared while the state can still be reached.
            await gateway.runtime.sign_ins(gateway.config.keychain).settle()
        await self.state.leave()

    def _shared_sign_ins(self) -> SharedSignIns | None:
        """None if no server can want one."""
        gateway = self._gateway
        if gateway is None or all(server.url is None for _, server in gateway.config.servers()):
            return None
        return gateway.runtime.sign_ins(gateway.config.keychain).shared

    def _describe(self) -> bytes:
        server = self._server
        return encode(
            {
                "instance": self.state.instance,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": full_version(),
                "address": None if server is None else server.url,
                "users": len(self.here),
                "sessions": 0 if server is None else server.session_count,
                "calls": 0 if server is None else server.call_count,
                "startedAt": self._started_at,
                "at": time.time(),
                "latencySeconds": self.state.link.latency,
            }
        )

    # ── users ──

    def is_arriving(self, principal: str) -> bool:
        """Whether something may have to be read before this user is served. Once the state has been away for a while,
        nobody waits for it, and they arrive when it is back."""
        if principal in self.here:
            return False
        away_since = self.state.link.away_since
        return away_since is None or time.monotonic() - away_since < RECALL_TIMEOUT

    async def arrive(self, principal: str) -> None:
        """Read what other instances have left for a user."""
        gateway = self._gateway
        assert gateway is not None
        is_patient = principal not in self._in_vain
        try:
            opened, tasks, approved = await self._until_answered(
                lambda: self._read(principal, is_patient=is_patient), RECALL_TIMEOUT if is_patient else 0.0
            )
        except StateUnavailable:
            if len(self._in_vain) >= MAX_USERS_HERE:
                self._in_vain.clear()
            self._in_vain.add(principal)
            return
        self._in_vain.discard(principal)
        views = gateway.router.views
        for left in opened.values():
            try:
                found = decode(left, type=_LeftToolboxes)
            except MsgspecError:
                continue
            info = bytes(found.client_info)
            view = views.of_client(principal, info) if views.tells_clients_apart else views.of_principal(principal)
            views.reopen(view, found.toolboxes)
        if tasks:
            gateway.router.tasks.handles.take_over(views.of_principal(principal), tasks.values())
        if approved and gateway.gate.shared_approvals is not None:
            gateway.gate.shared_approvals.arrive(principal, approved)
        self.here[principal] = None
        self._moved.discard(principal)
        if len(self.here) > MAX_USERS_HERE:
            self.here.popitem(last=False)
        self.state.tell("arrived", principal.encode())

    async def _read(self, principal: str, *, is_patient: bool) -> list[dict[str, bytes]]:
        """Raises `StateUnavailable`."""
        kinds = OPENED, TASK, APPROVAL
        found = await asyncio.gather(*(self.state.find_all(kind, principal, is_patient=is_patient) for kind in kinds))
        if (shared := self._shared_sign_ins()) is not None:
            # If it cannot be stored now, it is tried again.
            with contextlib.suppress(DownstreamError):
                await shared.arrive(principal)
        return found

    def forget(self, principals: Iterable[str]) -> None:
        """Whoever has one of these names next arrives as somebody else."""
        for principal in principals:
            self.here.pop(principal, None)

    def _on_arrived_elsewhere(self, body: bytes) -> None:
        """Another instance serves this user now, too: what is known of them here may be out of date."""
        principal = body.decode(errors="replace")
        self.here.pop(principal, None)
        self._moved.add(principal)
        if self._server is not None:
            self._server.doubt(principal)

    async def _follow_moved(self) -> None:
        """End streams of modern clients whose user is at another instance now: what they do there is not told here. The
        client opens them again, where it is served now. Legacy ones belong to a session."""
        while True:
            await asyncio.sleep(MOVED_CHECK_INTERVAL)
            moved, self._moved = self._moved, set()
            if not moved or self._server is None:
                continue
            for session in self._server.sessions():
                if TYPE_CHECKING:
                    assert isinstance(session, Session)
                if session.streams and (principal := session.view.principal) in moved:
                    for stream in list(session.streams.values()):
                        stream.on_subscription_lost()
                    if session.streams:
                        # They are not acknowledged yet, which has to come first.
                        self._moved.add(principal)

    def on_opened(self, view: View, toolbox: str) -> None:
        """Called when a toolbox is opened. Sessions are kept whole."""
        assert self._gateway is not None
        if view in self._gateway.router.views.of_sessions:
            return
        name = "" if view.client is None else view.client.name
        self.state.keep(OPENED, view.principal, name, encode(_LeftToolboxes(list(view.opened), Raw(view.client_info))))

    # ── legacy sessions (`SessionKeeper`) ──

    def keep(self, id: str, session: ServedSession) -> None:
        if TYPE_CHECKING:
            assert isinstance(session, Session)
        # With every answer, hence nothing but the comparison. Whether it is about to expire, `run` looks.
        mark = mark_of(session)
        if self._written.get(id) == mark or session.revision is None:
            return
        self._written[id] = mark
        saved = _LeftSession(self.state.instance, session.revision.name, Raw(written_down(session)))
        self.state.keep(SESSION, session.view.principal, id, encode(saved))

    def drop(self, id: str, principal: str) -> None:
        self._written.pop(id, None)
        self.state.drop(SESSION, principal, id)

    def release(self, id: str) -> None:
        self._written.pop(id, None)

    async def find(self, id: str, principal: str, *, is_here: bool) -> SavedSession | None:
        found = await self._left_session(id, principal, is_here=is_here)
        if found is None:
            return None
        assert self._gateway is not None
        try:
            saved = decode(found, type=_LeftSession)
        except MsgspecError:
            return None
        return _SavedSession(self._gateway, principal, saved, is_own=saved.instance == self.state.instance)

    async def _left_session(self, id: str, principal: str, *, is_here: bool) -> bytes | None:
        def look() -> Awaitable[bytes | None]:
            return self.state.find(SESSION, principal, id, is_patient=not is_here)

        try:
            return await self._until_answered(look, DOUBTED_RECALL_TIMEOUT if is_here else RECALL_TIMEOUT)
        except StateUnavailable:
            away_since = self.state.link.away_since
            if away_since is not None and time.monotonic() - away_since > SESSION.lifetime:
                # Whatever it knew has expired by then.
                return None
            raise SessionUnknowable from None

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], timeout: float) -> T:
        """Ask the state again and again until it answers. Raises `StateUnavailable` once it has been away so long."""
        began, link = time.monotonic(), self.state.link
        while True:
            try:
                return await ask()
            except StateUnavailable:
                if (left := min(began, link.away_since or began) + timeout - time.monotonic()) <= 0:
                    raise
                left = min(left, RECALL_INTERVAL)
                await (link.wait_until_back(left) if link.is_away else asyncio.sleep(left))

    def _leave_again(self) -> None:
        for legacy in self._sessions():
            self._leave_session(legacy)
        if self._gateway is not None and self._gateway.is_open:
            for view in self._gateway.router.views:
                if view.opened:
                    self.on_opened(view, "")

    async def _leave_used(self) -> None:
        """Write sessions again before they expire, if they are used or have a stream open."""
        since = time.monotonic() - SESSION_REFRESH_INTERVAL
        for number, legacy in enumerate(self._sessions(), 1):
            if not legacy.is_over and (legacy.last_used > since or legacy.is_busy):
                self._leave_session(legacy)
            if number % SESSIONS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _sessions(self) -> list[LegacySession]:
        return [] if self._server is None else self._server.legacy_sessions()

    def _leave_session(self, legacy: LegacySession) -> None:
        if legacy.session is not None:
            self._written.pop(legacy.id, None)
            self.keep(legacy.id, legacy.session)
