"""`mcp-workbench team lock`: record what servers offer, show what differs from the record, and accept differences."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from mcp_workbench.cli.engine import Engine, connect
from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Screen, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.watched_workbenches import Workbenches
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import read_offer
from mcp_workbench.engine.catalog.offer import KINDS, SINGULAR, Offer
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.engine.printable import plural
from mcp_workbench.engine.run import run as run_loop
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.file_replacement import read_file, replace_file
from mcp_workbench.setup.own_configuration import lock_folder
from mcp_workbench.setup.package_sources import integrity_of
from mcp_workbench.team.lock.definition_store import DefinitionStore, default_folder
from mcp_workbench.team.lock.installed_packages import installed_package
from mcp_workbench.team.lock.lock_difference import DefinitionChange, about_server, changes_of, described_changes
from mcp_workbench.team.lock.lock_file import (
    LOCK_FILE_MODE,
    LockedServer,
    LockFile,
    definition_hash,
    lockable,
    locked_kinds,
    locked_server,
    merged,
    read_lock,
    written,
)
from mcp_workbench.team.lock.packages import package_of


def run(parsed: Parsed) -> int:
    action, named = parsed.positional(0), parsed.positional(1)
    if named is not None and action != "accept":
        raise UsageError(f"unexpected argument `{named}`")
    config = configuration(parsed)
    locking = _Locking(parsed, config)
    if action is None:
        return locking.write()
    return locking.show() if action == "diff" else locking.accept(named)


class _Locking:
    """A run of the command: the lock file, the servers' current lists, and the definitions stored on this machine."""

    def __init__(self, parsed: Parsed, config: WorkbenchConfig) -> None:
        self._parsed = parsed
        self._config = config
        self._path = config.lock_path
        self._store = DefinitionStore(default_folder())
        self._screen = stdout()
        self._seen = read_file(self._path)
        # Without the cache, whose lists may be outdated.
        self._engine = Engine(config, use_cache=False, redactor=log_for(parsed, config))
        self._failures: dict[str, str] = {}
        # The lock whose records of packages are kept.
        self._before: LockFile | None = None
        # The servers whose lists come from a running workbench, with its process id.
        self._running: dict[str, int] = {}
        self._kinds = locked_kinds(config.lock_target)

    # ── the three actions ──

    def write(self) -> int:
        before = self._before = self._lock_before()
        entries = self._listed()
        now = {(entry.toolbox, entry.name): self._locked(entry) for entry in entries}
        # Compared before overwriting: running `lock` again should report what changed.
        changes = self._changes(before, entries) if before is not None else []
        self._save(merged(before, self._config.lock_target, now), entries)
        self._record(changes)
        if self._parsed.has("json"):
            self._screen.json({"lock": self._path, "servers": len(now), "failed": self._failures})
        else:
            counted = ", ".join(
                plural(count, SINGULAR[kind])
                for kind in KINDS
                if (count := sum(len(each.hashes(kind)) for each in now.values()))
            )
            print(f"locked {plural(len(now), 'server')}{': ' * bool(counted)}{counted}, in {tilde(self._path)}")
            if changes:
                remark("note", f"{len(changes)} of them were different before; your version control shows which")
            if self._config.lock is None:
                remark(
                    "hint", 'nothing is compared with it yet: set `"lock": "warn"` or `"enforce"` in the configuration'
                )
        return self._report_failures(before)

    def show(self) -> int:
        lock = self._lock()
        entries = self._listed(seen_against=lock)
        changes = self._changes(lock, entries)
        about = {
            entry.label: text
            for entry in entries
            if (text := about_server(lock.server(entry.toolbox, entry.name), self._locked(entry)))
        }
        if self._parsed.has("json"):
            self._screen.json(
                {
                    "lock": self._path,
                    "changes": _as_json(changes),
                    "servers": about,
                    "running": self._running,
                    "failed": self._failures,
                }
            )
        else:
            _show(self._screen, changes)
            for label, text in about.items():
                remark("note", f"{label}: {text}")
            self._say_running(changes)
            if not changes and not self._failures:
                remark("note", "nothing has changed since it was locked")
        failed = self._report_failures(lock)
        return FAILED_STATUS if changes else failed

    def accept(self, named: str | None) -> int:
        lock = self._lock()
        chosen, item = (None, None) if named is None else self._find_item(named)
        if item is None:
            lock = self._with_new_packages(lock, chosen)
        self._before = lock
        entries = self._listed(chosen, seen_against=lock)
        changes = [each for each in self._changes(lock, entries) if item is None or each.name == item]
        if item is not None and not changes and not self._failures:
            raise UsageError(
                f"`{named}` has not changed since it was locked, or does not exist",
                hint="mcp-workbench team lock diff shows what has changed",
            )
        now = {
            (entry.toolbox, entry.name): self._accepted(lock.server(entry.toolbox, entry.name), entry, item)
            for entry in entries
        }
        # Show what is accepted: it may have changed again since the user looked.
        if self._parsed.has("json"):
            self._screen.json({"lock": self._path, "accepted": _as_json(changes), "failed": self._failures})
        else:
            _show(self._screen, changes)
            self._say_running(changes)
        self._save(merged(lock, self._config.lock_target, now), entries)
        self._record(changes)
        if not self._parsed.has("json"):
            print(f"accepted {plural(len(changes), 'definition')}, in {tilde(self._path)}")
        return self._report_failures(lock)

    # ── the parts ──

    def _lock(self) -> LockFile:
        lock = read_lock(self._config.lock_target)
        if lock is None:
            raise ConfigError(
                f"there is no lock file yet: `{self._path}`",
                hint="`mcp-workbench team lock` creates it; review it, and commit it",
            )
        return lock

    def _with_new_packages(self, lock: LockFile, only: ServerEntry | None) -> LockFile:
        """Record again what registries say that packages contain, which were recorded before. Written at once: a server
        whose package differs from its record does not start."""
        changed: dict[tuple[str, str], LockedServer] = {}
        for entry in self._engine.face.catalog.entries():
            before = lock.server(entry.toolbox, entry.name)
            if before is None or not before.integrity or (only is not None and entry is not only):
                continue
            package = package_of(entry.config)
            integrity = integrity_of(package)
            if (package, integrity) != (before.package, before.integrity):
                changed[entry.toolbox, entry.name] = replace(before, package=package, integrity=integrity)
                remark("note", f"{entry.label}: recorded the content of `{package}`, which was `{before.package}`")
        if changed:
            lock = merged(lock, self._config.lock_target, changed)
            self._save(lock, ())
            self._seen = written(lock)
        return lock

    def _lock_before(self) -> LockFile | None:
        """Return the existing lock file if it is usable; `lock` replaces it otherwise."""
        try:
            return read_lock(self._config.lock_target)
        except ConfigError as error:
            remark("warning", error.message)
            return None

    def _listed(self, only: ServerEntry | None = None, seen_against: LockFile | None = None) -> list[ServerEntry]:
        """Return the servers whose lists could be read, all or only one. With a lock to compare with, what a running
        workbench has seen of a server counts: a server that is started anew may list something else."""
        chosen = [each for each in self._engine.face.catalog.entries() if only is None or each is only]
        if seen_against is not None:
            self._take_seen(chosen, seen_against)
        failures = connect(self._engine, only=[each for each in chosen if each.label not in self._running])
        self._failures = {place: error.message.partition("\n")[0] for place, error in failures.items()}
        return [entry for entry in chosen if entry.offer is not None]

    def _take_seen(self, entries: Sequence[ServerEntry], lock: LockFile) -> None:
        """Have the entries offer what running workbenches have seen. Of several copies of a server, the one that
        differs most."""
        found: dict[tuple[str, str], list[tuple[int, Offer]]] = {}
        for pid, seen in run_loop(_seen_offers(self._config.path)):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                place = (seen["toolbox"], seen["server"])
                found.setdefault(place, []).append((pid, read_offer(encode(seen["offer"]))))
        for entry in entries:
            copies = found.get((entry.toolbox, entry.name))
            if copies:
                locked = lock.server(entry.toolbox, entry.name)
                pid, offer = max(copies, key=lambda copy: len(self._differences(locked, copy[1])))
                entry.learn(offer, remember=False)
                self._running[entry.label] = pid

    def _differences(self, locked: LockedServer | None, offer: Offer) -> list[object]:
        return list(changes_of(locked, offer, lambda _, __, definition: definition_hash(definition), self._kinds))

    def _say_running(self, changes: Sequence[DefinitionChange]) -> None:
        for label in dict.fromkeys(each.where for each in changes):
            if label in self._running:
                remark("note", f"{label}: as seen by the running workbench (process {self._running[label]})")

    def _changes(self, lock: LockFile, entries: Sequence[ServerEntry]) -> list[DefinitionChange]:
        tools = {entry.label: frozenset(entry.offer.tools) for entry in entries if entry.offer is not None}
        for box, servers in lock.toolboxes.items():
            for name, server in servers.items():
                # A server that cannot be started still owns names that another could claim.
                tools.setdefault(f"{box}/{name}", frozenset(server.tools))
        found: list[DefinitionChange] = []
        for entry in entries:
            assert entry.offer is not None
            others = {label: names for label, names in tools.items() if label != entry.label}
            place = (entry.toolbox, entry.name)
            found += described_changes(place, lock, entry.offer, others, self._store.known, self._kinds)
        return found

    def _locked(self, entry: ServerEntry) -> LockedServer:
        assert entry.offer is not None
        locked = locked_server(entry.config, entry.offer, self._kinds)
        locked.package = installed_package(entry.config, entry.context.environ)
        before = None if self._before is None else self._before.server(entry.toolbox, entry.name)
        if before is not None and before.package == locked.package:
            locked.integrity = before.integrity
        return locked

    def _accepted(self, before: LockedServer | None, entry: ServerEntry, item: str | None) -> LockedServer:
        """Return the server as it is now; with an item, only that, and the rest as locked."""
        now = self._locked(entry)
        if item is None:
            return now
        kept = LockedServer(package=now.package, server=now.server, sandbox=now.sandbox) if before is None else before
        for kind in self._kinds:
            if item in now.hashes(kind) or item in kept.hashes(kind):
                # Its removal can be accepted, too.
                kept.accept(kind, item, now.hashes(kind).get(item))
        return kept

    def _find_item(self, named: str) -> tuple[ServerEntry, str | None]:
        """Return the named server, and the item of it. Names may contain slashes."""
        entries = list(self._engine.face.catalog.entries())
        for entry in entries:
            # Whole names first: a server may be called `a/b`.
            if named in (entry.label, entry.name):
                return self._engine.find_server(named), None
        for entry in entries:
            for start in (f"{entry.label}/", f"{entry.name}/"):
                if named.startswith(start):
                    return self._engine.find_server(start[:-1]), named.removeprefix(start)
        return self._engine.find_server(named), None

    def _save(self, lock: LockFile, entries: Sequence[ServerEntry]) -> None:
        content = written(lock)
        if content != self._seen:
            # Fails if the file has changed since it was read, by a merge or another `lock`.
            replace_file(self._path, self._seen, content, lock_folder())
            if self._seen is None:
                os.chmod(self._path, LOCK_FILE_MODE)
        for entry in entries:
            assert entry.offer is not None
            # The lock contains only hashes; the definitions are stored on this machine to show differences later.
            self._store.keep(each for kind in self._kinds for each in lockable(entry.offer, kind).values())

    def _record(self, changes: Sequence[DefinitionChange]) -> None:
        """Write the changes to the audit log, if there is one."""
        # stdout is reserved for this command's data.
        if self._config.audit is None or self._config.audit.stdout or not changes:
            return
        from mcp_workbench.engine.config.redact import Redactor
        from mcp_workbench.team.audit.audit_step import open_audit

        redactor = Redactor(self._config.secrets)
        audit = open_audit(self._config.audit, redactor, stdout_is_free=False)
        audit.record_start(self._config.path)
        for each in changes:
            where = {"toolbox": each.toolbox, "server": each.server, "item": each.name}
            audit.record("definition", **where, decision="accepted", rule="lock", reason=f"{each.kind}: {each.how}")
        audit.finish()
        audit.close()

    def _report_failures(self, lock: LockFile | None) -> int:
        for place, message in self._failures.items():
            remark("warning", f"{place}: {message}")
        if not self._failures:
            return 0
        count = len(self._failures)
        known = {f"{box}/{name}" for box, servers in (lock.toolboxes if lock else {}).items() for name in servers}
        if known.isdisjoint(self._failures):
            return complain(
                "a server cannot be started, and is not locked"
                if count == 1
                else f"{count} servers cannot be started, and are not locked",
                status=FAILED_STATUS,
            )
        return complain(
            "a server cannot be started; its locked definitions are unchanged"
            if count == 1
            else f"{count} servers cannot be started; their locked definitions are unchanged",
            status=FAILED_STATUS,
        )


async def _seen_offers(config: str) -> list[tuple[int, dict[str, Any]]]:
    workbenches = Workbenches()
    try:
        return await workbenches.offers(config)
    finally:
        workbenches.close()


def _show(screen: Screen, changes: Sequence[DefinitionChange]) -> None:
    for each in changes:
        screen.line((each.where, "name"), f"  {each.what}  ", (each.how, "warn"))
        for line in each.lines:
            screen.line((line, "good" if line.startswith("+") else "bad" if line.startswith("-") else "dim"), indent=2)
        for warning in each.warnings:
            screen.line(("! ", "bad"), (warning, "strong"), indent=2)
    screen.flush()


def _as_json(changes: Sequence[DefinitionChange]) -> list[dict[str, Any]]:
    return [
        {
            "toolbox": each.toolbox,
            "server": each.server,
            "kind": each.kind,
            "name": each.name,
            "how": each.how,
            "difference": list(each.lines),
            "warnings": list(each.warnings),
        }
        for each in changes
    ]
