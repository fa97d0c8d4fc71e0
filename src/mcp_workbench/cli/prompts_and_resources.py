"""Prompts and resources for a person: listed from the cache, or by the servers that have not been listed yet."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcp_workbench.cli.engine import Engine, ToolClient
from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.cli.unlisted_servers import Unlisted, hint_about
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.errors import WorkbenchError

Definition = dict[str, Any]


async def listed(
    engine: Engine, client: ToolClient, kind: str, place: str = "", *, is_strict: bool = False
) -> list[Definition]:
    """Return the definitions of one kind as clients see them. Of the servers not listed yet, starts those whose items
    begin with `place`, or all if it is empty. With `is_strict`, a server that cannot be reached is an error."""
    unknown = [
        entry
        for entry in engine.face.catalog.entries()
        if entry.load_manifest() is None and (not place or place.startswith(f"{entry.label}/"))
    ]
    # An unreachable server must not hide the items of others, but it is an error if it was named.
    await asyncio.gather(
        *(engine.listed(entry, "legacy") for entry in unknown), return_exceptions=not (place or is_strict)
    )
    # Through the client, to get the names that clients see: with the path of their server in front.
    method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
    found: list[Definition] = decode(await client.request(method, {}))[kind]
    return found


def owners(engine: Engine, kind: str) -> dict[str, list[str]]:
    """Return which servers (`toolbox/server`) have what, by the servers' own names and addresses."""
    found: dict[str, list[str]] = {}
    for entry in engine.face.catalog.entries():
        for identity in entry.offer.lists.get(kind, {}) if entry.offer is not None else ():
            found.setdefault(identity, []).append(entry.label)
    return found


def show_list(
    parsed: Parsed,
    definitions: list[Definition],
    nothing: str,
    lines: Callable[[Definition], tuple[Sequence[Part], str]],
) -> None:
    """Print definitions: `lines` returns the parts of the first line, and the text below it."""
    screen = stdout()
    if parsed.has("json"):
        screen.json(definitions)
        return
    if not definitions:
        remark("note", nothing)
    for each in definitions:
        head, about = lines(each)
        screen.line(*head, wrap=False)
        if about:
            screen.line(about, indent=4)


def result_of(
    engine: Engine, redactor: Redactor, named: Unlisted | None, where: str, work: Callable[[], Awaitable[Raw]]
) -> tuple[bytes | None, int]:
    """Return the result of the work; or, after reporting an error, None and the exit status."""
    try:
        return bytes(engine.run(work)), 0
    except RemoteError as error:
        text = redactor.text(f"[{where}] {error.error.message} (code {error.error.code})")
        servers = _rivals(error.error.data)
        if not servers:
            return None, complain(text, status=FAILED_STATUS)
        # The advice for agents comes last in the message, and is cut off.
        remedy = f"name the server before it: mcp-workbench call --resource {shlex.quote(servers[0])} URI"
        return None, complain(text.rpartition("; ")[0], redactor.text(remedy), status=FAILED_STATUS)
    except WorkbenchError as error:
        text = redactor.text(f"[{where}] {error.message}")
        hint = hint_about(error, named)
        return None, complain(text, hint and redactor.text(hint), status=FAILED_STATUS)


def _rivals(data: object) -> list[str]:
    """Return the servers that make an address ambiguous."""
    read = decode(data) if isinstance(data, Raw) else None
    servers = read.get("servers") if isinstance(read, dict) else None
    return servers if isinstance(servers, list) else []
