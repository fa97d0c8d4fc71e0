"""The members of `policy` and `limits`: who may do what, and how much.

Loaded only for a file that has them. Every mistake is reported, not only the first: a policy that is partly in effect
is worse than none, so a file with a mistake in it is refused as a whole.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar

from mcp_workbench.engine.config.kinds import Boolean, Kind, Schema, Seconds, Text, Texts, Whole, one_of
from mcp_workbench.engine.config.mappings import Pairs
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import REQUIRED, Declared, setting

T = TypeVar("T", bound=Declared)
# What a rule of the policy decides, from the loosest to the strictest.
Then = Literal["allow", "ask", "deny", "hide"]

# In the worst case, each call checks all of them; policies written by hand have a few dozen.
MAX_POLICY_RULES: Final = 1000
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
    name_pattern = "^(/|$)"

    def expected_name(self, name: str) -> str | None:
        return None if name == "" or name.startswith("/") else "a JSON Pointer such as `/path`"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        return Text("a glob, as a string", empty=True).read(value, path, reader)


_WHO: Final = Patterns("alice")
_ITEM_PATHS: Final = Patterns("toolbox/server/name")
_ABOUT_WHO: Final = "Globs of principals, and `group:` with a glob of groups. If unset, everyone."


class Conditions(Declared, frozen=True, kw_only=True):
    """`when` of a rule: what else must hold. The first three are a server's annotations of its own tool."""

    read_only: bool | None = setting(Boolean(), "Whether the tool is annotated as read-only.")
    destructive: bool | None = setting(
        Boolean(), "Whether the tool may be destructive: yes, unless its annotations say otherwise."
    )
    open_world: bool | None = setting(
        Boolean(), "Whether the tool reaches external systems: yes, unless its annotations say otherwise."
    )
    arguments: dict[str, str] = setting(
        Pointers(), "JSON Pointers into the arguments, and globs that the values there must match.", {}, shown=None
    )


_WHEN: Final = Members(Conditions, 'an object such as `{"destructive": true}`')


class PolicyRule(Conditions, frozen=True, kw_only=True):
    """A rule of `policy`: it decides if all its conditions hold. What it does not name may be anything, and without any
    of `tools`, `prompts` and `resources` it applies to everything."""

    who: tuple[str, ...] = setting(_WHO, _ABOUT_WHO, (), shown=None)
    tools: tuple[str, ...] | None = setting(_ITEM_PATHS, "Globs of `toolbox/server/tool`.")
    prompts: tuple[str, ...] | None = setting(_ITEM_PATHS, "Globs of `toolbox/server/prompt`.")
    resources: tuple[str, ...] | None = setting(_ITEM_PATHS, "Globs of `toolbox/server/uri`.")
    then: Then = setting(
        one_of(*THEN), "`allow`, `ask` the user first, `deny`, or `hide` as if it did not exist.", REQUIRED
    )
    when = setting(_WHEN, "What else must hold.")

    @property
    def kinds(self) -> dict[str, tuple[str, ...] | None]:
        """The patterns for each kind of item."""
        return {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}

    @property
    def has_annotations(self) -> bool:
        """Whether it depends on a server's annotations of its own tool."""
        return not self.read_only is self.destructive is self.open_world is None

    @property
    def is_default(self) -> bool:
        """Whether it matches everything."""
        is_about_all = all(patterns is None for patterns in self.kinds.values())
        return is_about_all and not self.who and not self.arguments and not self.has_annotations


class LimitRule(Declared, frozen=True, kw_only=True):
    """An entry of `limits`: what each principal of `who`, each server of `servers`, or each pair of both may use."""

    who: tuple[str, ...] | None = setting(_WHO, _ABOUT_WHO)
    servers: tuple[str, ...] | None = setting(Patterns("toolbox/server"), "Globs of `toolbox/server`.")
    calls_in_flight: int | None = setting(Whole("calls", 1, 100_000), "How many calls may be in flight at once.")
    calls_per_minute: int | None = setting(Whole("calls", 1, 10_000_000), "How many calls may be made within a minute.")
    bytes_per_minute: int | None = setting(
        Whole("bytes", 1, 1 << 50), "Bytes of arguments and results within a minute."
    )
    call_seconds: float | None = setting(Seconds(), "How long a call may take, in seconds.")


