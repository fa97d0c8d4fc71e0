"""The members of `policy` and `limits`: who may do what, and how much.

Read only where a file has them. Every mistake is told, not the first one alone: a policy that is half in force is worse
than none, so a file with a mistake in it is refused as a whole.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_workbench.config.kinds import Boolean, Choice, Kind, Schema, Seconds, Text, Texts, Whole
from mcp_workbench.config.mappings import Pairs
from mcp_workbench.config.model import LimitRule, PolicyRule
from mcp_workbench.config.problems import Path, quote
from mcp_workbench.config.reading import Reader

# Each is looked at for each call in the worst case; what people write by hand has some dozen.
MOST_RULES: Final = 1000
THEN: Final = ("allow", "ask", "deny", "hide")
KINDS: Final = ("tools", "prompts", "resources")
# As written in `when`, and the field.
ANNOTATIONS: Final = {"readOnly": "read_only", "destructive": "destructive", "openWorld": "open_world"}
DEFAULT_HINT: Final = 'end the policy with {"then": "deny"}, or {"then": "allow"} where everything else is allowed'


class Patterns(Texts):
    """Globs of paths with at most so many parts; the last part may hold slashes."""

    __slots__ = ("_example",)

    def __init__(self, example: str) -> None:
        super().__init__(f"a list of globs such as `{example}`")
        self._example = example

    def read(self, value: object, path: Path, reader: Reader) -> tuple[str, ...] | None:
        if value == []:
            reader.wrong(value, path, f"at least one glob such as `{self._example}`")
            return None
        return super().read(value, path, reader)

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        parts = self._example.count("/")
        if text is not None and not all(text.split("/", parts)):
            reader.wrong(value, path, f"a glob such as `{self._example}`, no part of it empty")
            return None
        return text

    def schema(self) -> Schema:
        return {**super().schema(), "minItems": 1}


class Pointers(Pairs):
    """JSON Pointers, and globs of what they lead to."""

    __slots__ = ()
    example = '{"/path": "/home/me/*"}'

    def expected_name(self, name: str) -> str | None:
        return None if name == "" or name.startswith("/") else "a JSON Pointer such as `/path`"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        return Text("a glob, as a string", empty=True).read(value, path, reader)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": "^(/|$)"},
            "additionalProperties": {"type": "string"},
        }


WHO: Final = Patterns("alice")
_PATHS: Final = Patterns("toolbox/server/name")
_RULE: Final[dict[str, Kind[Any]]] = {
    "who": WHO,
    **dict.fromkeys(KINDS, _PATHS),
    "then": Choice({word: word for word in THEN}),
}
_WHEN: Final[dict[str, Kind[Any]]] = {**dict.fromkeys(ANNOTATIONS, Boolean()), "arguments": Pointers()}
_LIMIT: Final[dict[str, tuple[str, Kind[Any]]]] = {
    "who": ("who", WHO),
    "servers": ("servers", Patterns("toolbox/server")),
    "callsInFlight": ("calls_in_flight", Whole("calls", 1, 100_000)),
    "callsPerMinute": ("calls_per_minute", Whole("calls", 1, 10_000_000)),
    "bytesPerMinute": ("bytes_per_minute", Whole("bytes", 1, 1 << 50)),
    "callSeconds": ("call_seconds", Seconds()),
}


def read_policy(value: object, path: Path, reader: Reader) -> tuple[PolicyRule, ...] | None:
    """The rules, or None after reporting every problem with them to the reader."""
    written = _entries(value, path, reader, "rules")
    if written is None:
        return None
    rules = [_rule(entry, (*path, number), reader) for number, entry in enumerate(written)]
    found = [rule for rule in rules if rule is not None]
    if len(found) < len(rules):
        return None
    if found and not found[-1].is_default:
        place = (*path, len(found) - 1)
        reader.problem(place, "the last rule has conditions", "the default, which has none", hint=DEFAULT_HINT)
        return None
    return tuple(found)


def _entries(value: object, path: Path, reader: Reader, what: str) -> list[object] | None:
    if not isinstance(value, list):
        reader.wrong(value, path, f"a list of {what}")
        return None
    if len(value) > MOST_RULES:
        reader.problem(path, f"found {len(value):,} entries", f"at most {MOST_RULES:,}")
        return None
    return value


def _rule(entry: object, path: Path, reader: Reader) -> PolicyRule | None:
    if not isinstance(entry, dict):
        reader.wrong(entry, path, 'a rule such as `{"tools": ["github/*"], "then": "ask"}`')
        return None
    before = len(reader.problems)
    found: dict[str, Any] = {}
    for name, member in entry.items():
        if name in _RULE:
            found[name] = _RULE[name].read(member, (*path, name), reader)
        elif name == "when":
            found |= _when(member, (*path, name), reader)
        else:
            hint = "write it inside `when`" if name in _WHEN else None
            reader.unknown_key((*path, name), (*_RULE, "when"), hint=hint)
    if "then" not in entry:
        reader.problem(path, "found no `then`", f"one of {', '.join(map(quote, THEN))}")
    if len(reader.problems) > before:
        return None
    rule = PolicyRule(**found)
    _check_conditions(rule, path, reader)
    return rule if len(reader.problems) == before else None


def _when(value: object, path: Path, reader: Reader) -> dict[str, Any]:
    if not isinstance(value, dict):
        reader.wrong(value, path, 'an object such as `{"destructive": true}`')
        return {}
    found: dict[str, Any] = {}
    for name, member in value.items():
        if name in _WHEN:
            found[ANNOTATIONS.get(str(name), str(name))] = _WHEN[name].read(member, (*path, name), reader)
        else:
            reader.unknown_key((*path, name), _WHEN)
    return found


def _check_conditions(rule: PolicyRule, path: Path, reader: Reader) -> None:
    """What nothing can meet is a mistake: whoever wrote it believes that something is kept from somebody."""
    if rule.has_annotations and (rule.prompts or rule.resources):
        reader.problem((*path, "when"), "found a condition on annotations for prompts or resources", "tools alone")
    if rule.arguments and rule.resources:
        reader.problem((*path, "when"), "found a condition on arguments for resources", "tools or prompts alone")
    if rule.arguments and rule.then == "hide":
        hint = "a list has no arguments: use `deny`, or leave the arguments out"
        reader.problem((*path, "then"), "found `hide` with a condition on arguments", "another decision", hint=hint)


def read_limits(value: object, path: Path, reader: Reader) -> tuple[LimitRule, ...] | None:
    """The limits, or None after reporting every problem with them to the reader."""
    written = _entries(value, path, reader, "limits")
    if written is None:
        return None
    limits = [_limit(entry, (*path, number), reader) for number, entry in enumerate(written)]
    found = [limit for limit in limits if limit is not None]
    return tuple(found) if len(found) == len(limits) else None


def _limit(entry: object, path: Path, reader: Reader) -> LimitRule | None:
    if not isinstance(entry, dict):
        reader.wrong(entry, path, 'a limit such as `{"who": ["*"], "callsPerMinute": 60}`')
        return None
    before = len(reader.problems)
    found: dict[str, Any] = {}
    for name, member in entry.items():
        if name in _LIMIT:
            field, kind = _LIMIT[name]
            found[field] = kind.read(member, (*path, name), reader)
        else:
            reader.unknown_key((*path, name), _LIMIT)
    if len(reader.problems) > before:
        return None
    if not {"who", "servers"} & found.keys():
        hint = '`"who": ["*"]` limits each principal, `"servers": ["*"]` each server, both together each pair of them'
        reader.problem(path, "found neither `who` nor `servers`", "at least one of them", hint=hint)
    if not found.keys() - {"who", "servers"}:
        reader.problem(path, "found nothing that is limited", f"one of {', '.join(map(quote, list(_LIMIT)[2:]))}")
    return LimitRule(**found) if len(reader.problems) == before else None


# ── for editors ──

_ABOUT: Final = {
    "who": "Globs of principals, and `group:` with a glob of groups. If unset, everyone.",
    "tools": "Globs of `toolbox/server/tool`.",
    "prompts": "Globs of `toolbox/server/prompt`.",
    "resources": "Globs of `toolbox/server/uri`.",
    "then": "`allow`, `ask` the user first, `deny`, or `hide` as if it did not exist.",
    "readOnly": "Whether the tool is annotated as read-only.",
    "destructive": "Whether the tool may be destructive: yes, unless its annotations say otherwise.",
    "openWorld": "Whether the tool reaches external systems: yes, unless its annotations say otherwise.",
    "arguments": "JSON Pointers into the arguments, and globs that the values there must match.",
    "servers": "Globs of `toolbox/server`.",
    "callsInFlight": "How many calls may be in flight at once.",
    "callsPerMinute": "How many calls may be made within a minute.",
    "bytesPerMinute": "Bytes of arguments and results within a minute.",
    "callSeconds": "How long a call may take, in seconds.",
}


def _described(kinds: dict[str, Kind[Any]]) -> dict[str, object]:
    return {name: {**kind.schema(), "title": _title(name), "description": _ABOUT[name]} for name, kind in kinds.items()}


def _title(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()


def policy_schema() -> Schema:
    when = {"type": "object", "properties": _described(_WHEN), "additionalProperties": False}
    rule = {
        "type": "object",
        "properties": {**_described(_RULE), "when": {**when, "title": "When", "description": "What else must hold."}},
        "required": ["then"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": rule, "maxItems": MOST_RULES}


def limits_schema() -> Schema:
    members = _described({name: kind for name, (_, kind) in _LIMIT.items()})
    limit = {"type": "object", "properties": members, "additionalProperties": False}
    return {"type": "array", "items": limit, "maxItems": MOST_RULES}
