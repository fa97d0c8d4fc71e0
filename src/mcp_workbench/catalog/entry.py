"""One server of one toolbox, and its offer as far as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.structs import replace

from mcp_workbench.catalog.filters import is_shown
from mcp_workbench.catalog.manifests import ManifestStore, manifest_key
from mcp_workbench.catalog.offer import KINDS, Definitions, Offer
from mcp_workbench.config.model import ServerConfig, ServerContext
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc.messages import decode_object
from mcp_workbench.protocol.handshake import ServerProfile, who
from mcp_workbench.protocol.revisions import SpokenEras

if TYPE_CHECKING:
    from mcp_workbench.catalog.catalog import Catalog

NOTHING: Final[Definitions] = {}
OWN_CONTEXT: Final = ServerContext()
# By kind and name: why it is not shown.
Withheld = Mapping[str, Mapping[str, str]]
NOTHING_WITHHELD: Final[Withheld] = {}
NO_REASONS: Final[Mapping[str, str]] = {}


Judge = Callable[["ServerEntry", Offer], Withheld]


class Manifest(Struct, frozen=True):
    """What is remembered of a server."""

    offer: Offer | None
    # Whether it is one that asks its clients things.
    asks: bool


class SignInTerm(Protocol):
    """How long somebody is signed in to a server."""

    @property
    def ends_at(self) -> float | None:
        """When the user has to sign in again, in seconds since 1970; None where nothing is known of an end."""

    def note(self) -> str:
        """What to tell the user when that is near; "" while there is time."""


class ServerEntry:
    """What faces read of a server. Filters are applied here, so that no path leads to a tool that they exclude.

    Several catalogues of one process may show the same one; then its connections are shared too."""

    __slots__ = (
        "_looked_up",
        "_remembered",
        "asks",
        "catalogs",
        "config",
        "context",
        "ended",
        "eras",
        "failure",
        "has_resources",
        "hidden",
        "is_live",
        "judges",
        "last_error",
        "offer",
        "per_client",
        "sign_in",
        "store",
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
        # Those that show it.
        self.catalogs: list[Catalog] = []
        # The offer comes from the server itself, not from a manifest.
        self.is_live = False
        self.offer: Offer | None = None
        # Whether it declared that it has any: asked with each of its results, which may link to one.
        self.has_resources = False
        # In which eras it can be spoken to, as far as that was tried.
        self.eras = SpokenEras()
        # It has asked clients things, now or in an earlier life.
        self.asks = False
        # It keeps a person's state, so that every client with a session has one of its own.
        self.per_client = config.share == "session"
        # What filters leave of the tools, and the names they take away.
        self.tools: Definitions = NOTHING
        self.hidden: frozenset[str] = frozenset()
        # Each says what of an offer must not be shown, by kind and name, and why. There is one for each configuration
        # with a lock that shows this server: what any of them withholds is withheld from all.
        self.judges: tuple[Judge, ...] = ()
        # What they said.
        self.withheld: Withheld = NOTHING_WITHHELD
        # Whether the last change of the tools matters to whoever calls them.
        self.tools_differ = False
        # Why the server failed for good, or never can be started; None while it can be used or started.
        self.failure: DownstreamError | None = None
        # Why it is in the catalogue no more; None as long as it is.
        self.ended: DownstreamError | None = None
        # The sign-in of our own user, where there is one.
        self.sign_in: SignInTerm | None = None
        # What went wrong last when it was started or listed, for those who ask why it is missing.
        self.last_error: WorkbenchError | None = None
        self.store = store
        self._looked_up = False
        # The offer as it is on the disk, as far as we know.
        self._remembered: Offer | None = None

    def __repr__(self) -> str:
        known = (
            "unknown" if self.offer is None else f"{len(self.tools)} tools, {'live' if self.is_live else 'remembered'}"
        )
        return f"<ServerEntry {self.toolbox}/{self.name} {known}>"

    @property
    def key(self) -> str:
        """What the server is remembered under."""
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
        """Why it cannot be used right now, as far as somebody has tried; None where nothing speaks against it."""
        return self.failure or self.last_error

    @property
    def trouble_for_all(self) -> str | None:
        """The same in a line that anybody may read. Further lines quote a process, which may be another user's."""
        return None if self.trouble is None else self.trouble.message.partition("\n")[0]

    def definitions(self, kind: str) -> Definitions:
        """One of the four lists, as it is shown."""
        if kind == "tools":
            return self.tools
        every = NOTHING if self.offer is None else self.offer.lists.get(kind, NOTHING)
        withheld = self.withheld.get(kind)
        return {name: each for name, each in every.items() if name not in withheld} if withheld else every

    # Not hidden; `RestrictedEntry` overrides this.

    @property
    def takes_unlisted(self) -> bool:
        """Whether it may be asked for addresses that no server has listed."""
        return True

    @property
    def templates(self) -> Definitions:
        """The templates by which it claims addresses."""
        return self.definitions("resourceTemplates")

    def shows_resource(self, uri: str) -> bool:
        return True

    def why_withheld(self, tool: str) -> str | None:
        """Why one of `hidden` must not be used; None of one that filters leave out."""
        return self.withheld.get("tools", NO_REASONS).get(tool)

    def judge_again(self) -> None:
        """What may be shown is decided by other rules from now on."""
        if self.offer is not None:
            self._show(self.offer)

    @property
    def capabilities(self) -> dict[str, Raw]:
        """What the server said it can do; nothing while it is unknown."""
        return {} if self.offer is None else decode_object(self.offer.profile.capabilities)

    @property
    def extensions(self) -> dict[str, Raw]:
        """The extensions that the server declared; nothing where they cannot be read."""
        try:
            return decode_object(self.capabilities.get("extensions", b"{}"))
        except (DecodeError, ValidationError):
            return {}

    @property
    def is_read(self) -> bool:
        """Whether its manifest has nothing to tell any more: read already, or outdone by the server itself."""
        # A server of which something is missing is not known to be the one that is remembered.
        return self._looked_up or self.offer is not None or bool(self.config.unresolved)

    def read_manifest(self) -> Manifest:
        """What is on the disk. Changes nothing, so any thread may do it."""
        key = self.key
        return Manifest(self.store.load(key), self.store.load_asks(key))

    def take_manifest(self, manifest: Manifest) -> None:
        """Show what was read, unless the server itself has spoken meanwhile."""
        if self.is_read:
            return
        self._looked_up = True
        self.asks = self.config.ask and (self.asks or manifest.asks)
        if manifest.offer is not None:
            self._remembered = offer = self._kept_once(manifest.offer)
            self.eras = offer.profile.eras
            self._show(offer)

    def load_manifest(self) -> Offer | None:
        """The offer, from the manifest if the server itself has not spoken yet. Reads from the disk, once."""
        if not self.is_read:
            self.take_manifest(self.read_manifest())
        return self.offer

    def on_handshake(self, profile: ServerProfile) -> None:
        """The server has said who it is, and which eras it speaks."""
        before = None if self.offer is None else who(self.offer.profile.server_info)
        # Another version may speak an era that the one before did not.
        is_another = before is not None and before != ("", "") and before != who(profile.server_info)
        self.eras = profile.eras if is_another else self.eras.updated(profile.eras)

    def learn(self, offer: Offer, *, remember: bool = True) -> frozenset[str]:
        """The server said what it offers. Returns the kinds of lists that differ from what was shown before."""
        offer = replace(self._kept_once(offer), profile=replace(self._widest_profile(offer.profile), eras=self.eras))
        before = {kind: self.definitions(kind) for kind in KINDS}
        if not self._looked_up:
            self._looked_up = True
            self.asks = self.config.ask and (self.asks or self.store.load_asks(self.key))
        self._show(offer)
        self.is_live = True
        self.last_error = None
        if remember:
            self.remember()
        changed = frozenset(kind for kind in KINDS if not _same(before[kind], self.definitions(kind)))
        self.tools_differ = "tools" in changed and _differ(before["tools"], self.tools)
        return changed

    def _kept_once(self, offer: Offer) -> Offer:
        if not self.context.principal:
            return offer
        # Not on the start-up path, and not for our own user.
        from mcp_workbench.catalog.shared_definitions import shared

        return shared(offer)

    def adjust(self, config: ServerConfig) -> frozenset[str]:
        """The same server, treated otherwise from now on. Returns the kinds of lists that differ from before."""
        before, self.config = self.tools, config
        self.per_client = config.share == "session"
        if self.offer is not None:
            self._show(self.offer)
        self.tools_differ = before.keys() != self.tools.keys()
        return frozenset() if _same(before, self.tools) else frozenset({"tools"})

    def _widest_profile(self, profile: ServerProfile) -> ServerProfile:
        """How a server of both eras introduced itself in the modern one: extensions are declared only there."""
        before = None if self.offer is None else self.offer.profile
        if before is None or before.revision.has_handshake or not profile.revision.has_handshake:
            return profile
        return before if self.eras.modern is True else profile

    def note_asking(self) -> None:
        """The server asks clients things: remembered, so that it is known before it asks again."""
        if not self.asks and self.config.ask:
            self.asks = True
            self.store.save_asks(self.key)

    def remember(self) -> None:
        """Write the offer to the disk. May be done in a thread, where there is much to write.

        What is there already stays as it is, so that what was worked out from it stays valid too."""
        offer = self.offer
        if offer is None:
            return
        if self._remembered is None or not _is_same(self._remembered, offer):
            self.store.save(self.key, offer)
        # Also where both say the same: the older one would be kept for nothing.
        self._remembered = offer

    def _show(self, offer: Offer) -> None:
        filters = self.config.tool_filters
        self.offer = offer
        self.has_resources = "resources" in self.capabilities
        shown = {name: tool for name, tool in offer.tools.items() if is_shown(name, filters)} if filters else None
        self.tools = offer.tools if filters is None else shown or {}
        if self.judges or self.withheld:
            self.withheld = self._judged(offer)
            withheld = self.withheld.get("tools", NO_REASONS)
            self.tools = {name: tool for name, tool in self.tools.items() if name not in withheld}
        self.hidden = frozenset(offer.tools.keys() - self.tools.keys())

    def _judged(self, offer: Offer) -> Withheld:
        found: dict[str, dict[str, str]] = {}
        for judge in self.judges:
            for kind, reasons in judge(self, offer).items():
                found.setdefault(kind, {}).update(reasons)
        return found


def _is_same(one: Offer, other: Offer) -> bool:
    """Whether two offers are remembered in the same words."""
    if (one.profile, one.oversized, one.transport) != (other.profile, other.oversized, other.transport):
        return False
    return all(_same(one.lists.get(kind, NOTHING), other.lists.get(kind, NOTHING)) for kind in KINDS)


def _same(one: Definitions, other: Definitions) -> bool:
    # Order counts: it is what clients see, and what their prompt caches are built on.
    return one == other and list(one) == list(other)


def _differ(before: Definitions, after: Definitions) -> bool:
    # Not on the start-up path.
    from mcp_workbench.catalog.offer_changes import tools_differ

    return tools_differ(before, after)
