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
from mcp_workbench.engine.face.kept_results import Origin
from mcp_workbench.engine.face.restricted_face import REJECTED, restricted
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.printable import one_line
from mcp_workbench.engine.steps import LOCAL, Denial, EventRecorder, GuardedRequest, Subject
from mcp_workbench.team.identity.identities import Identities, Identity
from mcp_workbench.team.policy.approval import Approvals, ApprovalStep
from mcp_workbench.team.policy.limit_step import LimitStep
from mcp_workbench.team.policy.rules_in_force import Policy, PolicyStep, Role, RoleVisibility, denied

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.server_subscriptions import Subscriber
    from mcp_workbench.engine.router.router import Router
    from mcp_workbench.engine.router.subscriptions import Subscription
    from mcp_workbench.engine.session.client_call import ClientCall
    from mcp_workbench.engine.session.parking import Parking
    from mcp_workbench.engine.session.session_registry import SessionRegistry

# Roles whose faces are kept, with everything computed for them: lists, and an index if a search was made.
MOST_ROLES: Final = 200
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
        router: Router,
        sessions: SessionRegistry,
        parking: Parking,
        approvals: Approvals,
        record: EventRecorder,
    ) -> None:
        self._face = face
        # The face of a principal if nothing is hidden from it.
        self._whole_face_of = face_of
        self._make_face = make_face
        self._router = router
        self._sessions = sessions
        self._parking = parking
        # By what is hidden, and from which catalogue.
        self._roles: OrderedDict[tuple[Role, Catalog], Face] = OrderedDict()
        self.policy = Policy(rules, identities, self._definition_of, router.tasks.handles.tool_of)
        self.approvals = approvals
        self._record = record
        # For `Gateway.steps`, which defines their order.
        self.policy_step = PolicyStep(self.policy)
        self.limit_step = LimitStep(limits, identities) if limits else None
        self.approval_step = ApprovalStep(self.policy, approvals, record) if self.policy.asks else None

    def attach(self) -> None:
        """Apply these rules from now on, also to what clients already have."""
        self.approvals.in_force = self.policy
        self._use(self.face_of, self.judge_task, self.refuse_parked, self.permits_result)
        self._end_subscriptions()

    def detach(self) -> None:
        """Allow everything again."""
        self.approvals.in_force = None
        self._use(self._whole_face_of, None, None, None)

    def _use(
        self,
        face_of: Callable[[str], Face],
        judge_task: Callable[[str, ServerEntry, str], str] | None,
        refuse_parked: Callable[[ClientCall], Denial | None] | None,
        permits_result: Callable[[str, Origin], bool] | None,
    ) -> None:
        views = self._router.views
        views.face_of = face_of
        for view in views:
            self._settle(view)
        self._router.tasks.handles.judge = judge_task
        self._parking.refuses = refuse_parked
        results = self._face.kept_results()
        if results is not None:
            results.permits = permits_result

    def reassign(self, principal: str) -> None:
        """The identity of this principal has changed."""
        for view in self._router.views:
            if self.policy.identities.of(view.principal).principal == principal:
                self._settle(view)
        self._end_subscriptions()

    def _settle(self, view: View) -> None:
        self._router.views.settle(view)
        toolboxes = view.face.catalog.toolboxes
        # These rules may hide toolboxes opened before. The removal of a toolbox may still be announced.
        for name in [name for name in view.opened if name not in toolboxes]:
            del view.opened[name]
        for name in [name for name, how in view.changed.items() if how != "removed" and name not in toolboxes]:
            del view.changed[name]

    def _end_subscriptions(self) -> None:
        """End notifications about resources that a principal may no longer read."""
        for session in self._sessions:
            self._end_forbidden(session, session.view.principal, session.subscriptions)
            for stream in session.streams.values():
                self._end_forbidden(stream, session.view.principal, stream.subscriptions)

    def _end_forbidden(self, subscriber: Subscriber, principal: str, kept: dict[str, Subscription]) -> None:
        # Each update reveals that the resource exists, and when it changes.
        forbidden = {
            uri: each for uri, each in kept.items() if not self.permits_resource(principal, each.entry, each.uri)
        }
        for uri in forbidden:
            del kept[uri]
        self._router.subscriptions.end(subscriber, forbidden)

    def approve(self, id: str, seconds: float | None, *, only_shows: bool, by: str) -> str | None:
        """Show our own user a waiting call, or approve it. `by`: who does. Returns its description; None if no call
        waits under this id."""
        found = self.approvals.look_at(id) if only_shows else self.approvals.approve(id, seconds)
        if found is None:
            return None
        who = found.principal or LOCAL
        line = one_line(f"{found.place} for {who}")
        if not only_shows:
            self._record(
                "approval",
                principal=who,
                peer="command line",
                item=found.place,
                decision="passed",
                reason="once" if seconds is None else f"for {seconds:g} s",
                by=by,
                digest=found.arguments_digest,
            )
            return line
        whole = found.arguments if found.whole is None else found.whole.decode(errors="backslashreplace")
        return f"{line}\n{whole}"

    # ── what principals see ──

    def face_of(self, principal: str) -> Face:
        role, whole = self.policy.role_of(principal), self._whole_face_of(principal)
        # Nothing can be hidden from it: it uses the full face, without a separate catalogue.
        if role is None:
            return whole
        key = role, whole.catalog
        face = self._roles.get(key)
        if face is None:
            face = self._roles[key] = self._face_for(whole, self.policy.identities.of(principal))
            if len(self._roles) > MOST_ROLES:
                # It is created again when needed.
                self._roles.popitem(last=False)
        self._roles.move_to_end(key)
        return face

    def unread(self, principal: str) -> list[ServerEntry]:
        """Servers whose manifests must be read before this principal can be shown anything. Callers that can wait read
        them in a thread."""
        if not self.policy.may_hide_from(principal):
            return []
        # Called with every request: whether anything is unread is known at once, the role is not.
        catalogs = (self._whole_face_of(principal).catalog, self._face.catalog)
        unread = [entry for catalog in catalogs for entry in catalog.unread(catalog.entries())]
        return unread if unread and self.policy.role_of(principal) is not None else []

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

    # ── what is kept of calls ──

    def permits_result(self, principal: str, origin: Origin) -> bool:
        """Whether a principal may still read the result of a call."""
        return self.policy.permits(_subject(principal, "tools/call", *origin))

    def judge_task(self, principal: str, entry: ServerEntry, own: str) -> str:
        return self.policy.decide(_subject(principal, "tasks/get", entry.toolbox, entry.name, own)).then

    def permits_resource(self, principal: str, entry: ServerEntry, uri: str) -> bool:
        """Whether a principal may still be notified about this resource."""
        return self.policy.permits(_subject(principal, "resources/subscribe", entry.toolbox, entry.name, uri))

    def refuse_parked(self, call: ClientCall) -> Denial | None:
        """Why a client may not resume a call that is parked for it."""
        entry, decision = call.route.entry, call.route.decision
        if entry is None or decision is None:
            return None
        # With its arguments, which the steps keep: new rules may depend on them. For a call that began without steps
        # they are gone, and then such a rule is undecidable.
        passage = call.route.passage
        body = decision.body if passage is None else passage.body
        held = GuardedRequest(
            principal=call.view.principal,
            method=call.method,
            toolbox=entry.toolbox,
            server=entry.name,
            item=decision.item,
            client=b"{}",
            session=0,
            body=body,
        )
        judged = self.policy.decide(held)
        return None if judged.then in ("allow", "ask") else denied(held, judged)

    def _definition_of(self, principal: str, toolbox: str, server: str, tool: str) -> Raw | None:
        entry = self._whole_face_of(principal).catalog.toolboxes.get(toolbox, {}).get(server)
        return None if entry is None else entry.tools.get(tool)


def _subject(principal: str, method: str, toolbox: str, server: str, item: str) -> Subject:
    return Subject(principal=principal, method=method, toolbox=toolbox, server=server, item=item)
