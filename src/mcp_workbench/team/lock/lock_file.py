"""`workbench.lock`: what each server offered when a person reviewed it, as one hash for each definition.

Meant to be committed: names in a stable order, one definition per line, no address, no time, no secret. Owns the format
and the errors about a file that cannot be used. Knows nothing about the consequences of a difference
(`definition_lock`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, KINDS, Definitions, Offer
from mcp_workbench.engine.config.model import LockTarget, ServerConfig
from mcp_workbench.engine.portable_os import NONBLOCK
from mcp_workbench.engine.protocol.handshake import who
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.lock.packages import package_of

# 2: with `instructions`. Files of format 1 are read; a server's instructions are new to them.
LOCK_FORMAT_VERSION: Final = 2
# A hundred thousand definitions; anything larger is some other file.
MAX_LOCK_FILE_BYTES: Final = 16 * 1024 * 1024
# It is not secret: others who check out the configuration must be able to read it.
LOCK_FILE_MODE: Final = 0o644
# What a lock covers: definitions, and what else a server tells agents. Of resources only the templates, unless the
# configuration asks for more: most servers list their data as resources.
LOCKED_KINDS: Final = (*(kind for kind in KINDS if kind != "resources"), INSTRUCTIONS)
LOCKED_KINDS_WITH_RESOURCES: Final = (*KINDS, INSTRUCTIONS)
_MARKS: Final = (b"<<<<<<< ", b"=======", b">>>>>>> ")


class LockedServer(Struct, omit_defaults=True):
    # The package that was started, if it is known: `npm:@scope/name@1.2.3`.
    package: str = ""
    # What its registry says that this package contains: npm's integrity, or the hashes of PyPI's files.
    integrity: list[str] = field(default_factory=list)
    # Name and version that the server reports.
    server: str = ""
    # The profile of its sandbox, if the configuration sets one.
    sandbox: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    resourceTemplates: dict[str, str] = field(default_factory=dict)
    # The hash of an entry covers the digests of all files of a skill.
    skills: dict[str, str] = field(default_factory=dict)
    instructions: str = ""

    def hashes(self, kind: str) -> dict[str, str]:
        """The hashes of one kind, by name."""
        if kind == INSTRUCTIONS:
            return {INSTRUCTIONS: self.instructions} if self.instructions else {}
        found: dict[str, str] = getattr(self, kind)
        return found

    def accept(self, kind: str, name: str, hash: str | None) -> None:
        """Take over what an item is now; None if it is gone."""
        if kind == INSTRUCTIONS:
            self.instructions = hash or ""
        elif hash is None:
            getattr(self, kind).pop(name, None)
        else:
            getattr(self, kind)[name] = hash


class LockFile(Struct):
    version: int
    # The name of the configuration file next to it.
    config: str
    toolboxes: dict[str, dict[str, LockedServer]] = field(default_factory=dict)

    def server(self, toolbox: str, name: str) -> LockedServer | None:
        return self.toolboxes.get(toolbox, {}).get(name)


class _Versioned(Struct):
    version: int


def parse_lock(content: bytes, target: LockTarget) -> LockFile:
    """Parse a lock file. Raises `ConfigError` if it is damaged, in conflict, of a newer version, or belongs to another
    configuration."""
    path = target.path
    lines = content.split(b"\n")
    marked = next((number for number, line in enumerate(lines, 1) if line.startswith(_MARKS)), None)
    if marked is not None:
        raise ConfigError(
            f"`{path}` has conflict marks in line {marked}",
            hint="resolve the merge, then look at `mcp-workbench team lock diff`",
        )
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version > LOCK_FORMAT_VERSION:
            raise ConfigError(
                f"`{path}` was written by a newer version of the workbench (format {version})",
                hint="update the workbench",
            )
        lock = msgspec.json.decode(content, type=LockFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"`{path}` is damaged: {error}", hint=_WRITE_AGAIN) from None
    theirs = {(box, name) for box, servers in lock.toolboxes.items() for name in servers}
    if lock.config != target.config or (theirs and theirs.isdisjoint(target.places)):
        raise ConfigError(
            f"`{path}` belongs to another configuration, `{lock.config}`: it has none of these servers, or is next to "
            "another file",
            hint=_WRITE_AGAIN,
        )
    return lock


_WRITE_AGAIN: Final = "`mcp-workbench team lock` writes a new one; review it before you commit it"


def read_lock(target: LockTarget) -> LockFile | None:
    """Read the file; None if there is none. Raises `ConfigError`."""
    path = target.path
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
            content = file.read(MAX_LOCK_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}") from None
    if len(content) > MAX_LOCK_FILE_BYTES:
        raise ConfigError(f"`{path}` is larger than {MAX_LOCK_FILE_BYTES // 1024**2} MiB, too large for a lock file")
    return parse_lock(content, target)


def written(lock: LockFile) -> bytes:
    """The content of the file: each definition on its own line, in a stable order."""
    return json.dumps(msgspec.to_builtins(lock), indent=2, ensure_ascii=False, sort_keys=True).encode() + b"\n"


def locked_kinds(target: LockTarget) -> tuple[str, ...]:
    """What the lock of this configuration covers."""
    return LOCKED_KINDS_WITH_RESOURCES if target.has_resources else LOCKED_KINDS


def lockable(offer: Offer, kind: str) -> Definitions:
    """The items of one kind, as they are hashed."""
    if kind != INSTRUCTIONS:
        return offer.lists.get(kind, {})
    said = offer.profile.instructions
    return {INSTRUCTIONS: Raw(msgspec.json.encode(said))} if said else {}


def locked_server(config: ServerConfig, offer: Offer, kinds: Iterable[str] = LOCKED_KINDS) -> LockedServer:
    name, version = who(offer.profile.server_info)
    sandbox = "" if config.sandbox is None else config.sandbox.profile
    locked = LockedServer(package=package_of(config), server=f"{name} {version}".strip(), sandbox=sandbox)
    for kind in kinds:
        for item, definition in lockable(offer, kind).items():
            locked.accept(kind, item, definition_hash(definition))
    return locked


def definition_hash(definition: Raw) -> str:
    """Equal for equivalent definitions, whatever the order of their members and the white space."""
    return f"sha256:{hashlib.sha256(canonical_definition(definition)).hexdigest()}"


def canonical_definition(definition: Raw) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(definition), order="sorted")
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        # What not every parser can read is compared as written.
        return bytes(definition)


def merged(lock: LockFile | None, target: LockTarget, servers: Mapping[tuple[str, str], LockedServer]) -> LockFile:
    """The lock with these servers updated; those no longer in the configuration are left out."""
    toolboxes: dict[str, dict[str, LockedServer]] = {}
    for place in target.places:
        found = servers.get(place, None if lock is None else lock.server(*place))
        if found is not None:
            toolboxes.setdefault(place[0], {})[place[1]] = found
    return LockFile(LOCK_FORMAT_VERSION, target.config, toolboxes)
