"""A face as one role sees it: the same face over a catalogue without the items hidden from that role.

Sits between that face and the router. Owns that decisions refer to real servers, and that changes of hidden items are
not announced. Knows nothing about who may see what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.offer import KINDS, Definitions
from mcp_workbench.engine.catalog.restricted_catalog import RestrictedCatalog, real_of
from mcp_workbench.engine.face.base import Face, Params
from mcp_workbench.engine.face.decisions import Decision, Forward, Learn, Load, Open, Reject
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.replacement import Plan


# Problems of a configuration name toolboxes and servers, which may be hidden from the role.
REJECTED: Final = (
    "the configuration file has changed, and the change is not in force because of a problem that whoever runs the "
    "workbench has to solve"
)


def restricted(face: Face, catalog: RestrictedCatalog, made: Face) -> Face:
    """The restricted form of `face`, using the face `made` over the role's catalogue."""
    made.give_notice(_without_names(face.notice))
    made.share_state_of(face)
    return cast(Face, RestrictedFace(made, catalog))


class RestrictedFace:
    """Everything not overridden here is done by the face over the restricted catalogue."""

    def __init__(self, inner: Face, catalog: RestrictedCatalog) -> None:
        self._inner = inner
        self._catalog = catalog
        # By server, the lists as of the last announced change.
        self._shown: dict[ServerEntry, dict[str, Definitions]] = {entry: _lists(entry) for entry in catalog.entries()}
        # The effect of the last change of a server, cached for all sessions that ask.
        self._last: tuple[ServerEntry | None, int, frozenset[str]] = (None, -1, frozenset())
        self._boxes = tuple(catalog.toolboxes)
        # The restricted faces for particular clients, by face.
        self._for_clients: dict[Face, RestrictedFace] = {inner: self}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def for_client(self, view: View) -> Face:
        suiting = self._inner.for_client(view)
        found = self._for_clients.get(suiting)
        if found is None:
            found = self._for_clients[suiting] = RestrictedFace(suiting, self._catalog)
        return cast(Face, found)

    def give_notice(self, notice: str | None) -> None:
        self._inner.give_notice(_without_names(notice))

    # ── decisions, with real servers ──

    def resolve_tool(self, view: View, params: Params, *, fresh: bool = False) -> Decision:
        return _real(self._inner.resolve_tool(view, params, fresh=fresh))

    def resolve_prompt(self, view: View, params: Params) -> Decision:
        return _real(self._inner.resolve_prompt(view, params))

    def resolve_resource(self, view: View, params: Params, client: Revision) -> Decision:
        return _real(self._inner.resolve_resource(view, params, client))

    def resolve_completion(self, view: View, params: Params, client: Revision) -> Decision:
        return _real(self._inner.resolve_completion(view, params, client))

    def resolve_skill(self, view: View, method: str, params: Params, client: Revision) -> Decision:
        return _real(self._inner.resolve_skill(view, method, params, client))

    def resolve_unknown(self, view: View, method: str, params: Params) -> Decision:
        return _real(self._inner.resolve_unknown(view, method, params))

    def resource_owner(self, view: View, params: Params, client: Revision) -> tuple[ServerEntry, str] | Reject:
        found = self._inner.resource_owner(view, params, client)
        return found if isinstance(found, Reject) else (real_of(found[0]), found[1])

    def sole_entry(self) -> ServerEntry | None:
        found = self._inner.sole_entry()
        return None if found is None else real_of(found)

    def entries(self, view: View) -> list[ServerEntry]:
        return _all_real(self._inner.entries(view))

    def needed(self, view: View, kind: str) -> list[ServerEntry]:
        return _all_real(self._inner.needed(view, kind))

    def needed_first(self) -> list[ServerEntry]:
        return _all_real(self._inner.needed_first())

    def awaited(self, view: View) -> list[ServerEntry]:
        return _all_real(self._inner.awaited(view))

    def listed(self, view: View, kind: str) -> list[ServerEntry]:
        return _all_real(self._inner.listed(view, kind))

    def known(self, view: View) -> list[ServerEntry]:
        return _all_real(self._inner.known(view))

    def settle_names(self, entries: Iterable[ServerEntry]) -> None:
        self._inner.settle_names(self._catalog.entry_of(entry) for entry in map(real_of, entries))

    # ── what depends on the visible toolboxes, which may change with what servers offer ──

    def tools(self, view: View) -> Sequence[bytes]:
        self._settle_boxes(view)
        return self._inner.tools(view)

    def definitions(self, view: View, kind: str) -> Sequence[bytes]:
        self._settle_boxes(view)
        return self._inner.definitions(view, kind)

    def instructions(self, view: View) -> str:
        self._settle_boxes(view)
        index = self._inner.tool_index
        if index is not None and index.is_summary_missing:
            index.summarise()
        return self._inner.instructions(view)

    def _settle_boxes(self, view: View) -> None:
        boxes = tuple(self._catalog.toolboxes)
        if boxes != self._boxes:
            self._boxes = boxes
            self._inner.__dict__.pop("two_tools", None)
        for name in [name for name in view.opened if name not in self._catalog.toolboxes]:
            del view.opened[name]

    # ── changes ──

    def announces(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        seen = self._seen_changes(entry, kinds)
        return self._inner.announces(view, self._catalog.entry_of(entry), seen) if seen else frozenset()

    def take_note(self, view: View, entry: ServerEntry, kinds: frozenset[str]) -> None:
        seen = self._seen_changes(entry, kinds)
        if seen:
            self._inner.take_note(view, self._catalog.entry_of(entry), seen)

    def announces_opening(self, view: View, toolbox: str) -> frozenset[str]:
        return self._inner.announces_opening(view, toolbox) if toolbox in self._catalog.toolboxes else frozenset()

    def announces_toolboxes(self, plan: Plan) -> frozenset[str]:
        """Empty: a new configuration creates new roles, and what changed for each is announced then."""
        return frozenset()

    def take_note_of_toolboxes(self, view: View, added: Iterable[str], removed: Iterable[str]) -> None:
        seen = [name for name in added if name in self._catalog.toolboxes]
        self._inner.take_note_of_toolboxes(view, seen, [name for name in removed if name in self._boxes])

    def _seen_changes(self, entry: ServerEntry, kinds: frozenset[str]) -> frozenset[str]:
        """Those of these kinds that changed for this role. Called for every session of the role."""
        if self._last[:2] != (entry, self._catalog.real.revision):
            before = self._shown.get(entry, {})
            seen = self._catalog.toolboxes.get(entry.toolbox, {}).get(entry.name)
            after = {} if seen is None else _lists(seen)
            hidden = self._catalog.entry_of(entry)
            seen_changes = frozenset(
                kind
                for kind in KINDS
                # Where nothing is hidden, every change that is announced counts.
                if (seen is not None and not hidden.hides(kind) and kind in before)
                or list(before.get(kind, {}).items()) != list(after.get(kind, {}).items())
            )
            if seen is None:
                self._shown.pop(entry, None)
            else:
                self._shown[entry] = after
            self._last = (entry, self._catalog.real.revision, seen_changes)
        return kinds & self._last[2]


def _without_names(notice: str | None) -> str | None:
    return None if notice is None else f"Note: {REJECTED}."


def _lists(entry: ServerEntry) -> dict[str, Definitions]:
    return {kind: entry.definitions(kind) for kind in KINDS}


def _all_real(entries: Iterable[ServerEntry]) -> list[ServerEntry]:
    return [real_of(entry) for entry in entries]


def _real(decision: Decision) -> Decision:
    """The same decision with real servers."""
    match decision:
        case Forward():
            return replace(decision, entry=real_of(decision.entry))
        case Learn():
            return replace(decision, entry=real_of(decision.entry), others=tuple(_all_real(decision.others)))
        case Open():
            return replace(decision, entries=tuple(_all_real(decision.entries)))
        case Load():
            decide = decision.decide
            return replace(decision, entries=tuple(_all_real(decision.entries)), decide=lambda: _real(decide()))
    return decision
