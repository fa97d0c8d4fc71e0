"""What `mcp-workbench check` says of references: whether each can be resolved, without running any program.

Files and the keychain are looked at; programs run only when servers are started, so `check --connect` tries those.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.config.redact import Redactor
from mcp_workbench.errors import WorkbenchError

# The keychain is asked by a process each time, which takes a third of a second.
MOST_AT_ONCE: Final = 8


class Unfetched(Struct, frozen=True):
    """A server that refers to something that is not there."""

    label: str
    message: str
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"server": self.label, "message": self.message, "hint": self.hint}


class Looked(Struct):
    """What was found out."""

    unfetched: list[Unfetched] = []
    warnings: list[str] = []


def look(config: WorkbenchConfig, redactor: Redactor) -> Looked:
    """Everything that the servers refer to, as far as no program has to be run for it."""
    servers = [
        (f"{toolbox.name}/{server.name}", server)
        for toolbox in config.toolboxes.values()
        for server in toolbox.servers.values()
        if server.references or server.env_files
    ]
    looked = Looked()
    if not servers:
        return looked
    from mcp_workbench.secrets.resolve import resolve

    async def look_at(label: str, server: ServerConfig, places: asyncio.Semaphore) -> Unfetched | tuple[str, ...]:
        async with places:
            try:
                return (await resolve(server, os.environ, commands=False)).warnings
            except WorkbenchError as error:
                return Unfetched(label, redactor.text(error.message), error.hint)

    async def look_at_all() -> None:
        places = asyncio.Semaphore(MOST_AT_ONCE)
        for found in await asyncio.gather(*(look_at(label, server, places) for label, server in servers)):
            if isinstance(found, Unfetched):
                looked.unfetched.append(found)
            else:
                looked.warnings += (warning for warning in found if warning not in looked.warnings)

    asyncio.run(look_at_all())
    return looked
