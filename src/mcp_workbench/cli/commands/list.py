"""`mcp-workbench list`: list the configured toolboxes and servers, or the names of tools as clients see them."""

from __future__ import annotations

import shlex
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from mcp_workbench.app.gateway import Options
from mcp_workbench.cli.engine import Engine
from mcp_workbench.cli.error_output import remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.cli.serve import face_named, separator_named
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.shared_engine import engine_that_knows, reported
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.problems import in_one_line
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.sharing import OWN_USER
from mcp_workbench.engine.face.view import View


def run(parsed: Parsed) -> int:
    options = _options(parsed)
    config = configuration(parsed, parsed.positional(0))
    redactor = log_for(parsed, config)
    engine, failures = engine_that_knows(parsed, config, redactor)
    screen = stdout()
    if options is not None:
        _show_names(screen, engine, options, as_json=parsed.has("json"))
    elif parsed.has("json"):
        screen.json(_as_json(config, engine, redactor))
    else:
        _show(screen, config, engine, redactor)
    screen.flush()
    return reported(failures, redactor)


def _options(parsed: Parsed) -> Options | None:
    """How names are shown; None to show toolboxes and servers."""
    if not any(parsed.has(name) for name in ("face", "separator", "no-prefix")):
        return None
    return Options(
        face=face_named(parsed.value("face")),
        separator=separator_named(parsed.value("separator")),
        prefix=not parsed.has("no-prefix"),
    )


def _show_names(screen: Screen, engine: Engine, options: Options, *, as_json: bool) -> None:
    face = engine.shown_to_clients(options)
    view = View(OWN_USER)
    # The face `dynamic` lists opened toolboxes, so all are opened.
    view.opened.update(dict.fromkeys(engine.toolboxes))
    # Decoded from what clients get: a second way to make names would get out of step.
    names = [decode(definition, type=_NamedTool).name for definition in face.tools(view)]
    unknown = [entry.label for entry in engine.face.catalog.entries() if entry.load_manifest() is None]
    if as_json:
        screen.json({"face": face.name, "tools": names, "unknown": unknown})
        return
    for name in names:
        screen.line(name, wrap=False)
    # The two tools of `proxy` do not depend on servers.
    if unknown and face.name != "proxy":
        screen.flush()
        remark("note", f"not including {', '.join(unknown)}, not listed yet; --connect lists them")


class _NamedTool(Struct):
    name: str


def address(server: ServerConfig, redactor: Redactor) -> str:
    """Return the command line as one would type it, or the URL; without secrets."""
    if server.command is None:
        return redactor.text(server.url or "")
    # Redacted before quoting, because quoting could break up a secret so that it is no longer recognised.
    return " ".join(shlex.quote(redactor.text(word)) for word in (server.command, *server.args))


def transport_of(entry: ServerEntry) -> str:
    """Return the transport; `auto` if it is not known yet."""
    offer = entry.load_manifest()
    found = None if offer is None else offer.transport
    return found if entry.config.transport == "auto" and found else entry.config.transport


def _tools_known(entry: ServerEntry) -> tuple[int, int] | None:
    """Return how many tools are shown, and how many there are; None if the server has never been listed."""
    offer = entry.load_manifest()
    return None if offer is None else (len(entry.tools), len(offer.tools))


def counted(shown: int, all: int) -> str:
    """Return `7`, or `5 of 7` if filters hide some."""
    return str(shown) if shown == all else f"{shown} of {all}"


def _show(screen: Screen, config: WorkbenchConfig, engine: Engine, redactor: Redactor) -> None:
    for number, toolbox in enumerate(config.toolboxes.values()):
        if number:
            screen.blank()
        screen.table(["", ""], [[(toolbox.name, "name"), toolbox.description]])
        rows: list[list[Part]] = []
        for name, entry in engine.toolbox(toolbox.name).items():
            server = entry.config
            known = _tools_known(entry)
            tools = "? tools" if known is None else f"{counted(*known)} {'tool' if known == (1, 1) else 'tools'}"
            rows.append([(name, "strong"), transport_of(entry), (tools, "dim"), address(server, redactor)])
            if server.tool_filters is not None:
                rows[-1][-1] = f"{rows[-1][-1]}  (only: {', '.join(server.tool_filters) or 'none'})"
            if server.unresolved:
                # Its row says where.
                why = redactor.text("; ".join(each.found for each in server.unresolved))
                rows[-1][-1] = f"{rows[-1][-1]}  (unavailable: {why})"
        screen.table(["", "", "", ""], rows, indent=2)
    if config.disabled:
        screen.blank()
        screen.line((f"disabled in the configuration: {', '.join(config.disabled)}", "dim"))


def _as_json(config: WorkbenchConfig, engine: Engine, redactor: Redactor) -> dict[str, Any]:
    toolboxes = []
    for toolbox in config.toolboxes.values():
        servers = [_server_json(entry, redactor) for entry in engine.toolbox(toolbox.name).values()]
        toolboxes.append({"name": toolbox.name, "description": toolbox.description, "servers": servers})
    return {"config": config.path, "toolboxes": toolboxes, "disabled": list(config.disabled)}


def _server_json(entry: ServerEntry, redactor: Redactor) -> dict[str, Any]:
    server = entry.config
    described: dict[str, Any] = {"name": server.name, "transport": transport_of(entry)}
    if server.command is not None:
        described["command"] = redactor.text(server.command)
        described["args"] = [redactor.text(argument) for argument in server.args]
    else:
        described["url"] = redactor.text(server.url or "")
    if server.tool_filters is not None:
        described["toolFilters"] = list(server.tool_filters)
    if server.unresolved:
        described["unavailable"] = redactor.text(in_one_line(server.unresolved))
    known = _tools_known(entry)
    described["tools"] = None if known is None else known[0]
    return described
