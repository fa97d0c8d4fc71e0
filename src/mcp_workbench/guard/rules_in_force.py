"""The rules in force, for everybody who asks about them: the step around requests, lists, and what is kept of calls.

Owns which rules these are and what is known of who asks; the decision itself is `policy.decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.config.model import PolicyRule
from mcp_workbench.guard import policy
from mcp_workbench.guard.identities import Identities, Identity, identity_in
from mcp_workbench.guard.policy import PolicyDecision, annotations_of
from mcp_workbench.protocol.constants import RESOURCE_NOT_FOUND
from mcp_workbench.steps import Denial, GuardedRequest, Outcome, Pass, Subject

# In the range that JSON-RPC leaves to implementations, and used by no revision of MCP.
FORBIDDEN: Final = -32010
# How the methods about tasks begin: a task is judged as the tool that it came from.
TASKS: Final = "tasks/"
COMPLETION: Final = "completion/complete"
# In place of a rule, of a request that the user was asked about and said yes to.
APPROVED: Final = "approved"

# The definition of a tool as a principal's own connection lists it, by principal, toolbox, server and name.
DefinitionOf = Callable[[str, str, str, str], Raw | None]
# The tool that a task came from, by principal, toolbox, server and what the server calls it.
ToolOfTask = Callable[[str, str, str, str], str]


class _CallParams(Struct):
    # Not optional: msgspec takes no `Raw` in a union for what it would take alone.
    arguments: Raw = Raw(b"null")


class _Reference(Struct, frozen=True):
    type: str = ""


class _Completion(Struct):
    ref: _Reference = _Reference()


_decode_params: Final = Decoder(_CallParams).decode
_decode_completion: Final = Decoder(_Completion).decode


class Role(Struct, frozen=True):
    """Principals that see the same: those whom the same rules concern."""

    rules: tuple[str, ...]
    toolboxes: tuple[str, ...] | None


class Policy:
    def __init__(
        self, rules: Iterable[PolicyRule], identities: Identities, definition_of: DefinitionOf, tool_of_task: ToolOfTask
    ) -> None:
        self.rules = policy.made_ready(rules)
        self.identities = identities
        self._definition_of = definition_of
        self._tool_of_task = tool_of_task
        self._hides = any(rule.then == "hide" for rule in self.rules)
        # Whether any rule goes by what servers say of their tools.
        self.judges_annotations = any(rule.written.has_annotations for rule in self.rules)

    @property
    def asks(self) -> bool:
        """Whether any rule has the user asked."""
        return any(rule.then == "ask" for rule in self.rules)

    def decide(self, subject: Subject) -> PolicyDecision:
        """What becomes of a request, or of an item that somebody wants to see."""
        if not subject.toolbox:
            # About the client itself: its log level, and what it tells the servers that it uses.
            return policy.NO_RULES
        kind, arguments = None, None
        if subject.method.startswith(TASKS):
            subject = self._as_call(subject)
        elif subject.method == COMPLETION and isinstance(subject, GuardedRequest):
            kind = _completed(subject)
        elif isinstance(subject, GuardedRequest) and subject.method in ("tools/call", "prompts/get"):
            arguments = _arguments(subject)
        annotations = None
        if subject.method == "tools/call":
            definition = self._definition_of(subject.principal, subject.toolbox, subject.server, subject.item)
            annotations = annotations_of(definition)
        identity = identity_in(subject, self.identities)
        return policy.decide(self.rules, identity, subject, annotations, arguments, kind)

    def _as_call(self, subject: Subject) -> Subject:
        tool = self._tool_of_task(subject.principal, subject.toolbox, subject.server, subject.item)
        return Subject(
            principal=subject.principal,
            method="tools/call",
            toolbox=subject.toolbox,
            server=subject.server,
            # One whose tool is unknown is judged by rules about everything that a server has.
            item=tool,
        )

    def permits(self, subject: Subject) -> bool:
        """Whether what was once let through may still be had. Asking is over by then."""
        return self.decide(subject).then in ("allow", "ask")

    def may_hide_from(self, principal: str) -> bool:
        return self._hides or self.identities.of(principal).toolboxes is not None

    def role_of(self, principal: str) -> Role | None:
        """What decides about what this principal sees; None where nothing can be hidden from it."""
        identity = self.identities.of(principal)
        concerned = tuple(rule for rule in self.rules if rule.concerns(identity))
        if identity.toolboxes is None and not any(rule.then == "hide" for rule in concerned):
            return None
        return Role(tuple(rule.name for rule in concerned), identity.toolboxes)


class PolicyStep:
    """Lets pass what the policy allows (`Step`). What the user is to be asked about passes here: `ask` comes last."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.judges_definitions = policy.judges_annotations

    def check(self, request: GuardedRequest) -> Pass | Denial | None:
        if request.method == "tasks/list" and not request.item:
            # Of what it lists, each is judged (`TaskLists`). One that is passed on unread has its method for an item.
            return None
        decision = self._policy.decide(request)
        if decision.then in ("allow", "ask"):
            return Pass(decision.rule) if decision.rule else None
        return denied(request, decision)

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        """By the annotations that its server gives a tool now (`DefinitionStep`)."""
        decision = self._policy.decide(request)
        if decision.then in ("deny", "hide"):
            return denied(request, decision)
        if decision.then == "ask" and APPROVED not in rules:
            # It is on its way already, and the user is asked before that.
            text = (
                f"what the server says of `{request.item[:500]}` has changed, and it needs the user's approval now: "
                "make the same call again"
            )
            return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)
        return None

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        pass

    def identify(self, principal: str) -> Identity:
        """What is known of whoever makes the request that has just come (`IdentifyingStep`)."""
        return self._policy.identities.of(principal)

    def recall(self, identity: object) -> None:
        identities = self._policy.identities
        if isinstance(identity, Identity) and identities.of(identity.principal) != identity:
            identities.remember(identity)

    def hiding_rule(self, subject: Subject) -> str:
        """What hides an item, where that is so (`HidingStep`)."""
        decision = self._policy.decide(subject)
        return decision.rule if decision.then == "hide" else ""


def denied(subject: Subject, decision: PolicyDecision) -> Denial:
    place = f"{subject.toolbox}/{subject.server}/{subject.item}"[:500]
    if decision.then == "hide":
        # Whoever comes here has been told of it by somebody else, or has filled in a template.
        if subject.method.startswith("resources/"):
            return Denial(
                RESOURCE_NOT_FOUND,
                f"resource `{subject.item[:500]}` was not found",
                {"uri": subject.item},
                rule=decision.rule,
            )
        return Denial(FORBIDDEN, f"`{place}` is not available", rule=decision.rule)
    text = f"the policy of this workbench does not allow `{place}` ({decision.rule})"
    return Denial(FORBIDDEN, text, {"rule": decision.rule}, rule=decision.rule)


def _arguments(request: GuardedRequest) -> bytes | Raw:
    try:
        return _decode_params(request.params).arguments
    except (DecodeError, ValidationError, RecursionError):
        # A rule that depends on them cannot say.
        return b"unreadable"


def _completed(request: GuardedRequest) -> str:
    try:
        return "prompts" if _decode_completion(request.params).ref.type == "ref/prompt" else "resources"
    except (DecodeError, ValidationError, RecursionError):
        return "resources"


class RoleVisibility:
    """What a role sees (`catalog.restricted_catalog.Visibility`)."""

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
