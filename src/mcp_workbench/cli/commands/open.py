"""`mcp-workbench list --open`: show what an agent gets when it opens a toolbox, formatted or raw."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType
from msgspec.json import decode

from mcp_workbench.cli.arguments import arguments_schema
from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Screen, stderr, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.shared_engine import engine_for
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.economy.signature import signature
from mcp_workbench.engine.economy.tokens import BYTES_PER_TOKEN, MIN_TOKEN_BUDGET
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import NO_RETRY_ADVICE
from mcp_workbench.engine.printable import plural
from mcp_workbench.errors import WorkbenchError

# Digits of a number; larger ones make no difference.
_MAX_BUDGET_DIGITS: Final = 9


def run(parsed: Parsed) -> int:
    toolbox = parsed.positionals[0]
    request = OpenRequest(toolbox, budget=_budget(parsed.value("budget")))
    config = configuration(parsed)
    redactor = log_for(parsed, config)
    engine = engine_for(parsed, config, use_cache=not parsed.has("no-cache"), redactor=redactor)
    entries = engine.toolbox(toolbox)
    unknown = [entry for entry in entries.values() if entry.load_manifest() is None]
    failures: dict[str, WorkbenchError] = {}

    async def ask() -> None:
        # As with `open_toolbox`, failures are reported and the other servers are shown.
        results = await asyncio.gather(*(engine.listed(entry) for entry in unknown), return_exceptions=True)
        for entry, result in zip(unknown, results, strict=True):
            if isinstance(result, WorkbenchError):
                failures[entry.name] = result
            elif isinstance(result, BaseException):
                raise result

    if unknown:
        _while_shown(f"starting {', '.join(entry.name for entry in unknown)}", lambda: engine.run(ask))
    made, result = engine.opened(request, failures)
    content = decode(result, type=dict[str, Raw])["structuredContent"]
    text: str = decode(result)["content"][0]["text"]
    screen = stdout()
    if parsed.has("json"):
        screen.json(content)
    else:
        if not made.form.is_json:
            _show_text(screen, text, made.form.value, redactor)
        else:
            _show(screen, decode(content), len(text.encode()), redactor)
        # A person may wonder about a missing tool; a program would not read this.
        if len(unknown) < len(entries) and screen.is_terminal:
            screen.flush()
            remark("note", "from the cache; --no-cache asks the servers again")
    return FAILED_STATUS if len(failures) == len(entries) else 0


def _budget(value: str | None) -> int | UnsetType | None:
    if value is None:
        return UNSET
    if value == "null":
        return None
    if value.isascii() and value.isdecimal() and len(value) <= _MAX_BUDGET_DIGITS and int(value) >= MIN_TOKEN_BUDGET:
        return int(value)
    raise UsageError(
        f"--budget is a number of tokens from {MIN_TOKEN_BUDGET} up, or null for no limit; found `{value}`"
    )


def _while_shown(what: str, work: Any) -> None:
    screen = stderr()
    if not screen.is_terminal:
        work()
        return
    with screen.console.status(what):
        work()


def _show_text(screen: Screen, text: str, form: str, redactor: Redactor) -> None:
    screen.line(_for_a_shell(redactor.text(text)), is_whole=True)
    screen.blank()
    size = f"about {len(text.encode()) // BYTES_PER_TOKEN:,} tokens for the agent (bytes / 4), in the form {form}"
    screen.line((f"{size}; --budget null shows all definitions", "dim"))


def _for_a_shell(text: str) -> str:
    # The advice is for agents, which must not retry in a loop.
    return text.replace(NO_RETRY_ADVICE, "run the command again to try once more")


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
            screen.line((signature(tool["name"], arguments_schema(tool)).text, "code"), indent=2)
            description = tool.get("description")
            if isinstance(description, str) and description.strip():
                screen.line(description.strip(), indent=6)
    for missing in content["unavailable"]:
        screen.blank()
        screen.line((missing["server"], "strong"), ("  unavailable", "bad"))
        screen.line(redactor.text(missing["reason"]), indent=2)
        screen.line(("hint: ", "name"), _for_a_shell(redactor.text(missing["retry"])), indent=2)
    screen.blank()
    count = len(content["tools"])
    screen.line((f"{plural(count, 'tool')}; about {size // BYTES_PER_TOKEN:,} tokens for the agent (bytes / 4)", "dim"))
