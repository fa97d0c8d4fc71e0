"""The catalogue as one role may see it, without anything that is hidden from it.

A face over this catalogue cannot list, find, count, suggest or mention hidden items, because it never sees them. Owns
that nothing hidden is disclosed; a `Visibility` decides who may see what. Requests never use these entries: they are
for faces only, and `real_of` returns the real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, KINDS, Definitions, Offer
from mcp_workbench.engine.config.model import ToolboxConfig

# Lists of other users that are remembered as hidden or not. There are about as many as servers.
MAX_JUDGED_LISTS: Final = 256


class Visibility(Protocol):
    """What a role may see."""

    def shows(self, entry: ServerEntry, kind: str, item: str, definition: Raw | None) -> bool:
        """Whether this item is visible."""

    def may_show(self, entry: ServerEntry) -> bool:
        """Whether any item of this server could be visible, whatever it offers."""

    def may_show_tools(self, entry: ServerEntry) -> bool:
        """Whether any tool of this server can be seen, whatever it offers."""

    def may_hide(self, entry: ServerEntry, kind: str) -> bool:
        """Whether any item of this kind could be hidden on this server."""


class RestrictedEntry(ServerEntry):
    """A server without its hidden items. Everything not overridden here comes from the real entry."""

    __slots__ = ("_kept", "_offer", "_visibility", "real")

    def __init__(self, real: ServerEntry, visibility: Visibility) -> None:
        # The attributes of `ServerEntry` are deliberately not set: `__getattr__` takes them from the real entry.
        self.real = real
        self._visibility = visibility
        self._kept: dict[str, tuple[Definitions, Definitions]] = {}
        self._offer: tuple[Offer, Offer] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "tools":
            return self._visible("tools", self.real.tools)
        if name == "offer":
            return self._visible_offer()
        if name == "withheld":
            return self._visible_withheld()
        if name == "hidden":
            # What a filter or the lock leaves out: the answer would say so, and that it exists.
            return self.real.hidden & self.offer.tools.keys() if self.offer is not None else self.real.hidden
        return getattr(self.real, name)

    # Equal to the real entry, so that dictionaries keyed by server work with either.

    def __eq__(self, other: object) -> bool:
        return self.real is (other.real if isinstance(other, RestrictedEntry) else other)

    def __hash__(self) -> int:
        return hash(self.real)

    def _visible(self, kind: str, every: Definitions) -> Definitions:
        kept = self._kept.get(kind)
        # Definitions are replaced when a server lists again, and never modified.
        if kept is None or kept[0] is not every:
            shows, real = self._visibility.shows, self.real
            shown = {item: definition for item, definition in every.items() if shows(real, kind, item, definition)}
            kept = self._kept[kind] = (every, every if len(shown) == len(every) else shown)
        return kept[1]

    def _visible_offer(self) -> Offer | None:
        offer = self.real.offer
        if offer is None:
            return None
        if self._offer is None or self._offer[0] is not offer:
            self._offer = (offer, self._without_hidden(offer))
        return self._offer[1]

    def _visible_withheld(self) -> dict[str, dict[str, str]]:
        """Hidden items must not be reported as withheld either."""
        offer, shows = self.real.offer, self._visibility.shows
        return {
            kind: {
                item: why
                for item, why in reasons.items()
                # Instructions are no item that a rule could hide.
                if kind == INSTRUCTIONS
                or (offer is not None and shows(self.real, kind, item, offer.lists.get(kind, {}).get(item)))
            }
            for kind, reasons in self.real.withheld.items()
        }

    def _without_hidden(self, offer: Offer) -> Offer:
        shows, real = self._visibility.shows, self.real
        lists = {kind: self._visible(kind, every) for kind, every in offer.lists.items() if kind != "tools"}
        if "tools" in offer.lists:
            lists["tools"] = {item: each for item, each in offer.tools.items() if shows(real, "tools", item, each)}
        oversized = {
            kind: {item: size for item, size in sizes.items() if shows(real, kind, item, None)}
            for kind, sizes in offer.oversized.items()
        }
        profile = offer.profile
        if any(len(lists[kind]) < len(offer.lists[kind]) for kind in lists):
            # Servers describe their tools in prose, and we cannot tell which sentences mention hidden ones.
            profile = replace(profile, instructions=None)
        return replace(offer, profile=profile, lists=lists, oversized=oversized, left_out=())

    @property
    def hides_something(self) -> bool:
        """Whether any item of the server is hidden."""
        return any(self.hides(kind) for kind in KINDS)

    def hides(self, kind: str) -> bool:
        return len(self.definitions(kind)) < len(self.real.definitions(kind))

    @property
    def is_empty(self) -> bool:
        """Whether the server offers something, but all of it is hidden."""
        return self.hides_something and not any(self.definitions(kind) for kind in KINDS)

    def may_show(self, kind: str, name: str) -> bool:
        every = {} if self.real.offer is None else self.real.offer.lists.get(kind, {})
        return self._visibility.shows(self.real, kind, name, every.get(name))

    # ── resources, whose addresses need not be listed ──

    @property
    def templates(self) -> Definitions:
        """All templates: an address may be visible although its template is hidden."""
        return self.real.templates

    @property
    def takes_unlisted(self) -> bool:
        """False if anything is hidden: otherwise the server's answer would reveal whether a hidden address exists."""
        return not self._visibility.may_hide(self.real, "resources")

    def shows_resource(self, uri: str) -> bool:
        return self._visibility.shows(self.real, "resources", uri, None)

    # ── updates go to the real entry ──

    def take_manifest(self, manifest: Manifest) -> None:
        self.real.take_manifest(manifest)

    def note_stored(self, state: str) -> None:
        self.real.note_stored(state)


