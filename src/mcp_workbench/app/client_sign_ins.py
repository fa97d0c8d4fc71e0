"""Sign-ins to servers that are started for clients of one gateway, in their user's browser.

Connects the sign-ins of the process, the audit, and where clients are served
(`engine.session.signing_in.SignInService`). Loaded with the first call that needs it. Knows nothing about how a sign-in
works.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mcp_workbench.app.runtime import Runtime
from mcp_workbench.app.server_links import are_users_here, sign_in_target
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL
from mcp_workbench.errors import DownstreamError
from mcp_workbench.signin.flow_io import SignInFailed

if TYPE_CHECKING:
    from mcp_workbench.engine.steps import EventRecorder
    from mcp_workbench.signin.sign_in_target import SignInTarget
    from mcp_workbench.signin.sign_ins import BrowserSignIn, SignIns

# A call that was on its way while its user signed in has been refused by then.
RECENT_SIGN_IN_WINDOW: Final = 10.0


class ClientSignIns:
    """For the current configuration: a new one gets a new object."""

    def __init__(
        self, runtime: Runtime, config: WorkbenchConfig, serving: str | None, record: EventRecorder | None
    ) -> None:
        """`record`: told how sign-ins end; None if nobody wants to know."""
        self._runtime = runtime
        self._config = config
        self._serving = serving
        self._record = record

    @property
    def stored(self) -> SignIns:
        """All sign-ins to servers, stored as this configuration requires."""
        return self._runtime.sign_ins(self._config.keychain)

    def target(self, entry: ServerEntry, principal: str) -> SignInTarget:
        return sign_in_target(entry, self._runtime.resolved(entry), principal)

    async def begin_sign_in(
        self, entry: ServerEntry, principal: str, introduction: tuple[bytes, str] = (b"", "")
    ) -> BrowserSignIn:
        """Begin a sign-in for a client whose user can be shown a page."""
        # The page leads back to this machine, so the user's browser must run here.
        if not are_users_here(self._config.auth, self._config.trusted_proxy, self._serving):
            raise SignInFailed("you are connected over the network, but the page leads back to the workbench's machine")
        await self._runtime.resolve(entry)
        target = self.target(entry, principal)
        is_joined = self.stored.under_way(target) is not None
        begun = await self.stored.begin(target)
        if self._record is not None and not is_joined:
            _ = self._runtime.start_task(_record_end(self._record, begun, entry, principal, introduction))
        return begun

    def sign_in_under_way(self, entry: ServerEntry, principal: str) -> BrowserSignIn | None:
        """The sign-in that the user of such a client has already been shown."""
        return self.stored.under_way(self.target(entry, principal))

    def has_just_signed_in(self, entry: ServerEntry, principal: str) -> bool:
        """Whether this user signed in a moment ago: a call may have been refused just before."""
        record = self.target(entry, principal).find(self.stored.store.read())
        # A clock that was set back must not make it just now for hours.
        return record is not None and 0 <= time.time() - record.signed_in_at < RECENT_SIGN_IN_WINDOW


async def _record_end(
    record: EventRecorder, begun: BrowserSignIn, entry: ServerEntry, principal: str, introduction: tuple[bytes, str]
) -> None:
    """Record how a sign-in in a user's browser ends that was begun for a client with this introduction."""
    decision, reason = "signed in", ""
    try:
        await begun.wait()
    except DownstreamError as error:
        decision, reason = "failed", error.message
    client, peer = introduction
    about = {"principal": principal or LOCAL_PRINCIPAL, "peer": peer, "client": client.decode(errors="replace")}
    about |= {"toolbox": entry.toolbox, "server": entry.name, "decision": decision, "reason": reason}
    record("sign_in", **about)
