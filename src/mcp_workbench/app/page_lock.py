"""Differences from the lock file for the page, and accepting them. Everything here may block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import LockTarget
from mcp_workbench.engine.own_files import replace_whole
from mcp_workbench.errors import ConfigError
from mcp_workbench.seeing.page.shown_workbench import Unavailable
from mcp_workbench.team.lock.definition_store import DefinitionStore, default_folder
from mcp_workbench.team.lock.lock_difference import described_changes
from mcp_workbench.team.lock.lock_file import (
    LOCK_FILE_MODE,
    LockedServer,
    LockFile,
    canonical_definition,
    lockable,
    locked_kinds,
    locked_server,
    merged,
    parse_lock,
    written,
)


def changes(target: LockTarget, entries: Iterable[ServerEntry]) -> list[dict[str, Any]]:
    """What servers offer otherwise than locked, each with the definition before and after, if they are known."""
    lock, _ = _read(target)
    store, kinds = DefinitionStore(default_folder()), locked_kinds(target)
    listed = [entry for entry in entries if entry.offer is not None]
    tools = {entry.label: frozenset(entry.offer.tools) for entry in listed if entry.offer is not None}
    found = []
    for entry in listed:
        assert entry.offer is not None
        others = {label: names for label, names in tools.items() if label != entry.label}
        locked = None if lock is None else lock.server(entry.toolbox, entry.name)
        now = locked_server(entry.config, entry.offer, kinds)
        for each in described_changes((entry.toolbox, entry.name), lock, entry.offer, others, store.known, kinds):
            hash = None if locked is None else locked.hashes(each.kind).get(each.name)
            before = None if hash is None else store.known(hash)
            after = lockable(entry.offer, each.kind).get(each.name)
            found.append(
                {
                    "toolbox": each.toolbox,
                    "server": each.server,
                    "kind": each.kind,
                    "item": each.name,
                    "what": each.how,
                    "hash": now.hashes(each.kind).get(each.name),
                    # The lock file has hashes alone.
                    "isKnown": hash is None or before is not None,
                    "before": None if before is None else before.decode(errors="backslashreplace"),
                    # Written as it is kept, so that the order of members is no difference.
                    "after": None if after is None else canonical_definition(after).decode(errors="backslashreplace"),
                    "difference": list(each.lines),
                    "warnings": list(each.warnings),
                }
            )
    return found


def accept(target: LockTarget, entry: ServerEntry, item: str, seen: str | None) -> list[tuple[str, str, str]]:
    """Lock an item as the server offers it now, if it still has the hash that was `seen` (None: it is gone). Returns
    kind, name and how each was different."""
    # Read once: the server may list again meanwhile.
    offer = entry.offer
    assert offer is not None
    lock, content = _read(target)
    kinds = locked_kinds(target)
    before = None if lock is None else lock.server(entry.toolbox, entry.name)
    now = locked_server(entry.config, offer, kinds)
    kept = LockedServer(package=now.package, server=now.server, sandbox=now.sandbox) if before is None else before
    accepted: list[tuple[str, str, str]] = []
    store = DefinitionStore(default_folder())
    named = [
        each
        for each in described_changes((entry.toolbox, entry.name), lock, offer, {}, store.known, kinds)
        if each.name == item
    ]
    for each in named:
        if now.hashes(each.kind).get(each.name) == seen:
            accepted.append((each.kind, each.name, each.how))
            kept.accept(each.kind, each.name, seen)
    if named and not accepted:
        raise Unavailable(409, "this has changed again since it was shown; look at it as it is now")
    if accepted:
        _write(target.path, content, written(merged(lock, target, {(entry.toolbox, entry.name): kept})))
        store.keep(each for kind in kinds for each in lockable(offer, kind).values())
    return accepted


def _read(target: LockTarget) -> tuple[LockFile | None, bytes | None]:
    try:
        content = _content(target.path)
        return None if content is None else parse_lock(content, target), content
    except (OSError, ConfigError) as error:
        raise Unavailable(500, f"the lock file cannot be used: {error}") from None


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: str, expected: bytes | None, content: bytes) -> None:
    def check() -> None:
        if _content(path) != expected:
            raise Unavailable(409, "the lock file has changed meanwhile; look again")

    try:
        replace_whole(path, content, mode=LOCK_FILE_MODE, is_durable=True, keeps_mode=True, check=check)
    except OSError as error:
        raise Unavailable(500, f"the lock file cannot be written: {error.strerror}") from None
