"""The differences between the lock file and what servers offer now, and what to review in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, SINGULAR, Offer
from mcp_workbench.team.lock.lock_file import LOCKED_KINDS, LockedServer, LockFile, definition_hash, lockable
from mcp_workbench.team.lock.suspicion import hidden_characters, instructions, taken_names, wider_annotations

How = Literal["new", "changed", "removed"]
# Returns a definition by its hash, if this machine has stored it.
KnownDefinition = Callable[[str], bytes | None]
LONGEST_SHOWN: Final = 300


class DefinitionChange(Struct, frozen=True, kw_only=True):
    """One definition that differs from the lock."""

    toolbox: str
    server: str
    kind: str
    name: str
    how: How
    # What has changed in it, as lines; empty if the previous definition is not known.
    lines: tuple[str, ...] = ()
    # What a person should review.
    warnings: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """For example `tool read`."""
        return named(self.kind, self.name)

    @property
    def where(self) -> str:
        return f"{self.toolbox}/{self.server}"


def named(kind: str, name: str, around: str = "") -> str:
    """For example `tool read`, with something `around` the name."""
    return INSTRUCTIONS if kind == INSTRUCTIONS else f"{SINGULAR[kind]} {around}{name}{around}"


def changes_of(
    locked: LockedServer | None,
    offer: Offer,
    hash_of: Callable[[str, str, Raw], str],
    kinds: Iterable[str] = LOCKED_KINDS,
) -> Iterator[tuple[str, str, How]]:
    """Kind, name and how, of every definition of these kinds that differs from the lock. `hash_of` may cache hashes."""
    for kind in kinds:
        before = {} if locked is None else locked.hashes(kind)
        now = lockable(offer, kind)
        for name, definition in now.items():
            expected = before.get(name)
            if expected is None:
                yield kind, name, "new"
            elif hash_of(kind, name, definition) != expected:
                yield kind, name, "changed"
        for name in before:
            if name not in now:
                yield kind, name, "removed"


def described_changes(
    place: tuple[str, str],
    lock: LockFile | None,
    offer: Offer,
    others: Mapping[str, Iterable[str]],
    known: KnownDefinition,
    kinds: Iterable[str] = LOCKED_KINDS,
) -> list[DefinitionChange]:
    """The same with the changes in each, for users. `others`: the tools of other servers, by `toolbox/server`."""
    locked = None if lock is None else lock.server(*place)
    found = []
    for kind, name, how in changes_of(locked, offer, lambda _, __, definition: definition_hash(definition), kinds):
        before = None if how == "new" or locked is None else known(locked.hashes(kind)[name])
        definition = lockable(offer, kind).get(name)
        found.append(
            DefinitionChange(
                toolbox=place[0],
                server=place[1],
                kind=kind,
                name=name,
                how=how,
                lines=tuple(_lines(how, before, definition)),
                warnings=() if definition is None else tuple(_warnings(kind, name, before, definition, others)),
            )
        )
    return found


def about_server(locked: LockedServer | None, now: LockedServer) -> str:
    """What has changed in the server itself; empty if nothing has."""
    if locked is None:
        return ""
    said = []
    for what, before, after in (("package", locked.package, now.package), ("version", locked.server, now.server)):
        if before != after:
            said.append(f"{what} was `{before or 'unknown'}`, is `{after or 'unknown'}`")
    return "; ".join(said)


def _warnings(
    kind: str, name: str, before: bytes | None, definition: Raw, others: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    document = _decoded(definition)
    yield from hidden_characters(definition)
    yield from instructions(document)
    if kind == "tools":
        yield from taken_names(name, others)
        if before is not None:
            yield from wider_annotations(_decoded(before), document)


def _lines(how: How, before: bytes | None, definition: Raw | None) -> Iterator[str]:
    new = {} if definition is None else _members(definition)
    if isinstance(text := None if definition is None else _decoded(definition), str):
        # Instructions are no object.
        if how == "changed" and before is not None:
            yield f"- {_shown(_decoded(before))}"
        yield f"+ {_shown(text)}"
        return
    if how == "new":
        for key in ("title", "description", "annotations"):
            if key in new:
                yield f"+ {key}: {_shown(new[key])}"
        return
    if before is None:
        if how == "changed":
            yield "what it was is not known on this machine: it was locked on another"
        return
    if how == "removed":
        return
    old = _members(before)
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key == "inputSchema":
            yield from _arguments(old.get(key), new.get(key))
            continue
        if key in old:
            yield f"- {key}: {_shown(old[key])}"
        if key in new:
            yield f"+ {key}: {_shown(new[key])}"


def _arguments(before: object, after: object) -> Iterator[str]:
    old, new = _properties(before), _properties(after)
    is_described = False
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            is_described = True
            if name in old:
                yield f"- argument {name}: {_shown(old[name])}"
            if name in new:
                yield f"+ argument {name}: {_shown(new[name])}"
    if not is_described:
        yield f"- inputSchema: {_shown(before)}"
        yield f"+ inputSchema: {_shown(after)}"


def _properties(schema: object) -> dict[str, object]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _members(definition: bytes | Raw) -> dict[str, object]:
    found = _decoded(definition)
    return found if isinstance(found, dict) else {}


def _decoded(definition: bytes | Raw) -> object:
    try:
        found: object = msgspec.json.decode(definition)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return found


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"
