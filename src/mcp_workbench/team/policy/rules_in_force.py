"""The current rules, for everything that depends on them: the step around requests, lists, and what is kept of calls.

Owns which rules these are and what is known about callers; the decision itself is `policy.decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.config.policy_settings import PolicyRule, Then
from mcp_workbench.engine.protocol.constants import RESOURCE_NOT_FOUND
from mcp_workbench.engine.steps import APPROVED, Denial, GuardedRequest, Outcome, Pass, Subject
from mcp_workbench.team.identity.identities import Identities, Identity, identity_in
from mcp_workbench.team.policy import policy
from mcp_workbench.team.policy.policy import PolicyDecision, annotations_of

if TYPE_CHECKING:
    from mcp_workbench.engine.config.program_settings import ProgramWrites

# In the range that JSON-RPC leaves to implementations, and used by no revision of MCP.
FORBIDDEN: Final = -32010
# The prefix of methods about tasks: a task is judged as the tool that created it.
TASK_METHODS: Final = "tasks/"
# Named where the setting of programs decides.
PROGRAM_RULE: Final = "programs.writes"
COMPLETION: Final = "completion/complete"
# Decisions and roles that are remembered; beyond this, all are made again. A decision takes about 600 bytes.
MAX_DECISIONS: Final = 4096
MAX_ROLES: Final = 4096
# Longer names and addresses are data, which hardly anybody asks for again.
MAX_REMEMBERED_CHARACTERS: Final = 500

# A tool's definition as listed by a principal's own connection, by principal, toolbox, server and name.
DefinitionOf = Callable[[str, str, str, str], Raw | None]
# The tool that created a task, by principal, toolbox, server and the server's id of the task.
ToolOfTask = Callable[[str, str, str, str], str]


class _CallParams(Struct):
    # Not optional: in a union, msgspec does not accept everything for `Raw` that it accepts for `Raw` alone.
    arguments: Raw = Raw(b"null")


class _Reference(Struct, frozen=True):
    type: str = ""


class _Completion(Struct):
    ref: _Reference = _Reference()


_decode_params: Final = Decoder(_CallParams).decode
_decode_completion: Final = Decoder(_Completion).decode


# Who, the method, the kind of item if the method does not determine it, toolbox, server and item.
_DecisionKey = tuple[Identity, str, str | None, str, str, str]


class _Known(Struct, frozen=True):
    """What was decided about an item."""

    # None if it depends on the arguments.
    decision: PolicyDecision | None
    # The definition that it was decided by.
    definition: Raw | None


class Role(Struct, frozen=True):
    """Principals that see the same items, because the same rules apply to them."""

    rules: tuple[str, ...]
    toolboxes: tuple[str, ...] | None


class Policy:
    def __init__(
        self,
        rules: Iterable[PolicyRule],
        identities: Identities,
        definition_of: DefinitionOf,
        tool_of_task: ToolOfTask,
        program_writes: ProgramWrites = "allow",
    ) -> None:
        """`program_writes`: what happens when a program calls a tool that does not say that it only reads."""
        self.rules = policy.made_ready(rules)
        self._program_writes = program_writes
        self.identities = identities
        self._definition_of = definition_of
        self._tool_of_task = tool_of_task
        # What depends on nothing but its key. Other rules are another `Policy`, and a token that was revoked, has
        # expired or was made again proves no identity or another one: nothing here outlives what it was decided by.
        self._decisions: dict[_DecisionKey, _Known] = {}
        self._roles: dict[Identity, Role | None] = {}
        # Whether any rule depends on annotations.
        self.judges_annotations = program_writes != "allow" or any(rule.written.has_annotations for rule in self.rules)

    @property
    def asks(self) -> bool:
        """Whether any rule requires asking the user."""
        return self._program_writes == "ask" or any(rule.then == "ask" for rule in self.rules)

    def decide(self, subject: Subject) -> PolicyDecision:
        """Decide about a request, or about the visibility of an item."""
        if not subject.toolbox:
            # About the client itself: its log level, and notifications to the servers that it uses.
            return policy.NO_RULES
        identity, kind, method = identity_in(subject, self.identities), None, subject.method
        # Nearly all are calls.
        if method != "tools/call":
            if method.startswith(TASK_METHODS):
                subject = self._as_call(subject)
                method = subject.method
            elif method == COMPLETION and isinstance(subject, GuardedRequest):
                kind = _completed(subject)
        definition = None
        if self.judges_annotations and method == "tools/call":
            definition = self._definition_of(subject.principal, subject.toolbox, subject.server, subject.item)
        key = identity, method, kind, subject.toolbox, subject.server, subject.item
        known = self._decisions.get(key)
        # A server that was listed again has other objects as definitions.
        if known is None or known.definition is not definition:
            known = self._remember(key, subject, identity, definition, kind)
        decision = known.decision or policy.decide(
            self.rules, identity, subject, annotations_of(definition), _arguments(subject), kind
        )
        if decision.then == "allow" and isinstance(subject, GuardedRequest) and subject.program:
            return self._within_program(decision, definition)
        return decision

    def _within_program(self, decision: PolicyDecision, definition: Raw | None) -> PolicyDecision:
        """What is allowed to an agent whose user sees each call may not be allowed to a program, which makes many."""
        if self._program_writes == "allow" or annotations_of(definition).read_only:
            return decision
        then: Then = "ask" if self._program_writes == "ask" else "deny"
        return PolicyDecision(then, PROGRAM_RULE, "a program calls a tool that does not say that it only reads")

    def _remember(
        self, key: _DecisionKey, subject: Subject, identity: Identity, definition: Raw | None, kind: str | None
    ) -> _Known:
        decision = None
        if not any(rule.looks_at_arguments(identity, subject, kind) for rule in self.rules):
            decision = policy.decide(self.rules, identity, subject, annotations_of(definition), None, kind)
        known = _Known(decision, definition)
        if len(subject.item) <= MAX_REMEMBERED_CHARACTERS:
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = known
        return known

    def _as_call(self, subject: Subject) -> Subject:
        tool = self._tool_of_task(subject.principal, subject.toolbox, subject.server, subject.item)
        return Subject(
            principal=subject.principal,
            method="tools/call",
            toolbox=subject.toolbox,
            server=subject.server,
            # A task whose tool is unknown is judged by rules about everything on a server.
            item=tool,
        )

    def role_of(self, identity: Identity) -> Role | None:
        """What determines the items that somebody with this identity sees; None if nothing can be hidden from it."""
        if identity in self._roles:
            return self._roles[identity]
        concerned = tuple(rule for rule in self.rules if rule.concerns(identity))
        role = None
        if identity.toolboxes is not None or any(rule.then == "hide" for rule in concerned):
            role = Role(tuple(rule.name for rule in concerned), identity.toolboxes)
        if len(self._roles) >= MAX_ROLES:
            self._roles.clear()
        self._roles[identity] = role
        return role


class PolicyStep:
    """Passes what the policy allows (`Step`). `ask` passes here too: the user is asked in a later step."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.judges_definitions = policy.judges_annotations

    def check(self, request: GuardedRequest) -> Pass | Denial | None:
        if request.method == "tasks/list" and not request.item:
            # Each listed task is judged (`TaskLists`). One that is passed on unread has its method as the item.
            return None
        decision = self._policy.decide(request)
        if decision.then in ("allow", "ask"):
            return Pass(decision.rule) if decision.rule else None
        return denied(request, decision)

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        """Judge by the tool's current annotations (`DefinitionStep`)."""
        decision = self._policy.decide(request)
        if decision.then in ("deny", "hide"):
            return denied(request, decision)
        if decision.then == "ask" and APPROVED not in rules:
            # It is already being sent, and the user must be asked before that.
            text = (
                f"the server's definition of `{request.item[:500]}` has changed, and it now needs the user's approval: "
                "make the same call again"
            )
            return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)
        return None

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        pass

    def identify(self, principal: str) -> Identity:
        """The identity of the caller of a request that has just arrived (`IdentifyingStep`)."""
        return self._policy.identities.of(principal)

    def recall(self, identity: object) -> None:
        identities = self._policy.identities
        if isinstance(identity, Identity) and identities.of(identity.principal) != identity:
            identities.remember(identity)

    def hiding_rule(self, subject: Subject) -> str:
        """The rule that hides an item, if any (`HidingStep`)."""
        decision = self._policy.decide(subject)
        return decision.rule if decision.then == "hide" else ""


