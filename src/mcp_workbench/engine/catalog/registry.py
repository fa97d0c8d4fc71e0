"""Shares servers between the catalogues of one process: equal servers have one entry and one set of connections.

Servers are equal if everything is once resolved: toolbox, name, every setting, and for a program the environment it
would be started with; of `PATH`, what it leads to counts rather than its text. References count by name, because
nothing is fetched to compare servers. The client's folder counts too, unless the server is shared everywhere (`share`:
`"user"`). Imported only if a process serves more than one catalogue.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog, Servers
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.environment import ComparableEnvironments
from mcp_workbench.engine.config.model import ServerConfig, ServerContext, references_in
from mcp_workbench.errors import DownstreamError


class SharedServers(Servers):
    """All servers of this process, by identity."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[bytes, ServerEntry] = {}
        self._keys: dict[ServerEntry, bytes] = {}
        self._environments = ComparableEnvironments()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, toolbox: str, config: ServerConfig, store: ManifestStore, context: ServerContext) -> ServerEntry:
        """The entry that another catalogue already shows, or a new one."""
        if config.unresolved:
            # Its identity is unknown.
            return super().entry(toolbox, config, store, context)
        key = identity(toolbox, config, store, context, self._environments)
        found = self._entries.get(key)
        if found is None:
            found = super().entry(toolbox, config, store, context)
            self._enter(key, found)
        return found

    def release(self, entry: ServerEntry, catalog: Catalog, why: DownstreamError) -> None:
        """Record that a catalogue no longer shows this server. The last catalogue to release it ends it."""
        super().release(entry, catalog, why)
        if entry.ended is not None:
            self._forget(entry)
            # Do not keep a client's environment longer than its servers.
            self._environments = ComparableEnvironments()

    def keep(self, entry: ServerEntry, catalog: Catalog, context: ServerContext) -> None:
        """Record that a catalogue shows this server."""
        before = entry.context
        super().keep(entry, catalog, context)
        if entry.context is not before:
            self._rename(entry)

    def adjust(self, entry: ServerEntry, config: ServerConfig) -> frozenset[str]:
        """Apply new settings to a server that keeps its process. Returns the kinds of lists that changed."""
        changed = super().adjust(entry, config)
        self._rename(entry)
        return changed

    def _rename(self, entry: ServerEntry) -> None:
        """Register it under its new identity. If another server has that already, the two stay separate."""
        if entry not in self._keys:
            return
        key = identity(entry.toolbox, entry.config, entry.store, entry.context, self._environments)
        if key != self._keys[entry] and key not in self._entries:
            self._forget(entry)
            self._enter(key, entry)

    def _enter(self, key: bytes, entry: ServerEntry) -> None:
        self._entries[key], self._keys[entry] = entry, key

    def _forget(self, entry: ServerEntry) -> None:
        key = self._keys.pop(entry, None)
        if key is not None:
            del self._entries[key]


def _programs(config: ServerConfig, context: ServerContext) -> tuple[str | None, ...] | None:
    """What the client's `PATH` leads this server to; None if its text counts."""
    if config.command is None or context.programs is None or "PATH" in config.env or "PATH" in config.inherit_env:
        return None
    return context.programs.of(config.command)


def identity(
    toolbox: str,
    config: ServerConfig,
    store: ManifestStore,
    context: ServerContext,
    environments: ComparableEnvironments,
) -> bytes:
    """Equal for servers that clients may share. A digest, so that it contains no secrets."""
    folder = None if config.share in ("user", "everyone") else context.folder
    if config.command is None:
        # For an address, only the proxy settings matter.
        environment = sorted(pair for pair in context.environ.items() if pair[0].lower().endswith("_proxy"))
    else:
        environment = environments.of(context.environ, config.inherit_env, config.env)
        programs = _programs(config, context)
        if programs is not None:
            environment = [pair for pair in environment if pair[0] != "PATH"] + [("PATH", repr(programs))]
    if any(part.kind == "cmd" for part in references_in(config)):
        # The output of a `${cmd:…}` program may depend on any variable of its client.
        environment = environments.of(context.environ, ("*",), config.env)
    lock = None if context.lock is None else (context.path, context.lock)
    limits = context.max_message_bytes, context.max_definition_bytes, lock, context.redact_results
    whose = None if config.share == "everyone" else context.principal
    # Determines where sign-ins are stored; programs have none.
    keychain = context.keychain if config.command is None else None
    # Written with `repr`, because variables and paths may not be valid Unicode; dictionaries are sorted by key.
    named = [sorted(each.items()) for each in (config.env, config.headers, config.rename)]
    what = (
        toolbox,
        replace(config, env={}, headers={}, rename={}),
        named,
        environment,
        folder,
        limits,
        whose,
        keychain,
    )
    return hashlib.sha256(f"{id(store)} {what!r}".encode(errors="surrogatepass")).digest()
