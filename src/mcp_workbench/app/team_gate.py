"""The gate of one gateway: what each user sees and may do, and what is recorded of it.

Owns the order of the steps, and when the parts of `team/` exist: each is created and loaded with the first
configuration, key or user that needs it, so that without any of them nothing of `team/` is imported. Knows nothing
about how a decision is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.face.gate import Gate

if TYPE_CHECKING:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.app.saved_tokens import SavedTokens
    from mcp_workbench.app.users import UserFaces
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.config.model import WorkbenchConfig
    from mcp_workbench.engine.config.program_settings import ProgramWrites
    from mcp_workbench.engine.face.base import Face
    from mcp_workbench.engine.steps import Denial, EventKind, EventRecorder, Step, Subject, Tracker
    from mcp_workbench.seeing.tracing import CallTracer
    from mcp_workbench.team.access import Access
    from mcp_workbench.team.identity.identities import Identities, Identity
    from mcp_workbench.team.oversight import Oversight
    from mcp_workbench.team.policy.approval import Approvals
    from mcp_workbench.team.policy.shared_approvals import SharedApprovals
    from mcp_workbench.team.policy.shared_counts import SharedCounts


class TeamGate(Gate):
    """Made by its gateway, whose parts it connects."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway
        self._identities: Identities | None = None
        # Only if users other than our own are served.
        self.users: UserFaces | None = None
        # Only if the configuration or a key restricts a principal.
        self.access: Access | None = None
        # Only if there is, or was, an audit or a lock file.
        self.oversight: Oversight | None = None
        # Only if there are other instances, and rules.
        self._counts: SharedCounts | None = None
        self.shared_approvals: SharedApprovals | None = None
        # Only if calls are counted.
        self._saved_tokens: SavedTokens | None = None
        # Only if traces are sent.
        self._tracer: CallTracer | None = None

    # ── what the engine asks (`Gate`) ──

    @property
    def has_rules(self) -> bool:
        return self.access is not None

    @property
    def recorder(self) -> EventRecorder | None:
        return self.record if self.oversight is not None and self.oversight.is_recording else None

    def face_of(self, principal: str, face: Face) -> Face:
        return self.whole_face_of(principal) if self.access is None else self.access.face_of(principal)

    def face_by_identity(self, principal: str, identity: object) -> Face:
        """What is shown to somebody who has proved this identity, whatever other tokens of theirs prove; None: the
        latest."""
        from mcp_workbench.team.identity.identities import Identity

        if self.access is None:
            return self.whole_face_of(principal)
        return self.access.face_of(principal, identity if isinstance(identity, Identity) else None)

    def steps(self) -> tuple[Step, ...]:
        access, oversight = self.access, self.oversight
        # The audit comes first, so that it learns of every outcome, including refusals by the others. The lock
        # comes after the policy: it discloses nothing that is hidden from a principal. Limits count only what is
        # allowed. Approval is last: the user is asked only about what would pass otherwise.
        ordered = (
            None if oversight is None else oversight.audit_step,
            None if access is None else access.policy_step,
            None if oversight is None else oversight.lock_step,
            None if access is None else access.limit_step,
            None if access is None else access.approval_step,
        )
        return tuple(step for step in ordered if step is not None)

    @property
    def tracker(self) -> Tracker | None:
        return self._gateway.runtime.figures

    @property
    def tracer(self) -> CallTracer | None:
        return self._tracer

    def on_listed(self, face: Face, tools: Sequence[bytes]) -> None:
        figures = self._gateway.runtime.figures
        if figures is None:
            return
        if self._saved_tokens is None:
            from mcp_workbench.app.saved_tokens import SavedTokens

            self._saved_tokens = SavedTokens()
        for toolbox, tokens in self._saved_tokens.of_list(face.catalog, tools):
            figures.note_saved(toolbox, tokens)

    def calls_at_once(self, toolbox: str = "", server: str = "") -> int:
        limits = self._gateway.config.limits
        if not limits:
            return super().calls_at_once()
        from mcp_workbench.team.policy.limit_step import calls_at_once

        return calls_at_once(limits, toolbox, server)

    def on_session_end(self, version: str, seconds: float) -> None:
        if (figures := self._gateway.runtime.figures) is not None:
            figures.note_session(("", ""), version, seconds)

    def refuses(self, request: Subject) -> Denial | None:
        return None if self.access is None else self.access.refuses(request)

    def trace(self, tracer: CallTracer) -> None:
        """Trace requests from now on. A trace is made of what is counted."""
        self._tracer = tracer
        self._gateway.runtime.count_calls()
        self.tell_of_steps()

    def stop_tracing(self) -> None:
        if self._tracer is not None:
            self._tracer = None
            self._gateway.runtime.stop_counting()

    def tell_of_steps(self) -> None:
        """The steps are others now."""
        for follower in self._followers:
            follower.on_steps_changed()

    def _tell_of_rules(self, principal: str | None = None) -> None:
        for follower in self._followers:
            follower.on_rules_changed(principal)

    # ── rules ──

    def restrict(self) -> None:
        """Replace the current rules by those of the configuration and of keys, if there are any."""
        former, config = self.access, self._gateway.config
        has_limits = self._identities is not None and self._identities.has_limits
        if config.policy or config.limits or has_limits or self._program_writes() != "allow":
            self.access = self._make_access(former)
        elif former is None:
            return
        else:
            self.access = None
        self._tell_of_rules()
        self.tell_of_steps()

    def _make_access(self, former: Access | None) -> Access:
        from mcp_workbench.team.access import Access

        gateway = self._gateway
        return Access(
            gateway.config.policy,
            gateway.config.limits,
            identities=self.identities(),
            face=gateway.face,
            face_of=self.whole_face_of,
            make_face=gateway.make_face,
            tool_of_task=lambda *task: gateway.router.tasks.handles.tool_of(*task),
            # Approvals and waiting calls outlive a change of the rules, and are judged by the rules of that time.
            approvals=self._make_approvals() if former is None else former.approvals,
            record=self.record,
            program_writes=self._program_writes(),
            counts=self._shared_counts(),
        )

    def _make_approvals(self) -> Approvals:
        from mcp_workbench.team.policy.approval import Approvals

        gateway, shared = self._gateway, None
        state = gateway.options.state
        if self.shared_approvals is not None:
            # Rules had gone and are back: other instances are told by the same.
            assert self.shared_approvals.approvals is not None
            return self.shared_approvals.approvals
        if state.is_shared:
            from mcp_workbench.team.policy.shared_approvals import SharedApprovals

            shared = SharedApprovals(state, gateway.decide, self._take_approvals)
        approvals = Approvals(
            on_waiting=self._take_approvals,
            in_force=lambda: None if self.access is None else self.access.policy,
            is_blind=lambda: state.is_blind,
            elsewhere=shared,
            ends_with_command=gateway.options.ends_with_command,
        )
        if shared is not None:
            shared.serve(approvals)
        self.shared_approvals = shared
        return approvals

    def _take_approvals(self) -> None:
        shared = self.shared_approvals
        self._gateway.runtime.take_approvals(self._gateway.decide, None if shared is None else shared.decide)

    def _shared_counts(self) -> SharedCounts | None:
        state = self._gateway.options.state
        if self._counts is None and state.is_shared:
            from mcp_workbench.team.policy.shared_counts import SharedCounts

            self._counts = SharedCounts(state)
        return self._counts

    def stop_counting(self) -> None:
        """Tell other instances nothing more."""
        if self._counts is not None:
            self._counts.close()

    def _program_writes(self) -> ProgramWrites:
        config = self._gateway.config
        if config.programs is None:
            return "allow"
        # Who separates tools that write from the others wants to be asked about each of them by the client.
        return "never" if config.splits_use_tool else config.programs.writes

    def status_for(self, face: Face, status: dict[str, Any]) -> dict[str, Any]:
        """The status as the principal with this face may see it."""
        return status if self.access is None else self.access.status_for(face, status)

    # ── users ──

    def identities(self) -> Identities:
        """What is known about principals besides their names; set by authentication."""
        if self._identities is None:
            from mcp_workbench.team.identity.identities import Identities

            self._identities = Identities(self._served)
            self._identities.on_change.append(self._on_identity)
        return self._identities

    def _served(self) -> Collection[str]:
        return {session.view.principal for session in self._gateway.sessions}

    def _on_identity(self, identity: Identity) -> None:
        # A key may be limited to some toolboxes even without a policy.
        if self.access is not None:
            self._tell_of_rules(identity.principal)
        elif identity.toolboxes is not None and self._gateway.is_open:
            self.restrict()

    def whole_face_of(self, principal: str) -> Face:
        """The face of a principal, before any rules."""
        gateway = self._gateway
        if principal in OWN_PRINCIPALS:
            return gateway.face
        if self.users is None:
            from mcp_workbench.app.users import UserFaces

            self.users = UserFaces(
                gateway.face,
                gateway.make_face,
                gateway.router,
                gateway.sessions,
                gateway.runtime,
                judge=lambda entries: None if self.oversight is None else self.oversight.judge(entries),
                summarise_soon=gateway.summarise_soon,
                keeping=lambda: (self.access, self.oversight),
            )
        return self.users.of(principal)

    def whole_faces(self) -> list[Face]:
        """The faces of all users, before any rules; our own user's first."""
        return [self._gateway.face, *(() if self.users is None else self.users)]

    def faces(self) -> list[Face]:
        return [*self.whole_faces(), *(() if self.access is None else self.access.faces())]

    def every_entry(self) -> list[ServerEntry]:
        return list(dict.fromkeys(entry for face in self.whole_faces() for entry in face.catalog.entries()))

    def revoke(self, principals: frozenset[str], why: str) -> None:
        """Drop everything that is kept for these. Somebody else may be given the name: nothing of its former holder is
        for them. Sign-ins stay, so that a key can be replaced; `key` warns of them."""
        if self.access is not None:
            self.access.approvals.forget(principals)
        if self.users is not None:
            self.users.revoke(principals, why)

    # ── the audit and the lock ──

    def lock_at_once(self, config: WorkbenchConfig) -> None:
        """Apply the lock before anything is shown of any server."""
        if (oversight := self._overseeing(config)) is not None:
            oversight.lock_at_once(config)

    def _overseeing(self, config: WorkbenchConfig) -> Oversight | None:
        options = self._gateway.options
        if self.oversight is None and (config.lock is not None or (config.audit and options.is_audited)):
            from mcp_workbench.team.oversight import Oversight

            self.oversight = Oversight(
                self._gateway.catalog,
                self._gateway.runtime.redactor,
                options,
                lambda principal: self.whole_face_of(principal).catalog,
                self.every_entry,
                options.state,
            )
        return self.oversight

    async def prepare(self, config: WorkbenchConfig) -> None:
        """Read from the disk what a configuration needs. Raises `ConfigError`; then nothing has changed."""
        if (oversight := self._overseeing(config)) is not None:
            await oversight.prepare(config)

    def use_prepared(self, beginning: Iterable[ServerEntry]) -> None:
        """Apply what was prepared, also to servers that are about to be shown."""
        if self.oversight is not None:
            self.oversight.use(beginning)
            self.tell_of_steps()

    def settle(self, ending: Iterable[ServerEntry]) -> None:
        """Apply the lock to the current servers of all users."""
        if self.oversight is not None:
            self.oversight.settle(ending, self.every_entry())

    def record(self, kind: EventKind, /, **fields: str | int | float | bool | None) -> None:
        """Count an event that is not a request, and record it in the audit, if there is one (`steps.EventRecorder`)."""
        if (figures := self._gateway.runtime.figures) is not None:
            place = str(fields.get("toolbox") or ""), str(fields.get("server") or "")
            figures.note_event(kind, str(fields.get("decision") or ""), place if kind == "sign_in" else ("", ""))
        if self.oversight is not None:
            self.oversight.record(kind, **fields)
