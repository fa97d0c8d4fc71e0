"""What each principal sees and may do, for one gateway: policy, limits, approvals, and the toolboxes of keys.

Created and loaded only if one of these is configured. Owns the faces of roles (principals with the same rules see the
same) and the steps that apply the rules. The rules themselves are in `team/`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.restricted_catalog import RestrictedCatalog
from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule
from mcp_workbench.engine.face.base import Face
from mcp_workbench.engine.face.restricted_face import REJECTED, restricted
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.steps import LOCAL_PRINCIPAL, Denial, EventRecorder, Subject
from mcp_workbench.team.identity.identities import Identities, Identity
from mcp_workbench.team.policy.approval import Approvals, ApprovalStep
from mcp_workbench.team.policy.approval_socket import ApprovalReply, ApprovalRequest
from mcp_workbench.team.policy.limit_step import LimitStep
from mcp_workbench.team.policy.rules_in_force import Policy, PolicyStep, Role, RoleVisibility, ToolOfTask, denied
from mcp_workbench.team.policy.shared_counts import SharedCounts

if TYPE_CHECKING:
    from mcp_workbench.engine.config.program_settings import ProgramWrites

# Roles whose faces are kept, with everything computed for them: lists, and an index if a search was made.
MAX_CACHED_ROLES: Final = 200
# The details of the problem may name what is hidden.
LOCK_PROBLEM: Final = "the lock file cannot be used"


class Access:
    """The rules of one configuration, applied."""

    def __init__(
        self,
        rules: tuple[PolicyRule, ...],
        limits: tuple[LimitRule, ...] = (),
        *,
        identities: Identities,
        face: Face,
        face_of: Callable[[str], Face],
        make_face: Callable[[Catalog], Face],
        tool_of_task: ToolOfTask,
        approvals: Approvals,
        record: EventRecorder,
        program_writes: ProgramWrites = "allow",
        counts: SharedCounts | None = None,
    ) -> None:
        self._face = face
        # The face of a principal if nothing is hidden from it.
        self._whole_face_of = face_of
        self._make_face = make_face
        # By what is hidden, and from which catalogue.
        self._roles: OrderedDict[tuple[Role, Catalog], Face] = OrderedDict()
        self.policy = Policy(rules, identities, self._definition_of, tool_of_task, program_writes)
        self.approvals = approvals
        self._record = record
        # For `TeamGate.steps`, which defines their order.
        self.policy_step = PolicyStep(self.policy)
        self.limit_step = LimitStep(limits, identities, shared=counts) if limits else None
        self.approval_step = ApprovalStep(self.policy, approvals, record) if self.policy.asks else None

    def decide(self, wanted: ApprovalRequest, *, by: str, peer: str = "command line") -> ApprovalReply:
        """Show our own user a waiting call, approve it or deny it. `by`: who does, `peer`: from where."""
        approvals, id = self.approvals, wanted.id
        if wanted.only_shows:
            found = approvals.look_at(id)
        else:
            found = approvals.deny(id, by) if wanted.denies else approvals.approve(id, wanted.seconds, by)
        if found is None:
            before = approvals.decided(id)
            return ApprovalReply(decided=None if before is None else str(before))
        who = found.principal or LOCAL_PRINCIPAL
        line = one_line(f"{found.place} for {who}")
        if wanted.only_shows:
            whole = found.arguments if found.whole is None else found.whole.decode(errors="backslashreplace")
            return ApprovalReply(f"{line}\n{whole}")
        duration = "once" if wanted.seconds is None else f"for {wanted.seconds:g} s"
        self._record(
            "approval",
            principal=who,
            peer=peer,
            item=found.place,
            rule=found.rule,
            decision="denied" if wanted.denies else "passed",
            reason=None if wanted.denies else duration,
            by=by,
            digest=found.arguments_digest,
        )
        return ApprovalReply(line)

    # ── what principals see ──

    def face_of(self, principal: str, identity: Identity | None = None) -> Face:
        """`identity`: as one token of theirs proves it, instead of the latest."""
        identity = self.policy.identities.of(principal) if identity is None else identity
        role, whole = self.policy.role_of(identity), self._whole_face_of(principal)
        # Nothing can be hidden from it: it uses the full face, without a separate catalogue.
        if role is None:
            return whole
        key = role, whole.catalog
        face = self._roles.get(key)
        if face is None:
            face = self._roles[key] = self._face_for(whole, identity)
            if len(self._roles) > MAX_CACHED_ROLES:
                # It is created again when needed.
                self._roles.popitem(last=False)
        self._roles.move_to_end(key)
        return face

    def unread(self, principal: str) -> list[ServerEntry]:
        """Servers whose manifests must be read before this principal can be shown anything. Callers that can wait read
        them in a thread."""
        policy = self.policy
        if policy.role_of(policy.identities.of(principal)) is None:
            return []
        catalogs = (self._whole_face_of(principal).catalog, self._face.catalog)
        return [entry for catalog in catalogs for entry in catalog.unread(catalog.entries())]

    def _face_for(self, whole: Face, identity: Identity) -> Face:
        # What a role sees is computed from everything that is cached, before it is shown anything.
        for face in (whole, self._face):
            face.catalog.load(face.catalog.entries())
        catalog = RestrictedCatalog(whole.catalog, RoleVisibility(self.policy, identity))
        return restricted(whole, catalog, self._make_face(catalog))

    def forget(self, catalog: Catalog) -> None:
        """No client is shown this catalogue any longer."""
        for key in [key for key in self._roles if key[1] is catalog]:
            del self._roles[key]

    def faces(self) -> Iterable[Face]:
        return list(self._roles.values())

    def status_for(self, face: Face, status: dict[str, Any]) -> dict[str, Any]:
        """The status without servers that the principal does not see, and without counts of what is hidden."""
        if face.catalog.whole is face.catalog:
            return status
        shown = face.catalog.toolboxes
        servers = []
        for row in status["servers"]:
            entry = shown.get(row["toolbox"], {}).get(row["server"])
            if entry is not None:
                tools = None if entry.offer is None else len(entry.tools)
                withheld = {kind: sorted(names) for kind, names in entry.withheld.items() if names}
                servers.append({**row, "tools": tools, "withheld": withheld})
        is_rejected = status["configuration"]["rejected"] is not None
        return {
            **status,
            "config": None,
            "configuration": {
                **status["configuration"],
                "rejected": REJECTED if is_rejected else None,
                "needsRestart": [],
            },
            "lock": None if status["lock"] is None else LOCK_PROBLEM,
            "parkedCalls": None,
            "tasks": None,
            "servers": servers,
        }

    # ── what is kept of requests ──

    def refuses(self, request: Subject) -> Denial | None:
        """Why something that was kept of a request may no longer be used (`Gate`)."""
        decision = self.policy.decide(request)
        return None if decision.then in ("allow", "ask") else denied(request, decision)

    def _definition_of(self, principal: str, toolbox: str, server: str, tool: str) -> Raw | None:
        entry = self._whole_face_of(principal).catalog.toolboxes.get(toolbox, {}).get(server)
        return None if entry is None else entry.tools.get(tool)
