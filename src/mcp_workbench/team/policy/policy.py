"""Who may do what: one pure function of rules and values, for lists, searches, calls, completions and reads alike.

The first rule that matches decides. What a server reports about its own tools can make a decision stricter, never
looser: a rule with a condition on annotations counts only if the decision after it is not stricter. Owns the decision;
knows nothing about how it is carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import replace

from mcp_workbench.engine.config.policy_settings import PolicyRule, Then
from mcp_workbench.engine.steps import Subject
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.policy.globs import PathGlob, fits, takes_all
from mcp_workbench.team.policy.uri_spellings import (
    MAX_PERCENT_ENCODINGS,
    bare_globs,
    globs_of_same,
    is_encoded_too_often,
    other_spellings,
)

POLICY_KINDS: Final = ("tools", "prompts", "resources")
# The kind of item by method. All other methods are matched only by rules about everything.
KIND_OF: Final = {
    "tools/call": "tools",
    "prompts/get": "prompts",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "resources/directory/read": "resources",
    "skills/get": "resources",
}
# The method by which an item in a list is judged.
METHOD_OF: Final = {
    "tools": "tools/call",
    "prompts": "prompts/get",
    "resources": "resources/read",
    "resourceTemplates": "resources/read",
    # By the address of its `SKILL.md`.
    "skills": "resources/read",
}
# If two decisions apply to one request, the stricter one counts.
STRICTNESS: Final[dict[Then, int]] = {"allow": 0, "ask": 1, "deny": 2, "hide": 3}
GROUP: Final = "group:"
KEY_RULE: Final = "key"
# Larger ones are not decoded: a rule would delay the calls of all other users.
MAX_JUDGED_ARGUMENT_BYTES: Final = 1024 * 1024
_MISSING: Final = object()


# Arguments as seen by rules: JSON Pointers to values, and globs for these values.
# Decoded only if a rule depends on them, and once. For arguments that parsers may read differently, a rule is
# undecidable.
class Undecidable(Exception):
    """Why it cannot be decided whether a rule matches."""


class JudgedArguments:
    """The arguments of one request; None matches everything."""

    __slots__ = ("_is_read", "_raw", "_value")

    def __init__(self, raw: bytes | Raw | None) -> None:
        self._raw = raw
        self._value: Any = None
        self._is_read = False

    def agree(self, wanted: dict[str, str]) -> bool:
        """Whether the value at each pointer matches its glob. Raises `Undecidable`."""
        if not wanted or self._raw is None:
            return True
        if not self._is_read:
            self._value, self._is_read = _read(bytes(self._raw)), True
        return all(_fits(glob, _at(self._value, pointer)) for pointer, glob in wanted.items())


def _read(raw: bytes) -> Any:
    if len(raw) > MAX_JUDGED_ARGUMENT_BYTES:
        raise Undecidable(f"a rule depends on the arguments, and {len(raw)} bytes of them are too many to check")
    try:
        value = json.loads(raw or b"{}", object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise Undecidable("a rule depends on the arguments, and they cannot be read") from None
    if value is not None and not isinstance(value, dict):
        # Some servers accept an object encoded as a string.
        raise Undecidable("a rule depends on the arguments, and they are not an object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # We would see the last of two, a server perhaps the first: what is judged must be what is done.
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Undecidable("a rule depends on the arguments, and one of them is given twice")
    return members


def _at(value: Any, pointer: str) -> Any:
    """The value at a JSON Pointer (RFC 6901)."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        else:
            return _MISSING
    return value


def _fits(glob: str, value: Any) -> bool:
    if value is _MISSING:
        return False
    # Values other than strings are compared in their JSON form.
    return fits(glob, value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False))


class Place(Protocol):
    """A server in its toolbox."""

    @property
    def toolbox(self) -> str: ...

    @property
    def name(self) -> str: ...


class Annotations(Struct, frozen=True):
    """What a server reports about a tool, with the defaults of the specification: the worst is assumed for missing
    hints."""

    read_only: bool = False
    destructive: bool = True
    open_world: bool = True


class PolicyDecision(Struct, frozen=True):
    """What was decided, by which rule, and why."""

    then: Then
    # `policy[3]`, counted from 0 as in `$.policy[3]` of the file; `key` for the toolboxes that a key is limited to.
    rule: str
    why: str


class Who:
    """`who` of a rule, compiled. An empty one matches everyone."""

    __slots__ = ("_groups", "_principals")

    def __init__(self, written: tuple[str, ...]) -> None:
        self._principals = tuple(glob for glob in written if not glob.startswith(GROUP))
        self._groups = tuple(glob.removeprefix(GROUP) for glob in written if glob.startswith(GROUP))

    def concerns(self, identity: Identity) -> bool:
        if not self._principals and not self._groups:
            return True
        return any(fits(glob, identity.principal) for glob in self._principals) or any(
            fits(glob, group) for glob in self._groups for group in identity.groups
        )


