"""The audit and the lock on definitions, for one gateway: what is recorded and what is withheld.

Created and loaded only if one of these is configured. Both follow changes of the configuration: disk access happens
beforehand, in a thread, and then the change takes effect at once. The audit's format is in `engine/observe/`, the
comparison with the lock file in `team/`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.catalog.offer import KINDS
from mcp_workbench.engine.lasting_state import LOCAL_STATE, LastingState
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.catalog.entry import Judge, ServerEntry
    from mcp_workbench.engine.catalog.offer import Offer
    from mcp_workbench.engine.config.model import WorkbenchConfig
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.steps import EventKind, Step
    from mcp_workbench.team.audit.audit_step import Audit
    from mcp_workbench.team.lock.definition_lock import Lock, LockReading

# For opening the audit and reading the lock file. It takes milliseconds, or as long as others may hold the audit's lock
# (`audit_file.AUDIT_LOCK_TIMEOUT`); a disk that does not answer must not block clients forever.
OVERSIGHT_OPEN_TIMEOUT: Final = 10.0
# Previous audits whose last lines are waited for at the end. The setting does not change more often than this during
# one call.
MAX_FORMER_SETTINGS: Final = 16
NOT_IN_FORCE: Final = "the configuration has changed"


class AuditOptions(Protocol):
    """What decides, besides the configuration, whether there is an audit and where it may go (`gateway.Options`)."""

    @property
    def is_audited(self) -> bool: ...

    @property
    def stdout_is_free(self) -> bool: ...


class Prepared(NamedTuple):
    """What a new configuration needs from the disk, prepared beforehand."""

    config: WorkbenchConfig
    # The current one if the setting has not changed.
    audit: Audit | None
    lock: LockReading | None


class Oversight:
    """The audit and the lock of one configuration."""

    def __init__(
        self,
        catalog: Catalog,
        redactor: Redactor,
        options: AuditOptions,
        catalog_of: Callable[[str], Catalog],
        entries: Callable[[], Iterable[ServerEntry]] = tuple,
        state: LastingState = LOCAL_STATE,
    ) -> None:
        """`entries`: the servers of all users. `state`: where others learn what was accepted here."""
        self._entries = entries
        self._state = state
        self._catalog = catalog
        # The catalogue of a principal's own connections.
        self._catalog_of = catalog_of
        self._redactor = redactor
        self._options = options
        # The next configuration, between `prepare` and `use`; and the current one.
        self._prepared: Prepared | None = None
        self._config: WorkbenchConfig | None = None
        # For `Gateway.steps`, which defines the order of all steps.
        self.audit_step: Audit | None = None
        # Previous audits, which get the last lines of calls that they have seen begin.
        self._former_audits: deque[Audit] = deque(maxlen=MAX_FORMER_SETTINGS)
        self._lock: Lock | None = None
        # No longer applied, but still registered with servers.
        self._former_lock: Lock | None = None

    # ── from one configuration to the next ──

    def lock_at_once(self, config: WorkbenchConfig) -> None:
        """Apply the lock before anything is shown of any server. Reads the file here, because no client waits yet."""
        from mcp_workbench.team.lock.definition_lock import look_at_lock

        if config.lock is not None:
            self._use_lock(config, look_at_lock(config.lock_target))
            self.judge(self._catalog.entries())

    async def prepare(self, config: WorkbenchConfig) -> None:
        """Access the disk in a thread. Raises `ConfigError`; then nothing has changed."""
        self._discard()
        is_abandoned = threading.Event()
        try:
            async with asyncio.timeout(OVERSIGHT_OPEN_TIMEOUT):
                self._prepared = await aside(partial(self._prepare, config, is_abandoned))
        except TimeoutError:
            raise ConfigError(
                f"the audit or the lock file could not be opened within {OVERSIGHT_OPEN_TIMEOUT:g} s",
                hint="check the disk that they are on",
            ) from None
        finally:
            # Has no effect if `_prepare` has returned.
            is_abandoned.set()

    def _prepare(self, config: WorkbenchConfig, is_abandoned: threading.Event) -> Prepared:
        reading = None
        if config.lock is not None:
            from mcp_workbench.team.lock.definition_lock import look_at_lock

            reading = look_at_lock(config.lock_target)
        audit = None
        if config.audit is not None and self._options.is_audited:
            is_same = self._config is not None and self._config.audit == config.audit
            audit = self.audit_step if is_same else None
            if audit is None:
                from mcp_workbench.team.audit.audit_step import open_audit

                audit = open_audit(config.audit, self._redactor, stdout_is_free=self._options.stdout_is_free)
                if is_abandoned.is_set():
                    audit.discard()
        return Prepared(config, audit, reading)

    def _discard(self) -> None:
        """Drop what was prepared, because it is not used after all."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.audit is not None and prepared.audit is not self.audit_step:
            prepared.audit.discard()

    def use(self, beginning: Iterable[ServerEntry]) -> None:
        """Apply what was prepared, also to servers that are about to be shown. The steps may have changed."""
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        self._use_audit(prepared)
        if prepared.lock is not None:
            self._use_lock(prepared.config, prepared.lock)
        elif self._lock is not None:
            self._former_lock, self._lock = self._lock, None
        self._config = prepared.config
        self.judge(beginning)

    def settle(self, ending: Iterable[ServerEntry], entries: Iterable[ServerEntry]) -> None:
        """Apply the lock to the current servers of all users, and notify clients of changes."""
        self.release(ending)
        former, self._former_lock = self._former_lock, None
        for entry in entries:
            judges = tuple(judge for judge in entry.judges if former is None or judge != former.judge)
            if self._lock is not None and self._lock.judge not in judges:
                judges += (self._lock.judge,)
            if judges or entry.judges:
                self._use_judges(entry, judges, notifies_own=True)

    # ── the audit ──

    def _use_audit(self, prepared: Prepared) -> None:
        former, audit = self.audit_step, prepared.audit
        if former is audit:
            return
        on_learned = self._catalog.servers.on_learned
        if former is None:
            on_learned.append(self._record_definitions)
        else:
            # Calls in progress still report their end to it.
            former.finish(NOT_IN_FORCE, audit)
            self._former_audits.append(former)
        self.audit_step = audit
        if audit is None:
            on_learned.remove(self._record_definitions)
        else:
            audit.record_start(prepared.config.path)

    @property
    def is_recording(self) -> bool:
        return self.audit_step is not None

    def stop_recording(self) -> None:
        """Write the last line; waits for nothing."""
        self._discard()
        if self.audit_step is not None and self._record_definitions in self._catalog.servers.on_learned:
            self._catalog.servers.on_learned.remove(self._record_definitions)
            self.audit_step.finish()

    async def wait_recorded(self) -> None:
        """Wait until the last lines are on the disk, for a bounded time."""
        audits = [each for each in (self.audit_step, *self._former_audits) if each is not None]
        await asyncio.gather(*(aside(each.close) for each in audits))
        self.audit_step = None

    def record(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None:
        if self.audit_step is not None:
            self.audit_step.record(kind, **fields)

    def _record_definitions(self, entry: ServerEntry, before: Offer | None) -> None:
        """Record that a server lists other definitions than before, in this process or an earlier one."""
        if entry.offer is None or not any(each.is_of(self._catalog) for each in entry.catalogs):
            return
        from mcp_workbench.engine.catalog.offer_changes import list_changes

        for kind, text in list_changes(before, entry.offer).items():
            who = entry.context.principal or None
            self.record("definition", principal=who, toolbox=entry.toolbox, server=entry.name, reason=f"{kind}: {text}")

    # ── the lock ──

    def _use_lock(self, config: WorkbenchConfig, reading: LockReading) -> None:
        is_enforced = config.lock == "enforce"
        if self._lock is None:
            from mcp_workbench.team.lock.definition_lock import Lock

            shared = None
            if self._state.is_shared:
                from mcp_workbench.team.lock.shared_lock import SharedLock

                shared = SharedLock(self._state, self._on_accepted_elsewhere)
            self._lock = Lock(reading, self.record, is_enforced=is_enforced, shared=shared)
        elif self._lock.use(reading, is_enforced=is_enforced):
            self.record("configuration", decision="applied", reason="the lock file has changed", config=reading.path)

    def _on_accepted_elsewhere(self) -> None:
        if self._lock is not None:
            self._lock.apply_accepted()
            self.record("configuration", decision="applied", reason="definitions were accepted on another machine")
            self.settle((), self._entries())

    @property
    def lock_step(self) -> Step | None:
        """None if the lock refuses nothing."""
        if self._lock is None or not self._lock.is_enforced:
            return None
        from mcp_workbench.team.lock.definition_lock import LockStep

        return LockStep(self._catalog_of, self._lock)

    @property
    def problem(self) -> str | None:
        """Why there is no lock to compare with, although one is configured."""
        return None if self._lock is None or self._lock.problem is None else self._lock.problem.message

    def differences(self, entry: ServerEntry) -> dict[tuple[str, str], str]:
        """What this server offers otherwise than locked: why, by kind and name."""
        lock = self._lock
        return {} if lock is None or lock.judge not in entry.judges else lock.differences(entry)

    def has_lock_changed(self) -> bool:
        """Whether the lock file has changed since it was read. Accesses the disk."""
        return self._lock is not None and self._lock.has_changed()

    def judge(self, entries: Iterable[ServerEntry]) -> None:
        """Apply the lock to these servers."""
        for entry in entries:
            if self._lock is not None and self._lock.judge not in entry.judges:
                self._use_judges(entry, (*entry.judges, self._lock.judge))

    def forget(self, catalog: Catalog) -> None:
        """This catalogue is no longer shown to any client."""
        if self._lock is not None:
            self._lock.forget(catalog.principal)

    def release(self, entries: Iterable[ServerEntry]) -> None:
        """These servers are no longer shown here; other catalogues that show them have their own locks."""
        own = [lock.judge for lock in (self._lock, self._former_lock) if lock is not None]
        for entry in entries:
            # The last calls of a server that ends are judged as before.
            if own and entry.ended is None:
                self._use_judges(entry, tuple(judge for judge in entry.judges if judge not in own))

    def _use_judges(self, entry: ServerEntry, judges: tuple[Judge, ...], *, notifies_own: bool = False) -> None:
        entry.judges, before = judges, entry.withheld
        entry.judge_again()
        if entry.withheld != before:
            # Unless `notifies_own`, the caller notifies our own clients.
            shown = [each for each in entry.catalogs if notifies_own or not each.is_of(self._catalog)]
            # Once, and before the first notification: each catalogue reads it to decide what to announce.
            entry.tools_differ = True
            for catalog in shown:
                catalog.notify(entry, frozenset(KINDS))
