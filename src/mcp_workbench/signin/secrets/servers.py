"""The resolved servers of one workbench: their references are fetched when a server starts and kept while it runs.

Owned by the composition root and created for the first server with references. Connections to the same server share the
values. When it starts again, they are fetched again, because secrets are rotated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.signin.secrets.resolve import ReferenceUnresolved, concealed, resolve

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.processes import ProcessTable

log = logging.getLogger(__name__)


class _KeptServer(Struct, frozen=True):
    written: ServerConfig
    resolved: ServerConfig
    is_in_use: Callable[[], bool]


class ResolvedServers:
    """Keys are whatever the caller identifies servers by."""

    def __init__(self, table: ProcessTable, redactor: Redactor) -> None:
        self._table = table
        self._redactor = redactor
        self._kept: dict[Hashable, _KeptServer] = {}
        self._fetching: dict[Hashable, asyncio.Lock] = {}

    async def resolve(
        self, key: Hashable, label: str, server: ServerConfig, environ: Mapping[str, str], is_in_use: Callable[[], bool]
    ) -> ServerConfig:
        """Resolve a server so that it can be started. Raises `ReferenceUnresolved`."""
        async with self._fetching.setdefault(key, asyncio.Lock()):
            kept = self._kept.get(key)
            if kept is None or kept.written != server or not kept.is_in_use():
                try:
                    found = await resolve(server, environ, self._table)
                except ReferenceUnresolved as error:
                    raise concealed(error, self._redactor) from None
                # Before anything about it can be logged.
                self._redactor.replace(key, found.secrets)
                for warning in found.warnings:
                    log.warning("[%s] %s", label, warning)
                kept = self._kept[key] = _KeptServer(server, found.config, is_in_use)
            return kept.resolved

    def known(self, key: Hashable, server: ServerConfig) -> ServerConfig:
        """The server as last resolved, or as configured if it never was."""
        kept = self._kept.get(key)
        if kept is None or (kept.written.references, kept.written.env_files) != (server.references, server.env_files):
            return server
        return kept.resolved

    def forget(self, keys: Iterable[Hashable]) -> None:
        """Drop servers that were removed from the configuration."""
        for key in keys:
            self._kept.pop(key, None)
            self._fetching.pop(key, None)
            self._redactor.release(key)
