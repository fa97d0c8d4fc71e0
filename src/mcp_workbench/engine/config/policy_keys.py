"""The members of `policy` and `limits`: who may do what, and how much.

Loaded only for a file that has them. Every mistake is reported, not only the first: a policy that is partly in effect
is worse than none, so a file with a mistake in it is refused as a whole.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_workbench.engine.config.keys import field_of
from mcp_workbench.engine.config.kinds import Boolean, Choice, Kind, Schema, Seconds, Text, Texts, Whole
from mcp_workbench.engine.config.mappings import Pairs
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.model import LimitRule, PolicyRule
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader

# In the worst case, each call checks all of them; policies written by hand have a few dozen.
MOST_RULES: Final = 1000
THEN: Final = ("allow", "ask", "deny", "hide")
DEFAULT_HINT: Final = 'end the policy with {"then": "deny"}, or {"then": "allow"} where everything else is allowed'


class Patterns(Texts):
    """Globs of paths with a limited number of parts; the last part may contain slashes."""

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
    """JSON Pointers, and globs that the values must match."""

    __slots__ = ()
    example = '{"/path": "/home/me/*"}'

    def expected_name(self, name: str) -> str | None:
        return None if name == "" or name.startswith("/") else "a JSON Pointer such as `/path`"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        return Text("a glob, as a string", empty=True).read(value, path, reader)

    def schema(self) -> Schema:
        return {"type": "object", "propertyNames": {"pattern": "^(/|$)"}, "additionalProperties": {"type": "string"}}


WHO: Final = Patterns("alice")
WHEN: Final = Members(
    ("readOnly", Boolean(), "Whether the tool is annotated as read-only."),
    ("destructive", Boolean(), "Whether the tool may be destructive: yes, unless its annotations say otherwise."),
    ("openWorld", Boolean(), "Whether the tool reaches external systems: yes, unless its annotations say otherwise."),
    ("arguments", Pointers(), "JSON Pointers into the arguments, and globs that the values there must match."),
)


class Conditions(Kind[dict[str, Any]]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> dict[str, Any] | None:
        return WHEN.read_object(value, path, reader, 'an object such as `{"destructive": true}`')

    def schema(self) -> Schema:
        return WHEN.schema()


_PATHS: Final = Patterns("toolbox/server/name")
RULE: Final = Members(
    ("who", WHO, "Globs of principals, and `group:` with a glob of groups. If unset, everyone."),
    ("tools", _PATHS, "Globs of `toolbox/server/tool`."),
    ("prompts", _PATHS, "Globs of `toolbox/server/prompt`."),
    ("resources", _PATHS, "Globs of `toolbox/server/uri`."),
    (
        "then",
        Choice({word: word for word in THEN}),
        "`allow`, `ask` the user first, `deny`, or `hide` as if it did not exist.",
    ),
    ("when", Conditions(), "What else must hold."),
)
LIMIT: Final = Members(
    ("who", WHO, "Globs of principals, and `group:` with a glob of groups. If unset, everyone."),
    ("servers", Patterns("toolbox/server"), "Globs of `toolbox/server`."),
    ("callsInFlight", Whole("calls", 1, 100_000), "How many calls may be in flight at once."),
    ("callsPerMinute", Whole("calls", 1, 10_000_000), "How many calls may be made within a minute."),
    ("bytesPerMinute", Whole("bytes", 1, 1 << 50), "Bytes of arguments and results within a minute."),
    ("callSeconds", Seconds(), "How long a call may take, in seconds."),
)
_HINTS: Final = dict.fromkeys(WHEN.kinds, "write it inside `when`")


class Rules(Kind[tuple[Any, ...]]):
    """A list of rules, all of which are read. A mistake in one invalidates the list."""

    __slots__ = ()
    what = ""

    def read(self, value: object, path: Path, reader: Reader) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            reader.wrong(value, path, f"a list of {self.what}")
            return None
        if len(value) > MOST_RULES:
            reader.problem(path, f"found {len(value):,} entries", f"at most {MOST_RULES:,}")
            return None
        before = len(reader.problems)
        rules = tuple(self.rule(entry, (*path, number), reader) for number, entry in enumerate(value))
        return rules if len(reader.problems) == before else None

    def rule(self, entry: object, path: Path, reader: Reader) -> Any:
        """Read a rule. The result does not matter if problems have been reported."""
        raise NotImplementedError


class PolicySettings(Rules):
    __slots__ = ()
    what = "rules"

    def read(self, value: object, path: Path, reader: Reader) -> tuple[PolicyRule, ...] | None:
        rules = super().read(value, path, reader)
        if rules and not rules[-1].is_default:
            place = (*path, len(rules) - 1)
            reader.problem(place, "the last rule has conditions", "the default, which has none", hint=DEFAULT_HINT)
            return None
        return rules

    def rule(self, entry: object, path: Path, reader: Reader) -> PolicyRule | None:
        before = len(reader.problems)
        expected = 'a rule such as `{"tools": ["github/*"], "then": "ask"}`'
        found = RULE.read_object(entry, path, reader, expected, hints=_HINTS)
        if found is not None and "then" not in found:
            reader.problem(path, "found no `then`", f"one of {', '.join(map(quote, THEN))}")
        if found is None or len(reader.problems) > before:
            return None
        when = found.pop("when", {})
        rule = PolicyRule(**found, **{field_of(name): member for name, member in when.items()})
        _check_conditions(rule, path, reader)
        return rule

    def schema(self) -> Schema:
        return {"type": "array", "items": RULE.schema("then"), "maxItems": MOST_RULES}


def _check_conditions(rule: PolicyRule, path: Path, reader: Reader) -> None:
    """Report conditions that can never hold: their author believes that something is being blocked."""
    if rule.has_annotations and (rule.prompts or rule.resources):
        reader.problem((*path, "when"), "found a condition on annotations for prompts or resources", "tools alone")
    if rule.arguments and rule.resources:
        reader.problem((*path, "when"), "found a condition on arguments for resources", "tools or prompts alone")
    if rule.arguments and rule.then == "hide":
        hint = "a list has no arguments: use `deny`, or leave the arguments out"
        reader.problem((*path, "then"), "found `hide` with a condition on arguments", "another decision", hint=hint)


class LimitSettings(Rules):
    __slots__ = ()
    what = "limits"

    def rule(self, entry: object, path: Path, reader: Reader) -> LimitRule | None:
        before = len(reader.problems)
        found = LIMIT.read_object(entry, path, reader, 'a limit such as `{"who": ["*"], "callsPerMinute": 60}`')
        if found is None or len(reader.problems) > before:
            return None
        scopes = ("who", "servers")
        if not found.keys() & set(scopes):
            hint = (
                '`"who": ["*"]` limits each principal, `"servers": ["*"]` each server, both together each pair of them'
            )
            reader.problem(path, "found neither `who` nor `servers`", "at least one of them", hint=hint)
        if not found.keys() - set(scopes):
            limited = [name for name in LIMIT.kinds if name not in scopes]
            reader.problem(path, "found nothing that is limited", f"one of {', '.join(map(quote, limited))}")
        return LimitRule(**{field_of(name): member for name, member in found.items()})

    def schema(self) -> Schema:
        return {"type": "array", "items": LIMIT.schema(), "maxItems": MOST_RULES}
