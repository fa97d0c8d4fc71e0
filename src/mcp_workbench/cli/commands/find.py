"""`mcp-workbench find`: search for tools with the same code that answers agents."""

from __future__ import annotations

import re
import sys
from typing import Final

from msgspec import Raw

from mcp_workbench.cli.error_output import FAILED, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.interactive_client import configured_engine, interactive_client
from mcp_workbench.cli.result_content import ResultContent
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.wrapping import folded, width_of
from mcp_workbench.engine.economy.prose import clip
from mcp_workbench.engine.economy.search_answer import FULL_DEFINITIONS, MORE, NOTHING
from mcp_workbench.errors import WorkbenchError

_MOST: Final = 1000
_MAX_FOUND_REASON_LENGTH: Final = 100
_MORE_ABOUT_SERVERS: Final = "More about servers: mcp-workbench doctor"
_WHOLE: Final = "Full definitions: mcp-workbench list --open TOOLBOX --budget null."


def run(parsed: Parsed) -> int:
    engine, redactor = configured_engine(parsed)
    words = " ".join(parsed.positionals)
    request: dict[str, object] = {"query": words}
    toolbox = parsed.value("toolbox")
    if toolbox is not None:
        # Before anything is started: a misspelt name is refused with suggestions.
        engine.toolbox(toolbox)
        request["toolbox_name"] = toolbox
    limit = parsed.value("limit")
    if limit is not None:
        request["limit"] = _limit(limit)

    async def work() -> Raw:
        async with interactive_client(engine, "searching") as client:
            return await client.call_tool("open_toolbox", request)

    try:
        reading = ResultContent(engine.run(work))
    except WorkbenchError as error:
        return complain(redactor.text(error.message), error.hint and redactor.text(error.hint), status=FAILED)
    text = redactor.text(reading.as_text())
    if reading.is_error:
        return complain(text, status=FAILED)
    if parsed.has("json"):
        stdout().json({"query": words, "text": text} if reading.structured is None else reading.structured)
    else:
        stdout().text(folded(_for_people(text), width_of(sys.stdout)))
    return FAILED if text.startswith(NOTHING) else 0


def _for_people(text: str) -> str:
    """Replace the advice for agents with advice for a shell."""
    # The longer one first: it begins with the other.
    text = text.replace(f"\n{FULL_DEFINITIONS}{MORE}", f"\n{_WHOLE} More: --limit N.")
    text = text.replace(f"\n{FULL_DEFINITIONS}", f"\n{_WHOLE}")
    found, *missing = re.split(r"\n(?=Not available: |Still starting: )", text)
    if not missing:
        return text
    # An agent has to decide whether to ask again and is told everything; a person wants to see what was found.
    reasons = [clip(each.partition("\n")[0], _MAX_FOUND_REASON_LENGTH) for each in missing]
    return "\n".join([found, "", *reasons, _MORE_ABOUT_SERVERS])


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 4 and 0 < int(text) <= _MOST:
        return int(text)
    raise UsageError(f"--limit is a number from 1 to {_MOST}; found `{text}`")