class _RuleMembers(Members[PolicyRule]):
    def read(self, value: object, path: Path, reader: Reader) -> PolicyRule | None:
        before = len(reader.problems)
        found = self.read_named(value, path, reader)
        if found is not None and "then" not in found:
            reader.problem(path, "found no `then`", f"one of {', '.join(map(quote, THEN))}")
        if found is None or len(reader.problems) > before:
            return None
        when = found.pop("when", Conditions())
        rule = PolicyRule(**found, **{name: getattr(when, name) for name in Conditions.__struct_fields__})
        _check_conditions(rule, path, reader)
        return rule


class _LimitMembers(Members[LimitRule]):
    def read(self, value: object, path: Path, reader: Reader) -> LimitRule | None:
        before = len(reader.problems)
        found = self.read_fields(value, path, reader)
        return None if found is None or len(reader.problems) > before else self.made(found, value, path, reader)

    def made(self, found: dict[str, Any], value: object, path: Path, reader: Reader) -> LimitRule:
        scopes = ("who", "servers")
        if not found.keys() & set(scopes):
            hint = (
                '`"who": ["*"]` limits each principal, `"servers": ["*"]` each server, both together each pair of them'
            )
            reader.problem(path, "found neither `who` nor `servers`", "at least one of them", hint=hint)
        if not found.keys() - set(scopes):
            limited = [name for name in self.settings if name not in scopes]
            reader.problem(path, "found nothing that is limited", f"one of {', '.join(map(quote, limited))}")
        return LimitRule(**found)


def _check_conditions(rule: PolicyRule, path: Path, reader: Reader) -> None:
    """Report conditions that can never hold: their author believes that something is being blocked."""
    if rule.has_annotations and (rule.prompts or rule.resources):
        reader.problem((*path, "when"), "found a condition on annotations for prompts or resources", "tools alone")
    if rule.arguments and rule.resources:
        reader.problem((*path, "when"), "found a condition on arguments for resources", "tools or prompts alone")
    if rule.arguments and rule.then == "hide":
        hint = "a list has no arguments: use `deny`, or leave the arguments out"
        reader.problem((*path, "then"), "found `hide` with a condition on arguments", "another decision", hint=hint)


class _Rules(Kind, Generic[T]):
    """A list of rules, all of which are read. A mistake in one invalidates the list."""

    __slots__ = ("_rule", "_what")

    def __init__(self, what: str, rule: Members[T]) -> None:
        self._what = what
        self._rule = rule

    def read(self, value: object, path: Path, reader: Reader) -> tuple[T, ...] | None:
        if not isinstance(value, list):
            reader.wrong(value, path, f"a list of {self._what}")
            return None
        if len(value) > MAX_POLICY_RULES:
            reader.problem(path, f"found {len(value):,} entries", f"at most {MAX_POLICY_RULES:,}")
            return None
        before = len(reader.problems)
        rules = [self._rule.read(entry, (*path, number), reader) for number, entry in enumerate(value)]
        return tuple(rule for rule in rules if rule is not None) if len(reader.problems) == before else None

    def schema(self) -> Schema:
        return {"type": "array", "items": self._rule.schema(), "maxItems": MAX_POLICY_RULES}


class _Policy(_Rules[PolicyRule]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> tuple[PolicyRule, ...] | None:
        rules = super().read(value, path, reader)
        if rules and not rules[-1].is_default:
            place = (*path, len(rules) - 1)
            reader.problem(place, "the last rule has conditions", "the default, which has none", hint=DEFAULT_HINT)
            return None
        return rules


_IN_WHEN: Final = dict.fromkeys(Conditions.SETTINGS, "write it inside `when`")
POLICY: Final = _Policy(
    "rules", _RuleMembers(PolicyRule, 'a rule such as `{"tools": ["github/*"], "then": "ask"}`', hints=_IN_WHEN)
)
LIMITS: Final = _Rules("limits", _LimitMembers(LimitRule, 'a limit such as `{"who": ["*"], "callsPerMinute": 60}`'))
