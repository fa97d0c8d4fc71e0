"""`mcp-workbench find`: search for tools with the code that answers agents, and show people a line for each."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw

from mcp_workbench.cli.error_output import FAILED_STATUS, complain
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.interactive_client import configured_engine, interactive_client
from mcp_workbench.cli.result_content import ResultContent
from mcp_workbench.cli.screen import Part, Screen, stdout
from mcp_workbench.engine.economy.prose import clip
from mcp_workbench.engine.economy.search_answer import FULL_DEFINITIONS, NO_MATCH
from mcp_workbench.errors import WorkbenchError

_MOST: Final = 1000
_MAX_FOUND_REASON_LENGTH: Final = 100
_MORE_ABOUT_SERVERS: Final = "More about servers: mcp-workbench doctor"
# As the search writes them: where a tool is, and how many there are.
_TOOL_PATH: Final = re.compile(r"[^/\s]+/[^/]+/.+")
# Where in the configuration something is wrong, and what to do: `doctor` says it.
_PLACE: Final = re.compile(r", at \$\..*")
_SHOWN_OF_ALL: Final = re.compile(r"(\d+) of (\d+): ")


def run(parsed: Parsed) -> int:
    engine, redactor = configured_engine(parsed)
    words = " ".join(parsed.positionals)
    request: dict[str, object] = {"query": words}
    is_for_people = not (parsed.has("as-agent") or parsed.has("json"))
    if is_for_people:
        request["detail"] = "names"
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
        return complain(redactor.text(error.message), error.hint and redactor.text(error.hint), status=FAILED_STATUS)
    text = redactor.text(reading.as_text())
    if reading.is_error:
        return complain(text, status=FAILED_STATUS)
    if parsed.has("json"):
        stdout().json({"query": words, "text": text} if reading.structured is None else reading.structured)
    elif is_for_people:
        _show(stdout(), text)
    else:
        stdout().text(text)
    return FAILED_STATUS if text.startswith(NO_MATCH) else 0


def _show(screen: Screen, text: str) -> None:
    """Show a table of the tools, then what an agent is told besides, with advice for a shell."""
    found, *missing = re.split(r"\n(?=Not available: |Still starting: )", text)
    head, *lines = found.split("\n")
    rows: list[list[Part]] = []
    notes = []
    for line in lines:
        path, _, sentence = line.partition(" - ")
        if _TOOL_PATH.fullmatch(path):
            rows.append([(path, "name"), sentence])
        elif not line.startswith((FULL_DEFINITIONS, "Near: ", "In ")):
            notes.append(line)
    if head.startswith(NO_MATCH):
        # What follows is for an agent, which opens a toolbox next.
        notes = [f"{NO_MATCH} Try other words; mcp-workbench list shows all servers."]
    elif not rows:
        notes = [head, *notes]
    for note in notes:
        screen.line(note)
    if rows:
        screen.table(["", ""], rows)
    if matched := _SHOWN_OF_ALL.match(head):
        more = f"{matched[1]} of {matched[2]} matches; --limit N shows more. " if matched[1] != matched[2] else ""
        screen.blank()
        screen.line((f"{more}--as-agent also shows the arguments.", "dim"))
    # An agent has to decide whether to ask again and is told everything; a person wants to see what was found.
    for each in missing:
        screen.line(clip(_PLACE.sub("", each.partition("\n")[0]), _MAX_FOUND_REASON_LENGTH))
    if missing:
        screen.line(_MORE_ABOUT_SERVERS)


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 4 and 0 < int(text) <= _MOST:
        return int(text)
    raise UsageError(f"--limit is a number from 1 to {_MOST}; found `{text}`")