class Rule:
    """A rule of the configuration, compiled."""

    __slots__ = ("_bare", "_same", "_who", "name", "paths", "written")

    def __init__(self, number: int, written: PolicyRule) -> None:
        self.name = f"policy[{number}]"
        self.written = written
        self._who = Who(written.who)
        # None if it is about everything, including requests about no item.
        self.paths: dict[str, tuple[PathGlob, ...]] | None = None
        if any(patterns is not None for patterns in written.kinds.values()):
            self.paths = {kind: tuple(map(PathGlob.read, patterns or ())) for kind, patterns in written.kinds.items()}
        # Other spellings of the URIs; and for `allow`, the same without query and fragment.
        resources = () if self.paths is None else self.paths["resources"]
        self._same = _spelled(resources, globs_of_same)
        self._bare = _spelled((*resources, *self._same), bare_globs) if self.then == "allow" else ()

    @property
    def then(self) -> Then:
        return self.written.then

    def concerns(self, identity: Identity) -> bool:
        """Whether it applies to this principal."""
        return self._who.concerns(identity)

    def is_about(self, kind: str, subject: Subject, *, is_other_spelling: bool = False) -> bool:
        """Whether it applies to this item, annotations and arguments aside. `is_other_spelling`: a URI that is spelled
        differently in the request."""
        if self.written.has_annotations and kind != "tools":
            return False
        if self.written.arguments and kind not in ("tools", "prompts"):
            return False
        if self.paths is None:
            return True
        paths = self.paths.get(kind, ())
        # `allow` applies to the URI as written; all others apply to every spelling.
        if kind == "resources" and (is_other_spelling or self.then != "allow"):
            paths += self._same
        if kind == "resources" and is_other_spelling:
            paths += self._bare
        return any(path.fits(subject.toolbox, subject.server, subject.item) for path in paths)

    def looks_at_arguments(self, identity: Identity, subject: Subject, kind: str | None) -> bool:
        """Whether its decision about this item depends on the arguments."""
        if not self.written.arguments:
            return False
        return self.concerns(identity) and self.is_about(kind or KIND_OF.get(subject.method, ""), subject)

    def agrees(self, annotations: Annotations) -> bool:
        """Whether the annotations are those that this rule requires."""
        wanted = self.written
        return (
            wanted.read_only in (None, annotations.read_only)
            and wanted.destructive in (None, annotations.destructive)
            and wanted.open_world in (None, annotations.open_world)
        )

    def described(self) -> str:
        """Its conditions, for users."""
        said = [f"{kind} {', '.join(globs)}" for kind, globs in self.written.kinds.items() if globs]
        if self.written.who:
            said.insert(0, f"who {', '.join(self.written.who)}")
        said += [f"{pointer} is {glob}" for pointer, glob in self.written.arguments.items()]
        for name, wanted in (
            ("read-only", self.written.read_only),
            ("destructive", self.written.destructive),
            ("open-world", self.written.open_world),
        ):
            if wanted is not None:
                said.append(name if wanted else f"not {name}")
        return "; ".join(said) or "everything else"


def made_ready(rules: Iterable[PolicyRule]) -> tuple[Rule, ...]:
    return tuple(Rule(number, rule) for number, rule in enumerate(rules))


def _spelled(paths: Iterable[PathGlob], spell: Callable[[str], set[str]]) -> tuple[PathGlob, ...]:
    return tuple(replace(path, item=item) for path in paths for item in sorted(spell(path.item)))


NO_RULES: Final = PolicyDecision("allow", "", "there is no policy")


def decide(
    rules: Sequence[Rule],
    identity: Identity,
    subject: Subject,
    annotations: Annotations | None = None,
    arguments: bytes | Raw | None = None,
    kind: str | None = None,
) -> PolicyDecision:
    """Decide about a request. Without `arguments`, as for a list or for what a call has left behind: the best decision
    for any arguments.

    `kind` is the kind of item if the method does not determine it."""
    if identity.toolboxes is not None and not any(fits(glob, subject.toolbox) for glob in identity.toolboxes):
        return PolicyDecision("hide", KEY_RULE, f"the key is limited to toolboxes {', '.join(identity.toolboxes)}")
    if not rules:
        return NO_RULES
    kind = kind or KIND_OF.get(subject.method, "")
    decision = _first_match(rules, identity, subject, kind, annotations, arguments)
    if kind != "resources":
        return decision
    # `note://%73ecret` is `note://secret` to a server that decodes it, and something else to one that does not.
    for item in other_spellings(subject.item):
        found = _first_match(rules, identity, replace(subject, item=item), kind, is_other_spelling=True)
        if STRICTNESS[found.then] > STRICTNESS[decision.then]:
            decision = replace(found, why=f"{found.why}; the address is judged as `{item}` too")
    if STRICTNESS[decision.then] < STRICTNESS["deny"] and is_encoded_too_often(subject.item):
        return PolicyDecision(
            "deny", "policy", f"the address is percent-encoded more than {MAX_PERCENT_ENCODINGS} times"
        )
    return decision


