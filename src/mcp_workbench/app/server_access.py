"""The servers of a configuration, for commands that sign in to one of them and look at what it offers.

Owns what such a command needs of a workbench: connections, sign-ins, the audit and the lock. There is no client, and so
there is neither a face nor a session, nor a router.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from mcp_workbench.app.runtime import ProcessOwner, Runtime
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.sharing import OWN_USER, Caller
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES
from mcp_workbench.engine.run import run
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.steps import EventKind
    from mcp_workbench.signin.sign_in_target import SignInTarget
    from mcp_workbench.signin.sign_ins import SignIns
    from mcp_workbench.team.oversight import Oversight

T = TypeVar("T")


class _AuditOptions(Struct, frozen=True):
    """As `team.oversight.AuditOptions` says. Stdout carries what the command prints."""

    is_audited: bool = True
    stdout_is_free: bool = False


class ServerAccess(ProcessOwner):
    """Runs for the duration of one command."""

    def __init__(self, config: WorkbenchConfig, redactor: Redactor) -> None:
        self.auth = config.auth
        self._config = config
        self._runtime = Runtime(redactor, self)
        self.catalog = Catalog(config, self._runtime.store(use_cache=True), self._runtime.servers)
        self._oversight: Oversight | None = None
        if config.lock is not None or config.audit:
            from mcp_workbench.team.oversight import Oversight

            self._oversight = Oversight(self.catalog, redactor, _AuditOptions(), lambda principal: self.catalog)
            self._oversight.lock_at_once(config)

    @property
    def own_info(self) -> bytes:
        from mcp_workbench import __version__
        from mcp_workbench.engine.session.welcome import SHOWN_NAME, Welcome

        return Welcome(SHOWN_NAME, __version__).info

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work while everything runs, then end all connections. Errors are raised unchanged."""
        return run(self._run(work))

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        failure: Exception
        async with self._running():
            # Kept until everything has ended: a task group would wrap it in an exception group.
            try:
                return await work()
            except (WorkbenchError, OSError) as error:
                failure = error
        raise failure

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with self._runtime.running():
            if self._oversight is None:
                yield
                return
            await self._oversight.prepare(self._config)
            self._oversight.use(self.catalog.entries())
            try:
                yield
            finally:
                self._oversight.stop_recording()
                await self._oversight.wait_recorded()

    @property
    def sign_ins(self) -> SignIns:
        """All sign-ins to servers, stored as the configuration requires."""
        return self._runtime.sign_ins(self._config.keychain)

    async def target(self, entry: ServerEntry, principal: str) -> SignInTarget:
        """What a user signs in to, with all references resolved. Raises `DownstreamError`."""
        from mcp_workbench.app.server_links import sign_in_target

        await self._runtime.resolve(entry)
        return sign_in_target(entry, self._runtime.resolved(entry), principal)

    async def list_tools(self, entry: ServerEntry) -> None:
        """Connect to a server as our own user, and wait until it has been listed. Raises `DownstreamError`."""
        connection = self._runtime.pool.connection(entry, Caller(OWN_USER, "modern", NO_CAPABILITIES))
        await connection.ensure_listed(asked=True)

    def record(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None:
        """Record an event in the audit, if there is one (`steps.EventRecorder`)."""
        if self._oversight is not None:
            self._oversight.record(kind, **fields)
