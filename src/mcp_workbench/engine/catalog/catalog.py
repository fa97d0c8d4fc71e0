"""The catalogue: every toolbox with its servers, and what is known about what they offer.

Faces read only this. Connections report what servers list, and subscribers are notified of changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mcp_workbench.engine.catalog.entry import OWN_CONTEXT, Manifest, ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import KINDS, Offer
from mcp_workbench.engine.config.model import ServerConfig, ServerContext, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.problems import in_one_line
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.held_names import HeldNames
    from mcp_workbench.engine.catalog.replacement import Difference, Plan
    from mcp_workbench.engine.catalog.shared_definitions import DistinctOffers

log = logging.getLogger(__name__)

# The reason given to calls that were waiting for a server when it was removed.
REMOVED: Final = "the server was removed from the configuration"
CHANGED_IN_CONFIG: Final = "the server was changed in the configuration, and its previous version has stopped"

Listener = Callable[[ServerEntry, frozenset[str]], None]

# Of the definitions that have changed: in one line of the log, and in the status.
MAX_LOGGED_CHANGES: Final = 5
MAX_NAMED_CHANGES: Final = 20


class Servers:
    """All servers of this process. What is learnt about a server reaches every catalogue that shows it."""

    def __init__(self) -> None:
        # Called with a server when it asks a client something for the first time.
        self.on_asking: list[Callable[[ServerEntry], None]] = []
        # Called with a server when its tools change.
        self.on_tools: list[Callable[[ServerEntry], None]] = []
        # Called with a server and its previous offer whenever it has listed what it offers.
        self.on_learned: list[Callable[[ServerEntry, Offer | None], None]] = []
        # Called synchronously when a new configuration takes effect anywhere, so that no one sees half of a change.
        self.on_replaced: list[Callable[[Plan], None]] = []

    def entry(self, toolbox: str, config: ServerConfig, store: ManifestStore, context: ServerContext) -> ServerEntry:
        """The entry for a configured server. A catalogue that shows it must call `keep`."""
        return ServerEntry(toolbox, config, store, context)

    def keep(self, entry: ServerEntry, catalog: Catalog, context: ServerContext) -> None:
        """Record that a catalogue shows this server."""
        if catalog not in entry.catalogs:
            entry.catalogs.append(catalog)
        changed = replace(entry.context, max_definition_bytes=context.max_definition_bytes, lock=context.lock)
        if changed != entry.context and self.may_adjust(entry):
            entry.context = changed

    def release(self, entry: ServerEntry, catalog: Catalog, why: DownstreamError) -> None:
        """Record that a catalogue no longer shows this server. The last catalogue to release it ends it."""
        entry.catalogs.remove(catalog)
        if not entry.catalogs:
            entry.ended = why

    def may_adjust(self, entry: ServerEntry) -> bool:
        """Whether new settings apply to all catalogues that show it: those of the same file change together."""
        return len({catalog.path for catalog in entry.catalogs}) <= 1

    def adjust(self, entry: ServerEntry, config: ServerConfig) -> frozenset[str]:
        """Apply new settings to a server that keeps its process. Returns the kinds of lists that changed."""
        return entry.adjust(config)

    # ── reports from connections, and from attempts to connect ──

    def on_handshake(self, entry: ServerEntry, profile: ServerProfile) -> None:
        """A connection reports its server's identity and the eras it speaks."""
        entry.on_handshake(profile)

    def learn(
        self, entry: ServerEntry, offer: Offer, announced: frozenset[str] = frozenset(), *, remember: bool = True
    ) -> None:
        """A connection reports what its server offers. `announced`: the lists that the server announced as changed.

        Without `remember`, the caller has to call `entry.remember`."""
        first_time = entry.offer is None
        if self.on_learned and first_time:
            # The cached offer counts as the previous one, even if it has not been read yet.
            entry.load_manifest()
        before = entry.offer
        last_seen = before if entry.is_read else entry.read_manifest().offer
        changed = entry.learn(offer, remember=remember)
        if last_seen is not None and not entry.judges:
            _note_changes(entry, last_seen)
        if entry.failure is not None:
            entry.failure = None
            changed = frozenset(KINDS)
        for catalog in entry.catalogs:
            catalog.note_offer(entry, is_first=first_time)
        if changed or first_time:
            _notify(entry, changed)
        if first_time or "tools" in changed:
            for listener in self.on_tools:
                listener(entry)
        for on_learned in self.on_learned:
            on_learned(entry, before)
        if announced - changed:
            for catalog in entry.catalogs:
                catalog.notify_announced(entry, announced - changed)

    def withdraw(self, entry: ServerEntry, failure: DownstreamError) -> None:
        """A server failed permanently: what it offered is no longer shown."""
        if entry.failure is None:
            entry.failure = failure
            # Not a change of the tools: calls to them say that they are unavailable.
            entry.tools_differ = False
            _notify(entry, frozenset(kind for kind in KINDS if entry.definitions(kind)))
        entry.failure = failure

    def asks(self, entry: ServerEntry) -> None:
        """A connection reports that its server has asked a client something."""
        if not entry.asks and entry.config.ask:
            entry.note_asking()
            log.info(
                "[%s] asks its clients questions: from now on, each client that can answer gets its own connection",
                entry.label,
            )
            for listener in self.on_asking:
                listener(entry)

    def missed(self, entry: ServerEntry, error: WorkbenchError) -> None:
        """A server could not be started or listed. What it offered before is still shown; the error explains why."""
        entry.last_error = error

    def works(self, entry: ServerEntry) -> None:
        """A connection to the server works, even if another client's failed, so what it offers can be shown."""
        entry.last_error = None
        if entry.failure is not None:
            entry.failure = None
            entry.tools_differ = False
            _notify(entry, frozenset(kind for kind in KINDS if entry.definitions(kind)))