def _first_match(
    rules: Sequence[Rule],
    identity: Identity,
    subject: Subject,
    kind: str,
    annotations: Annotations | None = None,
    arguments: bytes | Raw | None = None,
    *,
    is_other_spelling: bool = False,
) -> PolicyDecision:
    read = JudgedArguments(arguments)
    # Rules with annotations, which apply unless the decision after them is stricter.
    tightening: list[Rule] = []
    decision = PolicyDecision("deny", "policy", "no rule matches")
    for rule in rules:
        if not rule.concerns(identity) or not rule.is_about(kind, subject, is_other_spelling=is_other_spelling):
            continue
        if rule.written.has_annotations and not rule.agrees(annotations or Annotations()):
            continue
        if arguments is None and rule.written.arguments and rule.then in ("deny", "hide"):
            # It denies some calls of this item, but not the item itself.
            continue
        try:
            if not read.agree(rule.written.arguments):
                continue
        except Undecidable as error:
            # It is unknown whether it matches, and how a server would read such arguments.
            decision = PolicyDecision("deny", rule.name, str(error))
            break
        if rule.written.has_annotations:
            tightening.append(rule)
            continue
        decision = PolicyDecision(rule.then, rule.name, rule.described())
        break
    for rule in reversed(tightening):
        if STRICTNESS[rule.then] >= STRICTNESS[decision.then]:
            decision = PolicyDecision(rule.then, rule.name, rule.described())
    return decision


# ── what can be known without an item ──


def may_show(
    rules: Sequence[Rule], identity: Identity, toolbox: str, server: str, kinds: Sequence[str] = POLICY_KINDS
) -> bool:
    """Whether a server can have anything of these kinds that is visible to this principal, whatever it turns out to
    offer."""
    if identity.toolboxes is not None and not any(fits(glob, toolbox) for glob in identity.toolboxes):
        return False
    concerned = [rule for rule in rules if rule.concerns(identity)]
    return any(_may_show(concerned, kind, toolbox, server) for kind in kinds)


def _may_show(rules: Sequence[Rule], kind: str, toolbox: str, server: str) -> bool:
    for rule in rules:
        # A rule with annotations never loosens, so it makes nothing visible that would not be without it.
        if rule.written.has_annotations or not _reaches(rule, kind, toolbox, server):
            continue
        if rule.then != "hide":
            return True
        # With a condition on arguments, it hides no item.
        if not rule.written.arguments and _covers(rule, kind, toolbox, server):
            return False
    # What no rule matches is denied, and so it is shown.
    return True


def may_hide(rules: Sequence[Rule], identity: Identity, kind: str, toolbox: str, server: str) -> bool:
    """Whether something of this kind may be hidden from this principal on this server."""
    for rule in rules:
        if rule.concerns(identity) and _reaches(rule, kind, toolbox, server):
            if rule.then == "hide":
                return True
            if not rule.written.has_annotations and not rule.written.arguments and _covers(rule, kind, toolbox, server):
                return False
    return False


def _reaches(rule: Rule, kind: str, toolbox: str, server: str) -> bool:
    if rule.written.has_annotations and kind != "tools":
        return False
    if rule.written.arguments and kind == "resources":
        return False
    return rule.paths is None or any(path.reaches(toolbox, server) for path in rule.paths.get(kind, ()))


def _covers(rule: Rule, kind: str, toolbox: str, server: str) -> bool:
    """Whether it applies to everything of this kind on this server."""
    if rule.paths is None:
        return True
    return any(takes_all(path.item) and path.reaches(toolbox, server) for path in rule.paths.get(kind, ()))


# ── what a server says of its tool ──


class _Hints(Struct):
    readOnlyHint: Any = None
    destructiveHint: Any = None
    openWorldHint: Any = None


class _Annotated(Struct):
    annotations: Raw = Raw(b"null")


_decode_annotated: Final = Decoder(_Annotated).decode
_decode_hints: Final = Decoder(_Hints | None).decode


def annotations_of(definition: Raw | bytes | None) -> Annotations:
    """The annotations in a tool's definition. Hints that are not booleans are ignored."""
    try:
        hints = None if definition is None else _decode_hints(_decode_annotated(definition).annotations)
    except (DecodeError, ValidationError, RecursionError):
        hints = None
    if hints is None:
        return Annotations()
    read_only = hints.readOnlyHint is True
    return Annotations(
        read_only=read_only,
        # The specification: it is meaningful only if the tool is not read-only.
        destructive=not read_only and hints.destructiveHint is not False,
        open_world=hints.openWorldHint is not False,
    )
