"""The catalogue: every toolbox with its servers, and what is known of what they offer.

The one place that faces read. Connections report here; whoever shows lists to clients is notified of changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mcp_workbench.catalog.entry import OWN_CONTEXT, Manifest, ServerEntry
from mcp_workbench.catalog.manifests import ManifestStore
from mcp_workbench.catalog.offer import KINDS, Offer
from mcp_workbench.config.model import ServerConfig, ServerContext, ToolboxConfig, WorkbenchConfig
from mcp_workbench.config.problems import in_one_line
from mcp_workbench.config.redact import Redactor
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.protocol.handshake import ServerProfile

if TYPE_CHECKING:
    from mcp_workbench.catalog.replacement import Difference, Plan

log = logging.getLogger(__name__)

# Why a server takes no more calls that were meant for it before the configuration changed.
REMOVED: Final = "the server was removed from the configuration"
CHANGED: Final = "the server was changed in the configuration, and what it was before has ended"

Listener = Callable[[ServerEntry, frozenset[str]], None]


class Servers:
    """All servers of this process, whichever catalogues show them: what is learnt about one reaches all of these."""

    def __init__(self) -> None:
        # Told of a server that has asked a client something, for the first time.
        self.on_asking: list[Callable[[ServerEntry], None]] = []
        # Told of a server whose tools are others than before.
        self.on_tools: list[Callable[[ServerEntry], None]] = []
        # Told of every list that a server has sent, and of what was known of it before.
        self.on_learned: list[Callable[[ServerEntry, Offer | None], None]] = []
        # Called when another configuration takes effect somewhere, one after the other: no one sees half of it.
        self.on_replaced: list[Callable[[Plan], None]] = []

    def entry(self, toolbox: str, config: ServerConfig, store: ManifestStore, context: ServerContext) -> ServerEntry:
        """The server that is meant. Whoever shows it says so (`keep`)."""
        return ServerEntry(toolbox, config, store, context)

    def keep(self, entry: ServerEntry, catalog: Catalog, context: ServerContext) -> None:
        """This catalogue shows it from now on."""
        if catalog not in entry.catalogs:
            entry.catalogs.append(catalog)
        changed = replace(entry.context, max_definition_bytes=context.max_definition_bytes, lock=context.lock)
        if changed != entry.context and self.may_adjust(entry):
            entry.context = changed

    def release(self, entry: ServerEntry, catalog: Catalog, why: DownstreamError) -> None:
        """This catalogue shows it no more. With the last one it ends."""
        entry.catalogs.remove(catalog)
        if not entry.catalogs:
            entry.ended = why

    def may_adjust(self, entry: ServerEntry) -> bool:
        """Whether other settings for it are meant by all who show it: those of one file are changed together."""
        return len({catalog.path for catalog in entry.catalogs}) <= 1

    def adjust(self, entry: ServerEntry, config: ServerConfig) -> frozenset[str]:
        """The same server, treated otherwise from now on. Returns the kinds of lists that differ from before."""
        return entry.adjust(config)

    # ── what connections report, and those who tried to reach it ──

    def on_handshake(self, entry: ServerEntry, profile: ServerProfile) -> None:
        """A connection reports who its server is and in which eras it can be spoken to."""
        entry.on_handshake(profile)

    def learn(
        self, entry: ServerEntry, offer: Offer, announced: frozenset[str] = frozenset(), *, remember: bool = True
    ) -> None:
        """A connection reports what its server offers. `announced`: the lists that the server said have changed.

        Without `remember`, it is left to the caller to have the entry remembered."""
        first_time = entry.offer is None
        if self.on_learned and first_time:
            # What is cached counts as known, even if it has not been asked for yet.
            entry.load_manifest()
        before = entry.offer
        changed = entry.learn(offer, remember=remember)
        if entry.failure is not None:
            entry.failure = None
            changed = frozenset(KINDS)
        if first_time:
            for catalog in entry.catalogs:
                catalog.note_first_list()
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
        """A connection has given its server up: what it offered is no longer shown."""
        if entry.failure is None:
            entry.failure = failure
            # They cannot be used, and a call says so; they are the same tools.
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
        """A server could not be started or listed; what it offered before is still shown. For those who ask why."""
        entry.last_error = error

    def works(self, entry: ServerEntry) -> None:
        """A connection to the server works, whatever has happened to somebody else's: what it offers can be shown."""
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
        # Of another user: the catalogue of our own, whose servers it shows as far as everybody shares them.
        self._beside = beside
        # Those of other users, by principal; and how often a server has become known, to whichever of all of them.
        self._of_users: dict[str, Catalog] = {}
        self._first_lists = 0
        self.store = store
        self.servers = servers = Servers() if servers is None else servers
        self._context = context = context_of(config, context)
        self.toolboxes: dict[str, dict[str, ServerEntry]] = {
            toolbox.name: {
                name: self.entry_for(toolbox.name, server, context) for name, server in toolbox.servers.items()
            }
            for toolbox in config.toolboxes.values()
        }
        for entry in self.entries():
            servers.keep(entry, self, context)
        _refuse_unresolved(self.entries(), config)
        # Counts changes of anything that a face may show; what faces compute is kept until it moves on.
        self.revision = 0
        # Whether there is no manifest left to read.
        self._is_read = False
        self._listeners: list[Listener] = []
        # Told of lists that a server announced as changed and that are equal all the same.
        self.on_announced: list[Listener] = []
        # Called when another configuration takes effect, at once and one after the other: no one sees half of it.
        self.on_replaced: list[Callable[[Plan], None]] = []

    # ── what the user says, as far as it is about what is offered ──

    @property
    def path(self) -> str:
        return self._config.path

    @property
    def described(self) -> Mapping[str, ToolboxConfig]:
        """Every toolbox as the user describes it."""
        return self._config.toolboxes

    def budget_of(self, toolbox: str | None) -> int | None:
        """Tokens that an answer about this toolbox, or about all of them, may take; None: no limit."""
        own = None if toolbox is None else self._config.toolboxes[toolbox].budget
        return (self._config.budget if own is None else own) or None

    # ── whose it is ──

    def of_user(self, principal: str) -> Catalog:
        """The same servers, with what connections of this user list: a server may offer other things to each."""
        context = replace(self._context, principal=principal)
        found = self._of_users[principal] = Catalog(self._config, self.store, self.servers, context, beside=self)
        return found

    @property
    def principal(self) -> str:
        """The user whose connections list what is in it; empty for our own."""
        return self._context.principal

    @property
    def whole(self) -> Catalog:
        """With what is hidden from some; `RestrictedCatalog` overrides this."""
        return self

    def is_of(self, own: Catalog) -> bool:
        """Whether this is our own user's catalogue, or that of another user beside it."""
        return self is own or self._beside is own

    @property
    def first_lists(self) -> int:
        """Another number whenever there is more to be known of what servers list to somebody."""
        return (self._beside or self)._first_lists

    def note_first_list(self) -> None:
        (self._beside or self)._first_lists += 1

    def elsewhere(self, entry: ServerEntry) -> Iterator[ServerEntry]:
        """The same server as it is known to other users."""
        own = self._beside or self
        for catalog in (own, *own._of_users.values()):
            found = catalog.toolboxes.get(entry.toolbox, {}).get(entry.name)
            if found is not None and found is not entry and found.offer is not None:
                yield found

    def entry_for(self, toolbox: str, config: ServerConfig, context: ServerContext) -> ServerEntry:
        """The server that is meant, for whoever sees this."""
        if self._beside is not None and config.share == "everyone":
            return self._beside.toolboxes[toolbox][config.name]
        return self.servers.entry(toolbox, config, self.store, context)

    # ── what is known ──

    def entries(self) -> Iterator[ServerEntry]:
        """Every server of every toolbox, in the order of the configuration."""
        for servers in self.toolboxes.values():
            yield from servers.values()

    def subscribe(self, listener: Listener) -> None:
        """Call back on every change: which server, and which of its lists."""
        self._listeners.append(listener)

    # ── another configuration ──

    def plan(self, config: WorkbenchConfig) -> Plan:
        """What has to be done for this configuration to be in force. Nothing is done yet."""
        from mcp_workbench.catalog.replacement import plan

        return plan(self, self._config, config, context_of(config, self._context))

    def replace(self, plan: Plan) -> Difference:
        """Put another configuration in force. Those who keep something by server or toolbox are notified, then those
        who show lists: what is gone first, as long as they know where it was."""
        _refuse_unresolved(plan.beginning, plan.config)
        for entry in plan.ending:
            is_removed = (entry.toolbox, entry.name) in plan.difference.servers.removed
            self._notify_of_all(entry)
            why = DownstreamError(REMOVED if is_removed else CHANGED, hint=None if is_removed else "call again")
            self.servers.release(entry, self, why)
        self._config, self.toolboxes, self._context = plan.config, plan.toolboxes, plan.context
        for entry in self.entries():
            self.servers.keep(entry, self, plan.context)
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
        """It is not put in force after all: servers that it found no one else showing do not begin."""
        for entry in plan.beginning:
            if not entry.catalogs:
                self.servers.keep(entry, self, plan.context)
                self.servers.release(entry, self, why)

    def close(self, why: DownstreamError) -> None:
        """Nobody is shown anything here any more."""
        for entry in self.entries():
            self.servers.release(entry, self, why)
        self.toolboxes = {}
        if self._beside is not None:
            self._beside._of_users.pop(self.principal, None)

    def _notify_of_all(self, entry: ServerEntry) -> None:
        kinds = frozenset(kind for kind in KINDS if entry.definitions(kind))
        entry.tools_differ = "tools" in kinds
        if kinds:
            self.notify(entry, kinds)

    # ── what is remembered ──

    def unread(self, entries: Iterable[ServerEntry]) -> list[ServerEntry]:
        """Of these servers, those whose manifests have yet to be read before one can say what is known of them."""
        return [] if self._is_read else [entry for entry in entries if not entry.is_read]

    def take(self, manifests: Mapping[ServerEntry, Manifest]) -> None:
        """Manifests were read: lists computed before do not hold any more. Nobody need be told."""
        showing = {self}
        for entry, manifest in manifests.items():
            entry.take_manifest(manifest)
            showing.update(entry.catalogs)
        for catalog in showing:
            catalog._is_read = all(entry.is_read for entry in catalog.entries())
            catalog.revision += 1
            catalog.note_first_list()

    def load(self, entries: Iterable[ServerEntry]) -> None:
        """Read the manifests of these servers from the disk. Blocks, so not for the event loop."""
        unread = self.unread(entries)
        if unread:
            self.take(read_manifests(unread))

    # ── notifications ──

    def notify(self, entry: ServerEntry, changed: frozenset[str]) -> None:
        """What this server offers is shown otherwise from now on."""
        if entry.ended is not None:
            # Its last calls are still running; it is not shown any more.
            return
        self.revision += 1
        for listener in self._listeners:
            listener(entry, changed)

    def notify_announced(self, entry: ServerEntry, kinds: frozenset[str]) -> None:
        """Lists were announced as changed that are equal all the same."""
        # Nothing that was computed from the lists is outdated, so the revision stays.
        for listener in self.on_announced:
            listener(entry, kinds)


def context_of(config: WorkbenchConfig, context: ServerContext) -> ServerContext:
    """The context of servers of this file, for a client that is where `context` says."""
    return replace(
        context,
        path=config.path,
        lock=config.lock,
        max_message_bytes=config.max_message_bytes,
        max_definition_bytes=config.max_definition_bytes,
        keychain=config.keychain,
    )


def _notify(entry: ServerEntry, changed: frozenset[str]) -> None:
    for catalog in list(entry.catalogs):
        catalog.notify(entry, changed)


def _refuse_unresolved(entries: Iterable[ServerEntry], config: WorkbenchConfig) -> None:
    """Servers that lack a variable cannot be started, and say why."""
    for entry in entries:
        if problems := entry.config.unresolved:
            # Clients are told, so a value that a variable brought in must not be in it.
            reason = Redactor(config.secrets).text(in_one_line(problems))
            entry.failure = DownstreamError(reason, hint=problems[0].hint)


def read_manifests(entries: Iterable[ServerEntry]) -> dict[ServerEntry, Manifest]:
    """What is remembered of these servers. Reads from the disk and changes nothing: for a thread."""
    return {entry: entry.read_manifest() for entry in entries}
