"""`open_toolbox` as the face `proxy` answers it: an index, a toolbox within a budget, the best tools for a need, or
whole definitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET, Raw

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.economy.instructions import Box
from mcp_workbench.economy.prose import clip
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.face.paths import candidates, path_of
from mcp_workbench.face.request import OpenRequest
from mcp_workbench.face.shelves import Shelves
from mcp_workbench.face.wording import error_result, no_such
from mcp_workbench.jsonrpc.messages import encode
from mcp_workbench.protocol.results import with_first_member

Failures = dict[tuple[str, str], WorkbenchError]
# What one server may say of itself in the answer for a whole toolbox.
LONGEST_INSTRUCTIONS: Final = 600
NO_RETRY_ADVICE: Final = "call open_toolbox again to try once more"


def index_result(boxes: Iterable[Box]) -> bytes:
    """Which toolboxes there are."""
    listed = [
        {
            "toolbox_name": box.name,
            "description": box.description,
            "servers": list(box.servers),
            **({} if box.tools is None else {"tools": box.tools}),
            **({"about": list(box.words)} if box.words else {}),
        }
        for box in boxes
    ]
    return _result({"toolboxes": listed})


def opened_result(
    catalog: Catalog,
    shelves: Shelves,
    request: OpenRequest,
    failures: Failures,
    changed: list[str],
) -> bytes:
    """The tools of one toolbox in the longest form that fits its budget, and what is not available and why."""
    from mcp_workbench.economy.forms import Form
    from mcp_workbench.economy.ladder import listing, render

    assert request.toolbox_name is not None
    toolbox = catalog.config.toolboxes[request.toolbox_name]
    entries = catalog.toolboxes[toolbox.name]
    available = [entry for entry in entries.values() if (toolbox.name, entry.name) not in failures]
    tools = shelves.tools(available)
    made = listing(
        tools,
        budget=_budget(catalog, request),
        form=None if request.detail is None else Form(request.detail),
        cursor=request.cursor,
        extras=request.detail == "full",
    )
    content: dict[str, object] = {"toolbox": toolbox.name, "description": toolbox.description, "form": str(made.form)}
    if made.form is not Form.FULL or made.cursor is not None:
        content["note"] = made.note
    text = None
    if made.form.is_json:
        content["tools"] = [Raw(each.text.encode()) for each in made.shown]
        instructions = _server_instructions(available)
        if instructions and request.cursor is None:
            content["instructions"] = instructions
    else:
        lines: dict[str, list[str]] = {}
        for each in made.shown:
            lines.setdefault(each.tool.server, []).append(each.text)
        content["listing"] = lines
        text = render(made) + _said_unavailable(failures)
    if made.cursor is not None:
        content["cursor"] = made.cursor
    content["unavailable"] = unavailable(failures)
    if changed:
        content["changed"] = changed
    return _result(content, text=text, is_error=len(failures) == len(entries))


def found_result(catalog: Catalog, shelves: Shelves, request: OpenRequest, failures: Failures) -> bytes:
    """The best tools for a need, inside a toolbox or everywhere."""
    from mcp_workbench.economy.answer import LIMIT, NEXT_IN_RANK, answer
    from mcp_workbench.economy.tool import Tool

    assert request.query is not None
    limit = request.limit or LIMIT
    entries = [
        entry
        for entry in catalog.entries()
        if request.toolbox_name in (None, entry.toolbox) and (entry.toolbox, entry.name) not in failures
    ]
    tools = {tool.path: tool for tool in shelves.tools(entries)}
    found = shelves.index().search(request.query, limit=limit + NEXT_IN_RANK, within=tools)
    siblings: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools.values():
        siblings.setdefault((tool.toolbox, tool.server), []).append(tool)
    made = answer([tools[hit.key] for hit in found.hits], matched=found.matched, siblings=siblings, limit=limit)
    content: dict[str, object] = {
        "query": request.query,
        "tools": [
            {"toolbox_name": tool.toolbox, "source_server": tool.server, "name": tool.name} for tool in made.tools
        ],
        "matched": made.matched,
        "near": [tool.path for tool in made.near],
    }
    if failures:
        content["unavailable"] = unavailable(failures)
    return _result(content, text=made.text + _said_unavailable(failures))


def named_entries(catalog: Catalog, request: OpenRequest) -> list[ServerEntry]:
    """The servers that the named tools can be on."""
    found: dict[tuple[str, str], ServerEntry] = {}
    for path in request.tools:
        for entry, _ in _meant(catalog, request, path):
            found[entry.toolbox, entry.name] = entry
    return list(found.values())


def definitions_result(catalog: Catalog, request: OpenRequest, failures: Failures) -> bytes:
    """Whole definitions of the tools that were named."""
    definitions: list[Raw] = []
    missing: list[str] = []
    for path in request.tools:
        for entry, tool in _meant(catalog, request, path):
            if tool in entry.tools and (entry.toolbox, entry.name) not in failures:
                definitions.append(Raw(located(entry.tools[tool], entry.toolbox, entry.name)))
                break
        else:
            known = [path_of(entry, tool) for entry in catalog.entries() for tool in entry.tools]
            missing.append(no_such("tool", path, known))
    if not definitions:
        return error_result("\n".join(missing))
    content: dict[str, object] = {"tools": definitions}
    if missing:
        content["missing"] = missing
    if failures:
        content["unavailable"] = unavailable(failures)
    return _result(content)


def _meant(catalog: Catalog, request: OpenRequest, path: str) -> list[tuple[ServerEntry, str]]:
    if request.toolbox_name is not None and not path.startswith(request.toolbox_name + "/"):
        path = f"{request.toolbox_name}/{path}"
    return list(candidates(catalog, path))


def unavailable(failures: Failures) -> list[dict[str, str]]:
    """What cannot be used right now: said, never hidden."""
    return [
        {"server": server, "reason": error.message, "retry": error.hint or NO_RETRY_ADVICE}
        for (_, server), error in failures.items()
    ]


def _said_unavailable(failures: Failures) -> str:
    return "".join(f"\nNot available: {'/'.join(key)}: {error.message}" for key, error in failures.items())


def located(definition: Raw, toolbox: str, server: str) -> bytes:
    """A definition as its server wrote it, with where it is found."""
    where = b'"toolbox_name":%b,"source_server":%b' % (encode(toolbox), encode(server))
    return with_first_member(bytes(definition), where)


def _budget(catalog: Catalog, request: OpenRequest) -> int | None:
    if request.budget is not UNSET:
        return request.budget if isinstance(request.budget, int) else None
    assert request.toolbox_name is not None
    own = catalog.config.toolboxes[request.toolbox_name].budget
    return (catalog.config.budget if own is None else own) or None


def _server_instructions(entries: Iterable[ServerEntry]) -> dict[str, str]:
    return {
        entry.name: clip(entry.offer.profile.instructions, LONGEST_INSTRUCTIONS)
        for entry in entries
        if entry.offer is not None and entry.offer.profile.instructions
    }


def _result(content: dict[str, object], *, text: str | None = None, is_error: bool = False) -> bytes:
    structured = encode(content)
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (
        encode(structured.decode() if text is None else text),
        structured,
        b',"isError":true' if is_error else b"",
    )
