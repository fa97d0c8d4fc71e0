"""One server of one toolbox, and what is known about its offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.structs import replace

from mcp_workbench.engine.catalog.manifests import ManifestStore, manifest_key
from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, KINDS, Definitions, Offer
from mcp_workbench.engine.config.model import ServerConfig, ServerContext
from mcp_workbench.engine.jsonrpc.messages import decode_object
from mcp_workbench.engine.protocol.handshake import ServerProfile, who
from mcp_workbench.engine.protocol.revisions import SpokenEras
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog

NO_DEFINITIONS: Final[Definitions] = {}
OWN_CONTEXT: Final = ServerContext()
# By kind and name, the reason why an item is not shown.
Withheld = Mapping[str, Mapping[str, str]]
NOTHING_WITHHELD: Final[Withheld] = {}
NO_REASONS: Final[Mapping[str, str]] = {}


Judge = Callable[["ServerEntry", Offer], Withheld]


class Manifest(Struct, frozen=True):
    """What is cached about a server."""

    offer: Offer | None
    # Whether it has ever sent requests to clients.
    asks: bool
    # Which manifest this is, in which state; empty if that is not certain.
    state: str = ""


class SignInTerm(Protocol):
    """How long the user stays signed in to a server."""

    @property
    def ends_at(self) -> float | None:
        """When the user has to sign in again, in seconds since 1970; None if that is unknown."""

    def note(self) -> str:
        """The warning when that is near; "" while there is time."""


class ServerEntry:
    """A server as faces see it. Filters are applied here, so that nothing can reach a tool that they exclude.

    Several catalogues of a process may show the same entry; then its connections are shared too."""

    __slots__ = (
        "_looked_up",
        "_remembered",
        "asks",
        "catalogs",
        "changed",
        "config",
        "context",
        "ended",
        "eras",
        "failure",
        "has_resources",
        "hidden",
        "host_decisions",
        "is_live",
        "judges",
        "last_error",
        "offer",
        "per_client",
        "sign_in",
        "store",
        "stored_state",
        "task_tools",
        "toolbox",
        "tools",
        "tools_differ",
        "withheld",
    )

    def __init__(
        self, toolbox: str, config: ServerConfig, store: ManifestStore, context: ServerContext = OWN_CONTEXT
    ) -> None:
        self.toolbox = toolbox
        self.config = config
        self.context = context
        # The catalogues that show it.
        self.catalogs: list[Catalog] = []
        # Whether the offer comes from the server itself rather than from its manifest.
        self.is_live = False
        self.offer: Offer | None = None
        # Whether it declared resources. Stored, because it is checked for every result, which may link to one.
        self.has_resources = False
        # Which eras it speaks, if tried.
        self.eras = SpokenEras()
        # Whether it has sent requests to clients, in this or an earlier process.
        self.asks = False
        # Whether it keeps a user's state, so that every client with a session gets its own process.
        self.per_client = config.share == "session"
        # The tools that pass the filters, and the names of those that do not.
        self.tools: Definitions = NO_DEFINITIONS
        self.hidden: frozenset[str] = frozenset()
        # Those that must be called as tasks (2025-11-25).
        self.task_tools: frozenset[str] = frozenset()
        # Each decides which items of an offer must not be shown, and why. There is one for each configuration with a
        # lock that shows this server: what any of them withholds is withheld from all.
        self.judges: tuple[Judge, ...] = ()
        # Their combined decision.
        self.withheld: Withheld = NOTHING_WITHHELD
        # What it says otherwise than when it was last listed, in words, if no lock compares it; newest last.
        self.changed: tuple[str, ...] = ()
        # Whether the last change of the tools matters to callers.
        self.tools_differ = False
        # Why the server failed permanently or cannot be started; None while it can be used.
        self.failure: DownstreamError | None = None
        # Why it was removed from the catalogue; None while it is there.
        self.ended: DownstreamError | None = None
        # The sign-in of the workbench's owner, if any.
        self.sign_in: SignInTerm | None = None
        # The last error in starting or listing it, to explain why it is missing.
        self.last_error: WorkbenchError | None = None
        # What a person decided about hosts that its sandbox refused, until we end: whether it may reach them now.
        self.host_decisions: dict[str, bool] = {}
        self.store = store
        # The manifest that has the offer, and its state; empty if that is not known.
        self.stored_state = ""
        self._looked_up = False
        # The offer that was last read from or written to disk, and `stored_state` then.
        self._remembered: tuple[Offer, str] | None = None

    def __repr__(self) -> str:
        known = (
            "unknown" if self.offer is None else f"{len(self.tools)} tools, {'live' if self.is_live else 'remembered'}"
        )
        return f"<ServerEntry {self.toolbox}/{self.name} {known}>"

    @property
    def key(self) -> str:
        """The key of its manifest, which servers that offer the same in every folder have in common."""
        common = self._common_key
        return self.key_here if self.store.depends_on_folder(common) else common

    @property
    def key_here(self) -> str:
        """The key of what was noted about it in this folder."""
        return manifest_key(self.config, self.context.folder, self.context.principal, by_folder=True)

    @property
    def _common_key(self) -> str:
        return manifest_key(self.config, self.context.folder, self.context.principal)

    @property
    def name(self) -> str:
        """The server's name in its toolbox."""
        return self.config.name

    @property
    def label(self) -> str:
        """`toolbox/server`, as errors and logs name it."""
        return f"{self.toolbox}/{self.name}"

    @property
    def trouble(self) -> WorkbenchError | None:
        """Why it cannot be used at the moment, according to the last attempt; None if it probably can."""
        return self.failure or self.last_error

    @property
    def trouble_for_all(self) -> str | None:
        """The first line of `trouble`, which any user may see. Further lines quote a process, perhaps another
        user's."""
        return None if self.trouble is None else self.trouble.message.partition("\n")[0]

    def definitions(self, kind: str) -> Definitions:
        """One of the lists, as shown to clients."""
        if kind == "tools":
            return self.tools
        every = NO_DEFINITIONS if self.offer is None else self.offer.lists.get(kind, NO_DEFINITIONS)
        withheld = self.withheld.get(kind)
        return {name: each for name, each in every.items() if name not in withheld} if withheld else every

    @property
    def instructions(self) -> str | None:
        """What the server says about itself to agents, unless it is withheld."""
        return None if self.offer is None or INSTRUCTIONS in self.withheld else self.offer.profile.instructions

    # Nothing is hidden here; `RestrictedEntry` overrides these.

    @property
    def takes_unlisted(self) -> bool:
        """Whether requests for addresses that no server lists may be sent to it."""
        return True

    @property
    def templates(self) -> Definitions:
        """The templates by which it claims addresses."""
        return self.definitions("resourceTemplates")

    def shows_resource(self, uri: str) -> bool:
        return True

    def may_show(self, kind: str, name: str) -> bool:
        """Whether an item of this name is shown if the server lists it."""
        return True

    def why_withheld(self, tool: str) -> str | None:
        """Why a tool in `hidden` is withheld; None if a filter excludes it."""
        return self.withheld.get("tools", NO_REASONS).get(tool)

    def judge_again(self) -> None:
        """Apply `judges` again after they have changed."""
        if self.offer is not None:
            self._show(self.offer)

    @property
    def capabilities(self) -> dict[str, Raw]:
        """The capabilities that the server declared; empty until they are known."""
        return {} if self.offer is None else decode_object(self.offer.profile.capabilities)

    @property
    def is_available(self) -> bool:
        """Whether it is known what it offers, and it did not fail for good."""
        return self.offer is not None and self.failure is None

    @property
    def extensions(self) -> dict[str, Raw]:
        """The extensions that the server declared."""
        return self.declared("extensions")

    def declared(self, kind: str) -> dict[str, Raw]:
        """The members of one capability that the server declared; empty if they cannot be read."""
        try:
            return decode_object(self.capabilities.get(kind, b"{}"))
        except (DecodeError, ValidationError):
            return {}

    @property
    def is_read(self) -> bool:
        """Whether the manifest need not be read: it has been, or the server's own offer is newer."""
        # Without all its variables, we cannot tell whether the manifest is this server's.
        return self._looked_up or self.offer is not None or bool(self.config.unresolved)

    @property
    def is_stored(self) -> bool:
        """Whether there is a manifest that has not been read."""
        return self.offer is None and bool(self.stored_state) and self.failure is None

    def manifest_state(self) -> str:
        """Which manifest there is, in which state; empty if there is none. Can run in any thread."""
        key = self.key
        state = self.store.state(key)
        return f"{key} {state}" if state else ""

    def note_stored(self, state: str) -> None:
        """Record that there is a manifest, in this state, unless the server has listed its own offer meanwhile."""
        if not self.is_read:
            self.stored_state = state

    def read_manifest(self) -> Manifest:
        """Read the manifest. Changes nothing, so it can run in any thread."""
        key = self.key
        before = self.store.state(key)
        offer, asks = self.store.load(key), self.store.load_asks(key)
        # Another process may have replaced it meanwhile: then it is unknown which state was read.
        is_certain = before and self.store.state(key) == before
        return Manifest(offer, asks, f"{key} {before}" if is_certain else "")

    def take_manifest(self, manifest: Manifest) -> None:
        """Use a manifest that was read, unless the server has listed its own offer in the meantime."""
        if self.is_read:
            return
        self._looked_up = True
        self.asks = self.config.ask and (self.asks or manifest.asks)
        self.stored_state = "" if manifest.offer is None else manifest.state
        if manifest.offer is not None:
            offer = self._kept_once(manifest.offer)
            self._remembered = offer, manifest.state
            self.eras = offer.profile.eras
            self._show(offer)

    def load_manifest(self) -> Offer | None:
        """The offer, from the manifest if the server has not listed its own yet. Reads from disk once."""
        if not self.is_read:
            self.take_manifest(self.read_manifest())
        return self.offer

    def on_handshake(self, profile: ServerProfile) -> None:
        """Record the server's identity and the eras it speaks."""
        before = None if self.offer is None else who(self.offer.profile.server_info)
        # A different version may speak an era that the previous one did not.
        is_another = before is not None and before != ("", "") and before != who(profile.server_info)
        self.eras = profile.eras if is_another else self.eras.updated(profile.eras)

    def learn(self, offer: Offer, *, remember: bool = True) -> frozenset[str]:
        """Record what the server offers. Returns the kinds of lists that changed."""
        offer = replace(self._kept_once(offer), profile=replace(self._widest_profile(offer.profile), eras=self.eras))
        before = {kind: self.definitions(kind) for kind in KINDS}
        self.stored_state = ""
        if not self._looked_up:
            self._looked_up = True
            self.asks = self.config.ask and (self.asks or self.store.load_asks(self.key))
        self._show(offer)
        if not self.is_live:
            if self._differs_by_folder(offer):
                self.store.save_depends_on_folder(self._common_key)
                # What is cached belongs to the other folder.
                self._remembered = None
            self.store.note_listed(self.key_here)
        self.is_live = True
        self.last_error = None
        if remember:
            self.remember()
            if offer.lists.get("skills"):
                self.store.save_has_skills(self.key)
        changed = frozenset(kind for kind in KINDS if not _same(before[kind], self.definitions(kind)))
        self.tools_differ = "tools" in changed and _differ(before["tools"], self.tools)
        return changed

    def _differs_by_folder(self, offer: Offer) -> bool:
        """Whether the same version of the server listed something else, and not in this folder."""
        cached = None if self._remembered is None else self._remembered[0]
        if (
            cached is None
            or self._common_key == self.key_here
            or who(cached.profile.server_info) != who(offer.profile.server_info)
        ):
            return False
        if _same_lists(cached, offer) or self.store.age(self.key_here) != float("inf"):
            return False
        # Not on the start-up path.
        from mcp_workbench.engine.catalog.offer_changes import lists_differ

        return lists_differ(cached, offer)

    def _kept_once(self, offer: Offer) -> Offer:
        if not self.context.principal:
            return offer
        # Only needed for other users, so not imported on the start-up path.
        from mcp_workbench.engine.catalog.shared_definitions import shared

        return shared(offer)

    def adjust(self, config: ServerConfig) -> frozenset[str]:
        """Apply new settings to a server that keeps its process. Returns the kinds of lists that changed."""
        before, self.config = self.tools, config
        self.per_client = config.share == "session"
        if self.offer is not None:
            self._show(self.offer)
        self.tools_differ = before.keys() != self.tools.keys()
        return frozenset() if _same(before, self.tools) else frozenset({"tools"})

    def _widest_profile(self, profile: ServerProfile) -> ServerProfile:
        """For a server of both eras, the profile from the modern one: only there are extensions declared."""
        before = None if self.offer is None else self.offer.profile
        if before is None or before.revision.has_handshake or not profile.revision.has_handshake:
            return profile
        return before if self.eras.modern is True else profile

    def note_asking(self) -> None:
        """Record in the cache that this server sends requests to clients, so that it is known before the next one."""
        if not self.asks and self.config.ask:
            self.asks = True
            self.store.save_asks(self.key)

    def remember(self) -> None:
        """Write the offer to disk; in a thread, if it is large.

        An equal manifest is not rewritten, so that what was computed from it stays valid."""
        offer = self.offer
        if offer is None:
            return
        if self._remembered is not None and _is_same(self._remembered[0], offer):
            state = self._remembered[1]
        else:
            key = self.key
            written = self.store.save(key, offer)
            state = f"{key} {written}" if written else ""
        # Also if both are equal, so that the older object can be freed.
        self._remembered = offer, state
        if self.offer is offer:
            self.stored_state = state

    def _show(self, offer: Offer) -> None:
        filters = self.config.tool_filters
        self.offer = offer
        self.has_resources = "resources" in self.capabilities
        self.tools = offer.tools if filters is None else _shown(offer.tools, filters)
        if self.judges or self.withheld:
            self.withheld = self._judged(offer)
            withheld = self.withheld.get("tools", NO_REASONS)
            self.tools = {name: tool for name, tool in self.tools.items() if name not in withheld}
        self.hidden = frozenset(offer.tools.keys() - self.tools.keys())
        self.task_tools = _requiring_tasks(offer) if "tasks" in self.capabilities else frozenset()

    def _judged(self, offer: Offer) -> Withheld:
        found: dict[str, dict[str, str]] = {}
        for judge in self.judges:
            for kind, reasons in judge(self, offer).items():
                found.setdefault(kind, {}).update(reasons)
        return found


