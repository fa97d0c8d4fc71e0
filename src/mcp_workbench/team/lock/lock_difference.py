"""The differences between the lock file and what servers offer now, and what to review in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.hidden_text import described, in_definition, texts_in
from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, SINGULAR, Offer
from mcp_workbench.team.lock.lock_file import LOCKED_KINDS, LockedServer, LockFile, definition_hash, lockable

How = Literal["new", "changed", "removed"]
# Returns a definition by its hash, if this machine has stored it.
KnownDefinition = Callable[[str], bytes | None]
MAX_SHOWN_TEXT_LENGTH: Final = 300
# Sentences that instruct the model against the user. Bounded patterns, because descriptions may be of any length.
TELLING_MODELS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:ignore|disregard|forget|override) (?:all |any |every )?(?:of )?(?:the |your |my )?"
        r"(?:previous|prior|above|earlier|other|system|safety)\b",
        r"\b(?:do not|don't|never|must not) (?:ever )?(?:tell|inform|mention|reveal|show|notify|alert|warn)"
        r"(?: this| it| that| anything)?(?: to)? (?:the |your )?(?:user|human|person|anyone|operator)\b",
        r"\bwithout (?:telling|informing|asking|notifying|alerting) (?:the |your )?(?:user|human|person)\b",
        r"\b(?:keep|hide) (?:this|it) (?:a )?(?:secret|hidden|from (?:the )?user)\b",
        # `--secret <secret>` is a placeholder.
        r"<(?:important|system|instructions?|assistant)>|(?:^|[.:\n])\s*<secret>",
        r"\b(?:your|its|their|print|reveal|show|repeat|send|include|output) (?:(?:the|own|full|whole|entire) ){0,3}"
        r"(?:system prompt|developer message)\b",
        r"\b(?:before|instead of) (?:using|calling|invoking) (?:any |all |every )?(?:other )?tools?\b",
        # "You must call X first" is common in ordinary tools; demanding it every time is not.
        r"\byou (?:must|have to|should) (?:always (?:call|invoke|use)|(?:always|also|first) "
        r"(?:read|send|include|append|copy|forward))\b",
        r"\b(?:read|open|send|include|cat)\b.{0,40}(?:id_rsa|\.ssh/|\.aws/|\.env\b)",
    )
)
MAX_SUSPICIOUS_SENTENCES: Final = 5
# How much of a text is searched; the rest is data.
MAX_SEARCHED_TEXT_LENGTH: Final = 64 * 1024
_MAX_DIFFERENCE_QUOTE: Final = 80
# Hints that restrict a tool, with the restricting value; any other value is wider. The specification's defaults:
# nothing is read-only or idempotent, everything is destructive and open, unless stated.
_NARROW_HINTS: Final = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}


# What a person should review in a definition that is new or has changed. Points out, never decides.
def hidden_characters(definition: Raw) -> Iterator[str]:
    found = in_definition(definition)
    if found:
        yield f"hidden characters: {described(found)}"


def instructions(document: object) -> Iterator[str]:
    """Sentences in any text of a definition that address the model."""
    seen: set[str] = set()
    for text in texts_in(document):
        for pattern in TELLING_MODELS:
            match = pattern.search(text[:MAX_SEARCHED_TEXT_LENGTH])
            if match is not None and match[0].lower() not in seen and len(seen) < MAX_SUSPICIOUS_SENTENCES:
                seen.add(match[0].lower())
                around = " ".join(text[max(match.start() - 20, 0) : match.end() + 20].split())
                yield f"addresses the model: “…{around[:_MAX_DIFFERENCE_QUOTE]}…”"


def taken_names(name: str, others: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """`others`: the tools of other servers, by the names of these servers."""
    for server, tools in others.items():
        own = server.rpartition("/")[2]
        if name in tools:
            yield f"has the name of a tool of `{server}`"
        elif len(own) > 2 and name.lower().startswith((f"{own}_".lower(), f"{own}-".lower(), f"{own}.".lower())):
            yield f"is named like one of the server `{server}`"


def wider_annotations(before: object, after: object) -> Iterator[str]:
    """Hints that promised something and no longer do."""
    old, new = _annotations(before), _annotations(after)
    for hint, promise in _NARROW_HINTS.items():
        if old.get(hint) is promise and new.get(hint) is not promise:
            now = str(new[hint]).lower() if hint in new else "not said"
            yield f"wider annotations: `{hint}` was {str(promise).lower()}, is {now}"


def _annotations(document: object) -> dict[str, Any]:
    found = document.get("annotations") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


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
    if locked.sandbox != now.sandbox:
        said.append(f"sandbox was `{locked.sandbox or 'guard'}`, is `{now.sandbox or 'guard'}`")
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
    return text if len(text) <= MAX_SHOWN_TEXT_LENGTH else f"{text[:MAX_SHOWN_TEXT_LENGTH]}… ({len(text)} characters)"
