"""`open_toolbox` with `query` or `tools`: the best tools for a query, or the definitions of named tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.catalog.names import path_of
from mcp_workbench.catalog.tool_index import ToolIndex, tool_of
from mcp_workbench.economy.prose import cut
from mcp_workbench.economy.shared_words import with_words_of
from mcp_workbench.face.open_request import OpenRequest
from mcp_workbench.face.opening import (
    Failures,
    budget_of,
    bytes_of,
    json_result,
    text_result,
    unavailable,
    unavailable_text,
)
from mcp_workbench.face.paths import Ambiguous, NotListed, ResolvedPath, find
from mcp_workbench.face.wording import REVIEW, error_result, no_such
from mcp_workbench.jsonrpc.messages import encode

# The fraction of a budget (one in this many) for messages about missing tools, and the maximum number of messages.
_SHARE_OF_MISSING: Final = 4
_MOST_MISSING: Final = 5
# How many candidates for an ambiguous path are named.
_MOST_MEANT: Final = 10
# How many tools that share words with an unknown path are named.
_MOST_ALIKE: Final = 5
# In how many toolboxes each of the best tools may occur before fewer different tools are found.
_TWINS: Final = 10
# Space for a note and the names of members.
_NOTE: Final = 300

if TYPE_CHECKING:
    from mcp_workbench.economy.index import Found
    from mcp_workbench.economy.named_tools import Named
    from mcp_workbench.economy.tool import Tool


# ── search ──


def found_result(catalog: Catalog, tool_index: ToolIndex, request: OpenRequest, failures: Failures) -> bytes:
    """The best tools for a query, in one toolbox or in all."""
    from mcp_workbench.economy.forms import Form
    from mcp_workbench.economy.search_answer import LIMIT, NEXT_IN_RANK, answer

    assert request.query is not None
    limit = request.limit or LIMIT
    places = tool_index.places()
    within = _within(catalog, places, request, failures)
    found, ranked = _ranked(tool_index, request.query, limit + NEXT_IN_RANK, within)
    # A tool that stands in many toolboxes takes many places in the ranking, and one in the answer.
    if len(_different(ranked)) < limit and len(found.hits) < found.matched:
        found, ranked = _ranked(tool_index, request.query, _TWINS * (limit + NEXT_IN_RANK), within)
    failed = unavailable(failures, budget_of(catalog, request)) if failures else []
    form = None if request.detail is None else Form(request.detail)
    if form is not None and form.is_json:
        return _definitions(catalog, request, ranked[:limit], failed, {"matched": found.matched})
    most = bytes_of(budget_of(catalog, request))
    said = unavailable_text(failed)
    made = answer(
        ranked,
        matched=found.matched,
        siblings=_siblings(ranked[:limit], catalog),
        limit=limit,
        form=form,
        most=None if most is None else most - len(said.encode()),
        weak={hit.key for hit in found.hits if hit.is_weak},
    )
    return text_result(made.text + said)


def _ranked(tool_index: ToolIndex, query: str, limit: int, within: set[str] | None) -> tuple[Found, list[Tool]]:
    places = tool_index.places()
    found = tool_index.latest_index().search(query, limit=limit, within=within)
    return found, [_tool(*places[hit.key]) for hit in found.hits if hit.key in places]


def _different(tools: Sequence[Tool]) -> set[tuple[str, bytes]]:
    """A tool that occurs in several toolboxes takes one place in the result."""
    return {(tool.name, tool.definition) for tool in tools}


def _within(
    catalog: Catalog,
    places: Mapping[str, tuple[ServerEntry, str]],
    request: OpenRequest,
    failures: Failures,
) -> set[str] | None:
    """The paths to search; None for all."""
    inside = request.toolbox_name
    if inside is None and not failures and all(entry.failure is None for entry in catalog.entries()):
        return None
    return {
        path
        for path, (entry, _) in places.items()
        if inside in (None, entry.toolbox) and entry.failure is None and (entry.toolbox, entry.name) not in failures
    }


def _siblings(ranked: Sequence[Tool], catalog: Catalog) -> dict[tuple[str, str], list[Tool]]:
    """The tools of every server with a match."""
    # Their names are shown beside what was found: what one needs next is often on the same server.
    places = dict.fromkeys((tool.toolbox, tool.server) for tool in ranked)
    entries = {(box, server): catalog.toolboxes[box][server] for box, server in places}
    return {place: [_tool(entry, name) for name in entry.tools] for place, entry in entries.items()}


def _tool(entry: ServerEntry, name: str) -> Tool:
    return tool_of(entry, name, entry.tools[name])


# ── named tools ──


def named_entries(catalog: Catalog, request: OpenRequest) -> list[ServerEntry]:
    """The servers that have to be listed before the named tools can be shown."""
    found: dict[tuple[str, str], ServerEntry] = {}
    for path in request.tools:
        match _meant(catalog, request, path):
            case ResolvedPath(entry, _):
                found[entry.toolbox, entry.name] = entry
            case NotListed(entries):
                found.update({(entry.toolbox, entry.name): entry for entry in entries})
    return list(found.values())


def definitions_result(catalog: Catalog, request: OpenRequest, failures: Failures) -> bytes:
    """The definitions of the named tools."""
    tools: dict[str, Tool] = {}
    missing: list[str] = []
    for path in request.tools:
        meant = _meant(catalog, request, path)
        if (
            isinstance(meant, ResolvedPath)
            and meant.is_known
            and (meant.entry.toolbox, meant.entry.name) not in failures
        ):
            tools.setdefault(path_of(meant.entry, meant.tool), _tool(meant.entry, meant.tool))
        else:
            missing.append(_why_not(catalog, path, meant, failures))
    budget = budget_of(catalog, request)
    failed = unavailable(failures, budget) if failures else []
    missing = _few(missing, budget)
    if not tools:
        return error_result("\n".join(missing) + unavailable_text(failed))
    return _definitions(catalog, request, list(tools.values()), failed, {"missing": missing} if missing else {})


def _few(missing: list[str], budget: int | None) -> list[str]:
    """The messages about missing tools, within their share of the budget."""
    most = bytes_of(budget)
    if most is None or len("".join(missing).encode()) <= most // _SHARE_OF_MISSING:
        return missing
    kept = [cut(text, most // _SHARE_OF_MISSING // _MOST_MISSING) for text in missing[:_MOST_MISSING]]
    return [*kept, f"and {len(missing) - len(kept)} more"] if len(missing) > len(kept) else kept


def _definitions(
    catalog: Catalog, request: OpenRequest, tools: Sequence[Tool], failed: list[dict[str, str]], more: dict[str, object]
) -> bytes:
    from mcp_workbench.economy.forms import Form
    from mcp_workbench.economy.named_tools import named

    beside: dict[str, object] = {**more, **({"unavailable": failed} if failed else {})}
    most = bytes_of(budget_of(catalog, request))
    # Tools that are left out are named in the result: for fifty names, a few kilobytes at most.
    room = None if most is None else most - len(encode(beside)) - _NOTE - sum(len(tool.path) + 3 for tool in tools[1:])
    form = None if request.detail is None else Form(request.detail)
    made = named(tools, most=room, form=form, extras=request.detail == "full")
    return _shown(made, beside, failed)


def _shown(made: Named, beside: dict[str, object], failed: list[dict[str, str]]) -> bytes:
    from mcp_workbench.economy.forms import DESCRIBED

    # Named all the same, so that they can be asked for by themselves.
    left_out = [tool.path for tool in made.left_out]
    forms = {each.form for each in made.shown}
    if all(form.is_json for form in forms):
        content: dict[str, object] = {"form": "/".join(sorted(forms)), **beside}
        content["tools"] = [Raw(each.text.encode()) for each in made.shown]
        if made.note:
            content["note"] = made.note
        if left_out:
            content["left_out"] = left_out
        return json_result(content)
    missing = beside.get("missing", [])
    assert isinstance(missing, list)
    lines = [each.text for each in made.shown]
    if len(forms) == 1:
        lines.insert(0, f"{len(made.shown)} tool{'s' * (len(made.shown) != 1)}, {DESCRIBED[made.shown[0].form]}:")
    if left_out:
        lines.append(f"Left out: {', '.join(left_out)}")
    return text_result("\n".join([*([made.note] if made.note else []), *lines, *missing]) + unavailable_text(failed))


def _meant(catalog: Catalog, request: OpenRequest, path: str) -> ResolvedPath | Ambiguous | NotListed | None:
    inside = request.toolbox_name
    if inside is not None:
        # Inside a toolbox, names are most likely meant without it.
        within = find(catalog, f"{inside}/{path}")
        if within is not None:
            return within
    return find(catalog, path)


def _why_not(
    catalog: Catalog, path: str, meant: ResolvedPath | Ambiguous | NotListed | None, failures: Failures
) -> str:
    match meant:
        case ResolvedPath(entry, tool) if (entry.toolbox, entry.name) in failures:
            return f"tool `{path[:100]}` cannot be shown: its server is not available"
        case ResolvedPath(entry, tool) if (reason := entry.why_withheld(tool)) is not None:
            return f"tool `{path[:100]}` is withheld: {reason}; {REVIEW}"
        case ResolvedPath(entry, tool) if tool in entry.hidden:
            return f"tool `{path[:100]}` is excluded by `toolFilters` in the configuration"
    return missing(catalog, path, meant)


def missing(catalog: Catalog, path: str, meant: ResolvedPath | Ambiguous | NotListed | None) -> str:
    """Why a path refers to no tool: the candidates of an ambiguous path or name, else similar names."""
    paths = meant.paths if isinstance(meant, Ambiguous) else ()
    if not paths and "/" not in path:
        paths = tuple(path_of(entry, path) for entry in catalog.entries() if path in entry.tools)
    if not paths:
        text = _nearest_or_alike(path, [path_of(entry, tool) for entry in catalog.entries() for tool in entry.tools])
        if meant is None and any(entry.offer is None for entry in catalog.entries()):
            text += "\nNot all servers have been listed yet: open_toolbox with `query` lists them"
        return text
    listed = ", ".join(f"`{each}`" for each in paths[:_MOST_MEANT])
    more = f" and {len(paths) - _MOST_MEANT} more" if len(paths) > _MOST_MEANT else ""
    if len(paths) == 1:
        return f"`{path[:100]}` is not a full path; it can mean {listed}"
    return f"`{path[:100]}` can mean several tools: {listed}{more}; give the full path of one"


def _nearest_or_alike(path: str, known: list[str]) -> str:
    """Say that there is no such tool, and suggest tools with a similar spelling, or else with the same words."""
    text = no_such("tool", path, known, most_others=0)
    if not known or "did you mean" in text:
        return text
    alike = with_words_of(path, known, limit=_MOST_ALIKE)
    if alike:
        return f"{text}; similar tools are {', '.join(f'`{each}`' for each in alike)}"
    return f'{text}; find one with open_toolbox {{"query": "…"}}'