class Catalog:
    """All toolboxes, by name, in the order of the configuration."""

    def __init__(
        self,
        config: WorkbenchConfig,
        store: ManifestStore,
        servers: Servers | None = None,
        context: ServerContext = OWN_CONTEXT,
        *,
        beside: Catalog | None = None,
    ) -> None:
        self._config = config
        # For another user's catalogue: the workbench owner's, whose servers it shows if they are shared by everyone.
        self._beside = beside
        # Where there are other users: what servers offer to all of them; and how often a server has become known, to
        # whichever of them.
        self._offers: DistinctOffers[ServerEntry] | None = None
        self._first_lists = 0
        self.store = store
        self.servers = servers = Servers() if servers is None else servers
        self._context = context = context_of(config, context)
        # That of the client.
        self.environ = context.environ
        self.toolboxes: dict[str, dict[str, ServerEntry]] = {
            toolbox.name: {
                name: self.entry_for(toolbox.name, server, context) for name, server in toolbox.servers.items()
            }
            for toolbox in config.toolboxes.values()
        }
        self._keep_all()
        _refuse_unresolved(self.entries(), config)
        # Incremented whenever anything changes that a face may show. Faces cache what they compute by it.
        self.revision = 0
        # Whether all manifests have been read.
        self._is_read = False
        self._listeners: list[Listener] = []
        # Called when `held_names` should be saved, which may take a while.
        self.on_unsaved_names: list[Callable[[], object]] = []
        # Called when a server announces lists as changed that turn out to be equal.
        self.on_announced: list[Listener] = []
        # Called synchronously when a new configuration takes effect, so that no one sees half of a change.
        self.on_replaced: list[Callable[[Plan], None]] = []

    # ── settings ──

    @property
    def path(self) -> str:
        return self._config.path

    @property
    def described(self) -> Mapping[str, ToolboxConfig]:
        """The configuration of every toolbox."""
        return self._config.toolboxes

    def budget_of(self, toolbox: str | None) -> int | None:
        """The token budget for a result about this toolbox, or about all; None: no limit."""
        own = None if toolbox is None else self._config.toolboxes[toolbox].budget
        return (self._config.budget if own is None else own) or None

    # ── whose it is ──

    def of_user(self, principal: str) -> Catalog:
        """The catalogue of this user, with what their own connections list: servers may offer different things to
        each."""
        if self._offers is None:
            # Not on the start-up path.
            from mcp_workbench.engine.catalog.shared_definitions import DistinctOffers

            self._offers = DistinctOffers(self.entries())
        context = replace(self._context, principal=principal)
        return Catalog(self._config, self.store, self.servers, context, beside=self)

    @property
    def principal(self) -> str:
        """The user whose connections list what is in it; empty for the workbench's owner."""
        return self._context.principal

    @property
    def whole(self) -> Catalog:
        """The catalogue without restrictions; `RestrictedCatalog` overrides this."""
        return self

    def is_of(self, own: Catalog) -> bool:
        """Whether this is `own`, or another user's catalogue derived from it."""
        return self is own or self._beside is own

    @property
    def first_lists(self) -> int:
        """Another number whenever a server has become known to the first of all users."""
        return (self._beside or self)._first_lists

    def note_offer(self, entry: ServerEntry, *, is_first: bool) -> None:
        """A server has listed what it offers, or that was read from the cache."""
        offers = (self._beside or self)._offers
        if offers is not None:
            offers.note(entry)
        # With the first user alone: what is worked out for users to whom something is hidden depends on it.
        if is_first and next(self.elsewhere(entry), None) is None:
            (self._beside or self)._first_lists += 1

    def elsewhere(self, entry: ServerEntry) -> Iterator[ServerEntry]:
        """The entries of the same server for other users, one for each distinct offer."""
        offers = (self._beside or self)._offers
        return iter(()) if offers is None else offers.beside(entry)

    def entry_for(self, toolbox: str, config: ServerConfig, context: ServerContext) -> ServerEntry:
        """The entry for a configured server, for the user of this catalogue."""
        if self._beside is not None and config.share == "everyone":
            return self._beside.toolboxes[toolbox][config.name]
        return self.servers.entry(toolbox, config, self.store, context)

    # ── what is known ──

    def entries(self) -> Iterator[ServerEntry]:
        """Every server of every toolbox, in the order of the configuration."""
        for servers in self.toolboxes.values():
            yield from servers.values()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` on every change, with the server and the kinds of lists that changed."""
        self._listeners.append(listener)

    # ── replacing the configuration ──

    def look_up_programs(self, config: WorkbenchConfig) -> None:
        """Look up the programs of this configuration, before it is planned. Reads the disk, so it may block."""
        if self._context.programs is not None:
            self._context.programs.look_up(server.command for _, server in config.servers())

    def plan(self, config: WorkbenchConfig) -> Plan:
        """Plan the change to this configuration without applying it."""
        from mcp_workbench.engine.catalog.replacement import plan

        return plan(self, self._config, config, context_of(config, self._context))

    def replace(self, plan: Plan) -> Difference:
        """Apply a new configuration. First notify everything that keeps state by server or toolbox, then the
        subscribers that show lists, of removals first, while they still know where these were."""
        _refuse_unresolved(plan.beginning, plan.config)
        for entry in plan.ending:
            is_removed = (entry.toolbox, entry.name) in plan.difference.servers.removed
            self._notify_of_all(entry)
            why = DownstreamError(
                REMOVED if is_removed else CHANGED_IN_CONFIG, hint=None if is_removed else "call again"
            )
            self._release(entry, why)
        self._config, self.toolboxes, self._context = plan.config, plan.toolboxes, plan.context
        self._keep_all()
        self._is_read = False
        self.revision += 1
        changed = {entry: self.servers.adjust(entry, config) for entry, config in plan.adjusted.items()}
        for replaced in (*self.servers.on_replaced, *self.on_replaced):
            replaced(plan)
        for entry in plan.beginning:
            self._notify_of_all(entry)
        for entry, kinds in changed.items():
            if kinds:
                _notify(entry, kinds)
        return plan.difference

    def abandon(self, plan: Plan, why: DownstreamError) -> None:
        """Discard a plan that is not applied: its new servers that no other catalogue shows are ended."""
        for entry in plan.beginning:
            if not entry.catalogs:
                self.servers.keep(entry, self, plan.context)
                self.servers.release(entry, self, why)

    def close(self, why: DownstreamError) -> None:
        """Release all servers."""
        for entry in self.entries():
            self._release(entry, why)
        self.toolboxes = {}

    def _keep_all(self) -> None:
        offers = (self._beside or self)._offers
        for entry in self.entries():
            self.servers.keep(entry, self, self._context)
            if offers is not None:
                offers.note(entry)

    def _release(self, entry: ServerEntry, why: DownstreamError) -> None:
        self.servers.release(entry, self, why)
        offers = (self._beside or self)._offers
        # What everybody shares is still shown to the workbench's owner.
        if offers is not None and entry.context.principal == self.principal:
            offers.drop(entry)

    def _notify_of_all(self, entry: ServerEntry) -> None:
        kinds = frozenset(kind for kind in KINDS if entry.definitions(kind))
        entry.tools_differ = "tools" in kinds
        if kinds:
            self.notify(entry, kinds)

    # ── the cache on disk ──

    @cached_property
    def held_names(self) -> HeldNames:
        """Who had which exposed name."""
        # Not on the start-up path.
        from mcp_workbench.engine.catalog.held_names import HeldNames

        return HeldNames(self.store, self.path, self._tell_of_unsaved_names, self.principal)

    def _tell_of_unsaved_names(self) -> None:
        for use in self.on_unsaved_names:
            use()

    def unread(self, entries: Iterable[ServerEntry]) -> list[ServerEntry]:
        """Those of these servers whose manifests have not been read yet."""
        return [] if self._is_read else [entry for entry in entries if not entry.is_read]

    def take(self, manifests: Mapping[ServerEntry, Manifest]) -> None:
        """Use manifests that were read. Lists computed before are outdated, but clients need not be notified."""
        showing = {self}
        for entry, manifest in manifests.items():
            entry.take_manifest(manifest)
            showing.update(entry.catalogs)
            if entry.offer is not None:
                for catalog in entry.catalogs:
                    catalog.note_offer(entry, is_first=True)
        for catalog in showing:
            catalog._is_read = all(entry.is_read for entry in catalog.entries())
            catalog.revision += 1

    def load(self, entries: Iterable[ServerEntry]) -> None:
        """Read the manifests of these servers. Blocks, so not for the event loop."""
        unread = self.unread(entries)
        if unread:
            self.held_names.take(self.held_names.read())
            self.take(read_manifests(unread))

    # ── notifications ──

    def notify(self, entry: ServerEntry, changed: frozenset[str]) -> None:
        """Notify subscribers that what this server offers has changed."""
        if entry.ended is not None:
            # A removed server that is finishing its last calls: it is no longer shown.
            return
        self.revision += 1
        for listener in self._listeners:
            listener(entry, changed)

    def notify_announced(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Notify subscribers of lists that were announced as changed but are equal."""
        # Nothing computed from the lists is outdated, so the revision stays the same.
        for listener in self.on_announced:
            listener(entry, kinds)


def context_of(config: WorkbenchConfig, context: ServerContext) -> ServerContext:
    """The context for the servers of this configuration, for a client with this folder and environment."""
    return replace(
        context,
        path=config.path,
        lock=config.lock,
        max_message_bytes=config.max_message_bytes,
        max_definition_bytes=config.max_definition_bytes,
        shows_results=config.programs is not None,
        keychain=config.keychain,
        redact_results=config.redact_results,
    )


def _note_changes(entry: ServerEntry, before: Offer) -> None:
    """Without a lock nothing compares what a server says with what its user has seen; at least it is not done
    silently."""
    after = entry.offer
    if after is None or (before.lists == after.lists and before.profile.instructions == after.profile.instructions):
        return
    from mcp_workbench.engine.catalog.offer_changes import changed_definitions

    news = [what for what in changed_definitions(before, after) if what not in entry.changed]
    if not news:
        return
    entry.changed = (*entry.changed, *news)[-MAX_NAMED_CHANGES:]
    more = f" and {len(news) - MAX_LOGGED_CHANGES} more" if len(news) > MAX_LOGGED_CHANGES else ""
    named = ", ".join(what[:100] for what in news[:MAX_LOGGED_CHANGES])
    log.warning("[%s] describes itself differently than when it was last listed: %s%s", entry.label, named, more)


def _notify(entry: ServerEntry, changed: frozenset[str]) -> None:
    for catalog in list(entry.catalogs):
        catalog.notify(entry, changed)


def _refuse_unresolved(entries: Iterable[ServerEntry], config: WorkbenchConfig) -> None:
    """Mark servers with missing variables as failed, with the reason."""
    for entry in entries:
        if problems := entry.config.unresolved:
            # Shown to clients, so it must not contain the value of a variable.
            reason = Redactor(config.secrets).text(in_one_line(problems))
            entry.failure = DownstreamError(reason, hint=problems[0].hint)


def read_manifests(entries: Iterable[ServerEntry]) -> dict[ServerEntry, Manifest]:
    """Read the manifests of these servers. Changes nothing, so it can run in a thread."""
    return {entry: entry.read_manifest() for entry in entries}