def _requiring_tasks(offer: Offer) -> frozenset[str]:
    # Not on the start-up path.
    from mcp_workbench.engine.catalog.task_tools import requiring_tasks

    return requiring_tasks(offer.tools)


def _is_same(one: Offer, other: Offer) -> bool:
    """Whether two offers have equal manifests."""
    if (one.profile, one.oversized, one.transport) != (other.profile, other.oversized, other.transport):
        return False
    return _same_lists(one, other)


def _same_lists(one: Offer, other: Offer) -> bool:
    return all(_same(one.lists.get(kind, NO_DEFINITIONS), other.lists.get(kind, NO_DEFINITIONS)) for kind in KINDS)


def _same(one: Definitions, other: Definitions) -> bool:
    # Order matters: clients see it, and their prompt caches depend on it.
    return one == other and list(one) == list(other)


def _differ(before: Definitions, after: Definitions) -> bool:
    # Not on the start-up path.
    from mcp_workbench.engine.catalog.offer_changes import tools_differ

    return tools_differ(before, after)


def _shown(tools: Definitions, filters: tuple[str, ...]) -> Definitions:
    # Not on the start-up path.
    from mcp_workbench.engine.catalog.filters import is_shown

    return {name: tool for name, tool in tools.items() if is_shown(name, filters)}
