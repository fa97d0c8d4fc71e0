"""The catalogue: every toolbox with its servers, and what is known of what they offer.

The one place that faces read. Connections report here, manifests fill it at first use; filters are applied on the way
in, so that a tool that is filtered out cannot be listed or called by any path.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from mcp_workbench.catalog.filters import is_shown
from mcp_workbench.catalog.manifests import ManifestStore, manifest_key
from mcp_workbench.catalog.offer import Offer
from mcp_workbench.config.model import ServerConfig, WorkbenchConfig


class ServerEntry:
    """One server of one toolbox, and its offer as far as it is known."""

    __slots__ = ("_looked_up", "_store", "config", "hidden", "is_live", "key", "offer", "revision", "toolbox", "tools")

    def __init__(self, toolbox: str, config: ServerConfig, store: ManifestStore) -> None:
        self.toolbox = toolbox
        self.config = config
        self.key = manifest_key(config)
        # The offer comes from the server itself, not from a manifest.
        self.is_live = False
        self.offer: Offer | None = None
        # What filters leave of the offer, and the names they take away.
        self.tools: dict[str, Raw] = {}
        self.hidden: frozenset[str] = frozenset()
        # Counts the changes of what is shown.
        self.revision = 0
        self._store = store
        self._looked_up = False

    @property
    def name(self) -> str:
        """The server's name in its toolbox."""
        return self.config.name

    def recall(self) -> Offer | None:
        """The offer, from the manifest if the server itself has not spoken yet. Disk is asked once."""
        if self.offer is None and not self._looked_up:
            self._looked_up = True
            remembered = self._store.load(self.key)
            if remembered is not None:
                self._show(remembered)
        return self.offer

    def learn(self, offer: Offer) -> bool:
        """The server said what it offers. True when what was known before and is shown has changed."""
        before, known = self.tools, self.offer is not None
        self._show(offer)
        self.is_live = True
        if not known or before != self.tools or list(before) != list(self.tools):
            self.revision += 1
        self._store.save(self.key, offer)
        return known and before != self.tools

    def _show(self, offer: Offer) -> None:
        filters = self.config.tool_filters
        self.offer = offer
        self.tools = {name: tool for name, tool in offer.tools.items() if is_shown(name, filters)}
        self.hidden = frozenset(offer.tools.keys() - self.tools.keys())


class Catalog:
    """All toolboxes, by name, in the order of the configuration."""

    def __init__(self, config: WorkbenchConfig, store: ManifestStore) -> None:
        self.config = config
        self.toolboxes: dict[str, dict[str, ServerEntry]] = {
            toolbox.name: {name: ServerEntry(toolbox.name, server, store) for name, server in toolbox.servers.items()}
            for toolbox in config.toolboxes.values()
        }
        # Told when a server's offer differs from what was known before.
        self.on_change: Callable[[ServerEntry], None] | None = None

    def entry(self, toolbox: str, server: str) -> ServerEntry | None:
        """One server, if it exists."""
        servers = self.toolboxes.get(toolbox)
        return None if servers is None else servers.get(server)

    def learn(self, entry: ServerEntry, offer: Offer) -> None:
        """A connection reports what its server offers."""
        if entry.learn(offer) and self.on_change is not None:
            self.on_change(entry)
