"""What is written down and what is withheld, for one gateway: the audit, and the lock on definitions.

Made only where one of these is configured, and loaded only then. What lines say is in `observe/`, what differs from the
lock file in `guard/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcp_workbench.catalog.offer import KINDS
from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.catalog.catalog import Catalog
    from mcp_workbench.catalog.entry import Judge, ServerEntry
    from mcp_workbench.catalog.offer import Offer
    from mcp_workbench.config.model import WorkbenchConfig
    from mcp_workbench.config.redact import Redactor
    from mcp_workbench.guard.definition_lock import Lock
    from mcp_workbench.observe.audit_step import Audit
    from mcp_workbench.signin.sign_ins import BrowserSignIn
    from mcp_workbench.steps import EventKind, Step


class Oversight:
    """The audit and the lock of one configuration."""

    def __init__(self, config: WorkbenchConfig, catalog: Catalog, redactor: Redactor) -> None:
        self._config = config
        self._catalog = catalog
        self._redactor = redactor
        self._audit: Audit | None = None
        self._lock: Lock | None = None
        if config.lock is not None:
            from mcp_workbench.guard.definition_lock import Lock

            # Before anything is shown of any server.
            self._lock = Lock(config.lock_target, self.record, is_enforced=config.lock == "enforce")
            self.judge(catalog.entries())

    # ── the audit ──

    def open_audit(self, *, stdout_is_free: bool) -> None:
        """Begin to write it, where there is one. Raises `ConfigError` where it cannot be written."""
        if self._config.audit is not None:
            from mcp_workbench.observe.audit_step import open_audit

            path = self._config.path
            self._audit = open_audit(self._config.audit, self._redactor, path, stdout_is_free=stdout_is_free)
            self._catalog.servers.on_learned.append(self._record_definitions)

    def close(self) -> None:
        if self._audit is not None:
            self._catalog.servers.on_learned.remove(self._record_definitions)
            self._audit.close()
            self._audit = None

    def record(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None:
        if self._audit is not None:
            self._audit.record(kind, **fields)

    def _record_definitions(self, entry: ServerEntry, before: Offer | None) -> None:
        """A server lists other things than it did, in this life or the one before."""
        if self._catalog not in entry.catalogs or entry.offer is None:
            return
        from mcp_workbench.catalog.offer_changes import list_changes

        for kind, text in list_changes(before, entry.offer).items():
            self.record("definition", toolbox=entry.toolbox, server=entry.name, reason=f"{kind}: {text}")

    async def record_sign_in(self, begun: BrowserSignIn, entry: ServerEntry, principal: str) -> None:
        """How a sign-in in somebody's browser ends."""
        from mcp_workbench.steps import LOCAL

        decision, reason = "signed in", ""
        try:
            await begun.wait()
        except DownstreamError as error:
            decision, reason = "failed", error.message
        who = {"principal": principal or LOCAL, "toolbox": entry.toolbox, "server": entry.name}
        self.record("sign_in", **who, decision=decision, reason=reason)

    # ── the lock ──

    @property
    def problem(self) -> str | None:
        """Why there is no lock to compare with, though there should be."""
        return None if self._lock is None or self._lock.problem is None else self._lock.problem.message

    def has_lock_changed(self) -> bool:
        """Whether there is another lock file than the one that was read. Looks at the disk."""
        return self._lock is not None and self._lock.has_changed()

    def judge(self, entries: Iterable[ServerEntry]) -> None:
        """From now on these servers show only what they may."""
        for entry in entries:
            if self._lock is not None and self._lock.judge not in entry.judges:
                self._use_judges(entry, (*entry.judges, self._lock.judge))

    def release(self, entries: Iterable[ServerEntry]) -> None:
        """These servers are not shown here any more; for others that show them, their own locks decide."""
        for entry in entries:
            # The last calls of one that ends are judged as they were.
            if self._lock is not None and entry.ended is None:
                self._use_judges(entry, tuple(judge for judge in entry.judges if judge != self._lock.judge))

    def _use_judges(self, entry: ServerEntry, judges: tuple[Judge, ...]) -> None:
        entry.judges, before = judges, entry.withheld
        entry.judge_again()
        if entry.withheld != before:
            # Whoever calls this tells our own clients.
            _notify(entry, [catalog for catalog in entry.catalogs if catalog is not self._catalog])

    def reload(self, config: WorkbenchConfig) -> None:
        """The lock file may have changed with the configuration, or by itself: both are watched."""
        self._config = config
        if self._lock is None:
            return
        for entry in self._lock.reload(config.lock_target, self._catalog.entries()):
            _notify(entry, list(entry.catalogs))

    # ── around requests ──

    def steps(self, judging: tuple[Step, ...], holding: tuple[Step, ...]) -> tuple[Step, ...]:
        """The audit first: it records every outcome. The lock after the policy: nothing is disclosed that is
        hidden from a principal. Before what holds: a person is asked only about what would pass."""
        audit: tuple[Step, ...] = () if self._audit is None else (self._audit,)
        if self._lock is None or not self._lock.is_enforced:
            return (*audit, *judging, *holding)
        from mcp_workbench.guard.definition_lock import LockStep

        return (*audit, *judging, LockStep(self._catalog), *holding)


def _notify(entry: ServerEntry, catalogs: Iterable[Catalog]) -> None:
    for catalog in catalogs:
        entry.tools_differ = True
        catalog.notify(entry, frozenset(KINDS))