def real_of(entry: ServerEntry) -> ServerEntry:
    """The real entry, for sending requests."""
    return entry.real if isinstance(entry, RestrictedEntry) else entry


class _Unstored:
    """Stores nothing: the stored index and summaries cover the whole catalogue, including what the role may not see,
    and have the same names."""

    is_empty = False

    def load_blob(self, name: str) -> None:
        return None

    def save_blob(self, name: str, data: bytes) -> None:
        pass

    def state(self, key: str) -> str:
        return ""


class RestrictedCatalog(Catalog):
    """A catalogue without hidden items."""

    def __init__(self, real: Catalog, visibility: Visibility) -> None:
        # The attributes of `Catalog` are deliberately not set: `__getattr__` takes them from the real catalogue.
        self.real = real
        self.on_replaced = []
        self._visibility = visibility
        self._known: dict[ServerEntry, RestrictedEntry] = {}
        self._visible_for = (-1, -1)
        self._boxes: dict[str, dict[str, ServerEntry]] = {}
        # Lists of other users, and whether all of them would be hidden.
        self._judged: dict[tuple[int, ...], tuple[tuple[Definitions, ...], bool]] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "toolboxes":
            return self._toolboxes()
        if name == "store":
            return _Unstored()
        return getattr(self.real, name)

    def _toolboxes(self) -> dict[str, dict[str, ServerEntry]]:
        state = self.real.revision, self.real.first_lists
        if self._visible_for != state:
            self._visible_for = state
            real = self.real.toolboxes
            known = {entry: self.entry_of(entry) for servers in real.values() for entry in servers.values()}
            self._known = known
            boxes = {
                box: {name: known[entry] for name, entry in servers.items() if self._is_visible(known[entry])}
                for box, servers in real.items()
            }
            self._boxes = {box: dict(servers) for box, servers in boxes.items() if servers}
        return self._boxes

    @property
    def whole(self) -> Catalog:
        return self.real

    @property
    def principal(self) -> str:
        return self.real.principal

    def entry_of(self, real: ServerEntry) -> RestrictedEntry:
        return self._known.get(real) or RestrictedEntry(real, self._visibility)

    def _is_visible(self, entry: RestrictedEntry) -> bool:
        if not self._visibility.may_show(entry.real):
            return False
        return not entry.is_empty if entry.real.offer is not None else self._may_be_visible(entry.real)

    def _may_be_visible(self, unlisted: ServerEntry) -> bool:
        """Of a server that has listed nothing to this user: its toolbox would be seen, if only until it has, so what it
        lists to others decides; and where nobody knows it, whether there can be a tool of it that is not hidden. Few
        servers have anything else."""
        is_known = False
        for each in self.real.elsewhere(unlisted):
            is_known = True
            if not self._is_empty(each):
                return True
        return not is_known and self._visibility.may_show_tools(unlisted)

    def _is_empty(self, entry: ServerEntry) -> bool:
        """Whether all that a server lists to another user would be hidden here."""
        # Most users are shown the same lists, which are kept once, so most have been judged before.
        lists = tuple(entry.definitions(kind) for kind in KINDS)
        key = tuple(map(id, lists))
        if key not in self._judged:
            if len(self._judged) >= MAX_JUDGED_LISTS:
                self._judged.clear()
            # The lists are kept too: as long as they are, no other has their identity.
            self._judged[key] = lists, RestrictedEntry(entry, self._visibility).is_empty
        return self._judged[key][1]

    @property
    def described(self) -> Mapping[str, ToolboxConfig]:
        shown = self.toolboxes
        return {
            name: replace(toolbox, servers={server: toolbox.servers[server] for server in shown[name]})
            for name, toolbox in self.real.described.items()
            if name in shown
        }

    def entries(self) -> Iterator[ServerEntry]:
        for servers in self.toolboxes.values():
            yield from servers.values()

    def unread(self, entries: Iterable[ServerEntry]) -> list[ServerEntry]:
        return self.real.unread(map(real_of, entries))

    def load(self, entries: Iterable[ServerEntry]) -> None:
        self.real.load(map(real_of, entries))