def denied(subject: Subject, decision: PolicyDecision) -> Denial:
    place = f"{subject.toolbox}/{subject.server}/{subject.item}"[:500]
    if decision.then == "hide":
        # The client knows of it from elsewhere, or has filled in a template.
        if subject.method.startswith("resources/"):
            return Denial(
                RESOURCE_NOT_FOUND,
                f"resource `{subject.item[:500]}` was not found",
                {"uri": subject.item},
                rule=decision.rule,
                hides=True,
            )
        return Denial(FORBIDDEN, f"`{place}` is not available", rule=decision.rule, hides=True)
    text = f"the policy of this workbench does not allow `{place}` ({decision.rule})"
    return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)


def _arguments(subject: Subject) -> bytes | Raw | None:
    if not isinstance(subject, GuardedRequest) or subject.method not in ("tools/call", "prompts/get"):
        return None
    try:
        return _decode_params(subject.params).arguments
    except (DecodeError, ValidationError, RecursionError):
        # A rule that depends on them is undecidable.
        return b"unreadable"


def _completed(request: GuardedRequest) -> str:
    try:
        return "prompts" if _decode_completion(request.params).ref.type == "ref/prompt" else "resources"
    except (DecodeError, ValidationError, RecursionError):
        return "resources"


class RoleVisibility:
    """What a role sees (`engine.catalog.restricted_catalog.Visibility`)."""

    def __init__(self, policy: Policy, identity: Identity) -> None:
        self._rules = policy.rules
        self._identity = identity

    def shows(self, entry: policy.Place, kind: str, item: str, definition: Raw | None) -> bool:
        subject = Subject(
            principal=self._identity.principal,
            method=policy.METHOD_OF[kind],
            toolbox=entry.toolbox,
            server=entry.name,
            item=item,
        )
        annotations = annotations_of(definition) if kind == "tools" else None
        return policy.decide(self._rules, self._identity, subject, annotations).then != "hide"

    def may_show(self, entry: policy.Place) -> bool:
        return policy.may_show(self._rules, self._identity, entry.toolbox, entry.name)

    def may_show_tools(self, entry: policy.Place) -> bool:
        return policy.may_show(self._rules, self._identity, entry.toolbox, entry.name, ("tools",))

    def may_hide(self, entry: policy.Place, kind: str) -> bool:
        return policy.may_hide(self._rules, self._identity, kind, entry.toolbox, entry.name)
