"""`mcp-workbench open`: what an agent gets when it opens a toolbox, readable or as it is."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcp_workbench.cli.complain import FAILED, remark
from mcp_workbench.cli.engine import Engine
from mcp_workbench.cli.flags import Command, Parsed
from mcp_workbench.cli.screen import Screen, stderr, stdout
from mcp_workbench.cli.settings import CONFIG, DEBUG, JSON, NO_CACHE, configuration, log_for
from mcp_workbench.cli.tool_schema import arguments_schema, signature
from mcp_workbench.config.redact import Redactor
from mcp_workbench.errors import WorkbenchError

ABOUT = """
Shows the tools of a toolbox with their arguments and descriptions, as an agent gets them from open_toolbox; with --json
exactly that, its structured content. Servers that are known from an earlier connection are not started: what they
offered then is shown. With --no-cache all are asked.

Exit status: 0, or 1 when no server of the toolbox could be reached, 2 when there is no such toolbox.
"""


def run(parsed: Parsed) -> int:
    """Open a toolbox; the exit status."""
    toolbox = parsed.positionals[0]
    config = configuration(parsed)
    log_for(parsed, config)
    engine = Engine(config, use_cache=not parsed.has("no-cache"))
    entries = engine.toolbox(toolbox)
    unknown = [entry for entry in entries.values() if entry.recall() is None]
    failures: dict[str, WorkbenchError] = {}

    async def ask() -> None:
        results = await asyncio.gather(*(engine.listed(entry) for entry in unknown), return_exceptions=True)
        for entry, result in zip(unknown, results, strict=True):
            if isinstance(result, WorkbenchError):
                failures[entry.name] = result
            elif isinstance(result, BaseException):
                raise result

    if unknown:
        _while_shown(f"starting {', '.join(entry.name for entry in unknown)}", lambda: engine.run(ask))
    content = decode(engine.opened(toolbox, failures), type=dict[str, Raw])["structuredContent"]
    screen = stdout()
    if parsed.has("json"):
        screen.json(content)
    else:
        _show(screen, decode(content), len(bytes(content)), Redactor(config.secrets))
        if len(unknown) < len(entries) and screen.is_terminal:
            screen.flush()
            remark("note", "from what the servers offered last time; --no-cache asks them again")
    return FAILED if len(failures) == len(entries) else 0


COMMAND = Command("open [OPTIONS] TOOLBOX", ABOUT, (CONFIG, JSON, NO_CACHE, DEBUG), run, names=["TOOLBOX"], takes=1)


def _while_shown(what: str, work: Any) -> None:
    screen = stderr()
    if not screen.is_terminal:
        work()
        return
    with screen.console.status(what):
        work()


def _show(screen: Screen, content: dict[str, Any], size: int, redactor: Redactor) -> None:
    screen.line((content["toolbox"], "name"), f"  {content['description']}")
    by_server: dict[str, list[dict[str, Any]]] = {}
    for tool in content["tools"]:
        by_server.setdefault(tool["source_server"], []).append(tool)
    for server, tools in by_server.items():
        screen.blank()
        screen.line((server, "strong"))
        instructions = content.get("instructions", {}).get(server)
        if instructions:
            screen.line((instructions.strip(), "dim"), indent=2)
        for tool in tools:
            screen.line((signature(tool["name"], arguments_schema(tool)), "code"), indent=2)
            description = tool.get("description")
            if isinstance(description, str) and description.strip():
                screen.line(description.strip(), indent=6)
    for missing in content["unavailable"]:
        screen.blank()
        screen.line((missing["server"], "strong"), ("  unavailable", "bad"))
        screen.line(redactor.text(missing["reason"]), indent=2)
        screen.line(("hint: ", "name"), redactor.text(missing["retry"]), indent=2)
    screen.blank()
    count = len(content["tools"])
    tools_word = "1 tool" if count == 1 else f"{count} tools"
    # Four bytes for a token is the usual rule of thumb for English and JSON.
    screen.line((f"{tools_word}; about {size // 4:,} tokens for the agent (bytes / 4)", "dim"))
