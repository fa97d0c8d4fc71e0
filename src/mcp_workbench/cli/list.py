"""`mcp-workbench list`: toolboxes and servers as they are configured. Starts nothing."""

from __future__ import annotations

import shlex
from typing import Any

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.cli.engine import Engine
from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.cli.settings import CONFIG, JSON, configuration
from mcp_workbench.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.config.redact import Redactor

ABOUT = """
Shows the toolboxes with their descriptions and servers: how each is reached, which of its tools are let through, and
how many tools it has, where that is known from an earlier connection. Nothing is started. Secrets are not shown.
"""


def run(parsed: Parsed) -> int:
    """Show what is configured."""
    config = configuration(parsed, parsed.positional(0))
    engine = Engine(config, use_cache=True)
    redactor = Redactor(config.secrets)
    screen = stdout()
    if parsed.has("json"):
        screen.json(_as_json(config, engine, redactor))
    else:
        _show(screen, config, engine, redactor)
    return 0


COMMAND = Command("list [OPTIONS] [CONFIG]", ABOUT, (CONFIG, JSON), run, takes=1)


def address(server: ServerConfig, redactor: Redactor) -> str:
    """The command line as one would type it, or the URL; without secrets."""
    if server.command is None:
        return redactor.text(server.url or "")
    # First hidden, then quoted: quoting could break a secret into pieces that are no longer recognised.
    return " ".join(shlex.quote(redactor.text(word)) for word in (server.command, *server.args))


def _tools_known(entry: ServerEntry) -> tuple[int, int] | None:
    """How many tools are shown, of how many; None when the server has never been met."""
    offer = entry.recall()
    return None if offer is None else (len(entry.tools), len(offer.tools))


def counted(shown: int, all: int) -> str:
    """`7`, or `5 of 7` where filters take some away."""
    return str(shown) if shown == all else f"{shown} of {all}"


def _show(screen: Screen, config: WorkbenchConfig, engine: Engine, redactor: Redactor) -> None:
    for number, toolbox in enumerate(config.toolboxes.values()):
        if number:
            screen.blank()
        screen.line((toolbox.name, "name"), (f"  {toolbox.description}", "plain"))
        rows: list[list[Part]] = []
        for name, entry in engine.toolbox(toolbox.name).items():
            server = entry.config
            known = _tools_known(entry)
            tools = "? tools" if known is None else f"{counted(*known)} tools"
            rows.append([(name, "strong"), server.transport, (tools, "dim"), address(server, redactor)])
            if server.tool_filters is not None:
                rows[-1][-1] = f"{rows[-1][-1]}  (only: {', '.join(server.tool_filters) or 'none'})"
        screen.table(["", "", "", ""], rows, indent=2)
    if config.disabled:
        screen.blank()
        screen.line((f"left out by the configuration: {', '.join(config.disabled)}", "dim"))


def _as_json(config: WorkbenchConfig, engine: Engine, redactor: Redactor) -> dict[str, Any]:
    toolboxes = []
    for toolbox in config.toolboxes.values():
        servers = [_server_json(entry, redactor) for entry in engine.toolbox(toolbox.name).values()]
        toolboxes.append({"name": toolbox.name, "description": toolbox.description, "servers": servers})
    return {"config": config.path, "toolboxes": toolboxes, "disabled": list(config.disabled)}


def _server_json(entry: ServerEntry, redactor: Redactor) -> dict[str, Any]:
    server = entry.config
    described: dict[str, Any] = {"name": server.name, "transport": server.transport}
    if server.command is not None:
        described["command"] = redactor.text(server.command)
        described["args"] = [redactor.text(argument) for argument in server.args]
    else:
        described["url"] = redactor.text(server.url or "")
    if server.tool_filters is not None:
        described["toolFilters"] = list(server.tool_filters)
    known = _tools_known(entry)
    described["tools"] = None if known is None else known[0]
    return described
