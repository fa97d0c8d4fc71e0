"""Check for `mcp-workbench check` whether each reference can be resolved, without running any program.

Files and the keychain are read. Programs run only when servers are started, so only `check --connect` tries those.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.errors import WorkbenchError

# Each keychain lookup starts a process, which takes a third of a second.
MAX_REFERENCES_AT_ONCE: Final = 8


class Unfetched(Struct, frozen=True):
    """A missing target of a reference, made by a server or by the rules on who may call."""

    label: str
    message: str
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"server": self.label, "message": self.message, "hint": self.hint}


class Looked(Struct):
    unfetched: list[Unfetched] = []
    warnings: list[str] = []


def look(config: WorkbenchConfig, redactor: Redactor) -> Looked:
    """Check all references that can be resolved without running a program."""
    # Most configurations have no references, and need no module of `secrets`.
    servers = [(label, server) for label, server in config.servers() if server.references or server.env_files]
    looked = Looked()
    if not servers and not config.references:
        return looked
    from mcp_workbench.signin.secrets import resolve

    async def look_at(server: ServerConfig, places: asyncio.Semaphore) -> tuple[Sequence[WorkbenchError], list[str]]:
        async with places:
            return await resolve.look(server, os.environ)

    async def look_at_all() -> None:
        places = asyncio.Semaphore(MAX_REFERENCES_AT_ONCE)
        found = await asyncio.gather(*(look_at(server, places) for _, server in servers))
        for (label, _), (problems, warnings) in zip(servers, found, strict=True):
            looked.unfetched += (Unfetched(label, redactor.text(each.message), each.hint) for each in problems)
            looked.warnings += (warning for warning in warnings if warning not in looked.warnings)

        for value in config.references:
            try:
                looked.warnings += (await resolve.resolve_value(value, os.environ, commands=False)).warnings
            except WorkbenchError as error:
                looked.unfetched.append(Unfetched(str(value.field[0]), redactor.text(error.message), error.hint))

    asyncio.run(look_at_all())
    return looked
