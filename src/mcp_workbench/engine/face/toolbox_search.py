"""`open_toolbox` with `query` or `tools`: the best tools for a query, or the definitions of named tools. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.names import path_of
from mcp_workbench.engine.catalog.tool_index import Indexed, ServerTools, ToolIndex, tool_of
from mcp_workbench.engine.economy.prose import clip, cut
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import (
    Failures,
    budget_of,
    bytes_of,
    tool_result,
    unavailable,
    unavailable_text,
)
from mcp_workbench.engine.face.paths import Parts, ToolPlace, fitting, named, places_of, readings
from mcp_workbench.engine.face.suggestions import about_path, listed, no_such_path, paths_of
from mcp_workbench.engine.face.wording import REVIEW, error_result
from mcp_workbench.engine.jsonrpc.messages import encode

# The fraction of a budget (one in this many) for messages about missing tools, and the maximum number of messages.
_SHARE_OF_MISSING: Final = 4
_MAX_MISSING_SERVERS: Final = 5
# In how many toolboxes each of the best tools may occur before fewer different tools are found.
_TWINS: Final = 10
# Space for a note and the names of members.
_NOTE_BYTES: Final = 300
# Bytes for what there is where nothing matches.
_WHAT_IS_THERE: Final = 600

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.index import Found
    from mcp_workbench.engine.economy.named_tools import Named
    from mcp_workbench.engine.economy.tool import Tool
    from mcp_workbench.engine.face.use import ViewUse


# ── search ──


def found_result(
    catalog: Catalog, tool_index: ToolIndex, request: OpenRequest, failures: Failures, use: ViewUse | None = None
) -> bytes:
    """The best tools for a query, in one toolbox or in all, for a client whose use is remembered or not."""
    from mcp_workbench.engine.economy.forms import Form
    from mcp_workbench.engine.economy.search_answer import LIMIT, NEXT_IN_RANK, answer

    assert request.query is not None
    limit = request.limit or LIMIT
    indexed = tool_index.latest
    within = _within(tool_index, indexed, request, failures)
    learned = None if use is None else use.needs()
    if use is not None:
        use.searched(indexed.index.words_of(request.query))
    found = indexed.search(request.query, limit + NEXT_IN_RANK, within, learned)
    ranked = _ranked(tool_index, indexed, found)
    # A tool that stands in many toolboxes takes many places in the ranking, and one in the answer.
    if len(_different(ranked)) < limit and len(found.hits) < found.matched:
        found = indexed.search(request.query, _TWINS * (limit + NEXT_IN_RANK), within, learned)
        ranked = _ranked(tool_index, indexed, found)
    failed = unavailable(failures, budget_of(catalog, request)) if failures else []
    form = None if request.detail is None else Form(request.detail)
    if form is not None and form.is_json:
        return _definitions(catalog, request, ranked[:limit], failed, {"matched": found.matched})
    most = bytes_of(budget_of(catalog, request))
    skills = _skills(catalog, request.query, request.toolbox_name)
    said = (skill_lines(skills) if skills else "") + unavailable_text(failed)
    made = answer(
        ranked,
        matched=found.matched,
        siblings=_siblings(ranked[:limit], catalog),
        limit=limit,
        form=form,
        most=None if most is None else most - max(len(said.encode()), len(encode([failed, skills]))),
        weak={hit.key for hit in found.hits if hit.is_weak},
        instead="" if found.matched else _what_is_there(catalog, tool_index, request.toolbox_name),
    )
    beside = {name: found for name, found in (("skills", skills), ("unavailable", failed)) if found}
    return tool_result(made.text + said, {**made.content, **beside})


def _skills(catalog: Catalog, query: str, inside: str | None) -> list[dict[str, str]]:
    if not any(entry.definitions("skills") for entry in catalog.entries()):
        return []
    # Few servers have skills.
    from mcp_workbench.engine.face.merged_skills import found_skills

    return found_skills(catalog, query, inside)


def skill_lines(found: Sequence[dict[str, str]]) -> str:
    return "".join(
        f"\nskill: {each['toolbox_name']}/{each['source_server']}/{each['name']}: {each['description']} ({each['uri']})"
        for each in found
    )


def _what_is_there(catalog: Catalog, tool_index: ToolIndex, inside: str | None) -> str:
    """For a query that matches nothing: the toolboxes, or the tools of the one that was searched."""
    from mcp_workbench.engine.economy.instructions import introduced

    if inside is None:
        return introduced(tool_index.boxes(), _WHAT_IS_THERE)
    tools = [name for entry in catalog.toolboxes[inside].values() for name in entry.tools]
    return clip(f"Its tools: {', '.join(tools)}", _WHAT_IS_THERE) if tools else ""


def unread(
    catalog: Catalog, tool_index: ToolIndex, request: OpenRequest, failures: Failures, use: ViewUse | None = None
) -> Sequence[ServerEntry]:
    """The servers of what a query finds whose manifests have not been read yet."""
    from mcp_workbench.engine.economy.search_answer import LIMIT, NEXT_IN_RANK

    assert request.query is not None
    limit = request.limit or LIMIT
    indexed = tool_index.latest
    within = _within(tool_index, indexed, request, failures)
    learned = None if use is None else use.needs()
    found = indexed.search(request.query, limit + NEXT_IN_RANK, within, learned)
    places = [indexed.place(hit) for hit in found.hits]
    if len({name for _, name in places}) < limit and len(found.hits) < found.matched:
        found = indexed.search(request.query, _TWINS * (limit + NEXT_IN_RANK), within, learned)
        places = [indexed.place(hit) for hit in found.hits]
    entries = (tool_index.entry_of(span) for span in dict.fromkeys(span for span, _ in places))
    # Skills are in no index.
    with_skills = [entry for entry in catalog.unread(catalog.entries()) if entry.store.has_skills(entry.key)]
    return [*catalog.unread(entry for entry in entries if entry is not None), *with_skills]


def _ranked(tool_index: ToolIndex, indexed: Indexed, found: Found) -> list[Tool]:
    places = ((tool_index.entry_of(span), name) for span, name in map(indexed.place, found.hits))
    return [_tool(entry, name) for entry, name in places if entry is not None and name in entry.tools]


def _different(tools: Sequence[Tool]) -> set[tuple[str, bytes]]:
    """A tool that occurs in several toolboxes takes one place in the result."""
    return {(tool.name, tool.definition) for tool in tools}


def _within(
    tool_index: ToolIndex, indexed: Indexed, request: OpenRequest, failures: Failures
) -> frozenset[ServerTools] | None:
    """The servers to search; None for all."""
    inside = request.toolbox_name
    every = [span for span in indexed.spans if span.tools]
    found = frozenset(
        span
        for span in every
        if inside in (None, span.toolbox)
        and (span.toolbox, span.server) not in failures
        and (entry := tool_index.entry_of(span)) is not None
        and entry.failure is None
    )
    return None if len(found) == len(every) else found


def _siblings(ranked: Sequence[Tool], catalog: Catalog) -> dict[tuple[str, str], list[Tool]]:
    """The tools of every server with a match."""
    # Their names are shown beside what was found: what one needs next is often on the same server.
    places = dict.fromkeys((tool.toolbox, tool.server) for tool in ranked)
    entries = {(box, server): catalog.toolboxes[box][server] for box, server in places}
    return {place: [_tool(entry, name) for name in entry.tools] for place, entry in entries.items()}


def _tool(entry: ServerEntry, name: str) -> Tool:
    return tool_of(entry, name, entry.tools[name])


# ── named tools ──


def concerned(catalog: Catalog, request: OpenRequest) -> list[ServerEntry]:
    """The servers whose manifests have to be read to find the named tools."""
    inside = request.toolbox_name
    others = list(catalog.entries()) if inside is None else list(catalog.toolboxes[inside].values())
    full = [[entry for entry, _ in _named(catalog, request, path)] for path in request.tools]
    return others if not all(full) else [entry for entries in full for entry in entries]


def named_entries(catalog: Catalog, request: OpenRequest) -> list[ServerEntry]:
    """The servers that have to be listed before the named tools can be shown."""
    found: list[ServerEntry] = []
    for path in request.tools:
        places = _named(catalog, request, path) or _fitting(catalog, request, path)
        found += [entry for entry, _ in places]
        if not places:
            # A bare name would start every server.
            possible = [parts for parts in _readings(catalog, request, path) if parts[0] or parts[1]]
            found += [entry for parts in possible for entry in places_of(catalog, parts) if not entry.is_available]
    return list(dict.fromkeys(found))


def definitions_result(catalog: Catalog, request: OpenRequest, failures: Failures) -> bytes:
    """The definitions of the named tools."""
    tools: dict[str, Tool] = {}
    missing: list[str] = []
    for path in request.tools:
        places = _named(catalog, request, path) or _fitting(catalog, request, path)
        known = [(entry, tool) for entry, tool in places if tool in entry.tools and _is_usable(entry, failures)]
        if len(known) == 1:
            tools.setdefault(path_of(*known[0]), _tool(*known[0]))
        else:
            missing.append(_why_not(catalog, request, path, places, failures))
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
    kept = [cut(text, most // _SHARE_OF_MISSING // _MAX_MISSING_SERVERS) for text in missing[:_MAX_MISSING_SERVERS]]
    return [*kept, f"and {len(missing) - len(kept)} more"] if len(missing) > len(kept) else kept


def _definitions(
    catalog: Catalog, request: OpenRequest, tools: Sequence[Tool], failed: list[dict[str, str]], more: dict[str, object]
) -> bytes:
    from mcp_workbench.engine.economy.forms import Form
    from mcp_workbench.engine.economy.named_tools import named as definitions_of

    beside: dict[str, object] = {**more, **({"unavailable": failed} if failed else {})}
    most = bytes_of(budget_of(catalog, request))
    # Tools that are left out are named in the result: for fifty names, a few kilobytes at most.
    room = (
        None
        if most is None
        else most - len(encode(beside)) - _NOTE_BYTES - sum(len(tool.path) + 3 for tool in tools[1:])
    )
    form = None if request.detail is None else Form(request.detail)
    made = definitions_of(tools, most=room, form=form)
    return _shown(made, beside, failed)


def _shown(made: Named, beside: dict[str, object], failed: list[dict[str, str]]) -> bytes:
    from mcp_workbench.engine.economy.forms import DESCRIBED

    # Named all the same, so that they can be asked for by themselves.
    left_out = [tool.path for tool in made.left_out]
    forms = {each.form for each in made.shown}
    content: dict[str, object] = {
        "form": "/".join(sorted(forms)),
        **beside,
        "tools": [Raw(each.structured()) for each in made.shown],
        **({"note": made.note} if made.note else {}),
        **({"left_out": left_out} if left_out else {}),
    }
    if all(form.is_json for form in forms):
        text = encode({**content, "tools": [Raw(each.text.encode()) for each in made.shown]}).decode()
        return tool_result(text, content)
    missing = beside.get("missing", [])
    assert isinstance(missing, list)
    lines = [each.text for each in made.shown]
    if len(forms) == 1:
        lines.insert(0, f"{len(made.shown)} tool{'s' * (len(made.shown) != 1)}, {DESCRIBED[made.shown[0].form]}:")
    if left_out:
        lines.append(f"Left out: {', '.join(left_out)}")
    said = "\n".join([*([made.note] if made.note else []), *lines, *missing])
    return tool_result(said + unavailable_text(failed), content)


def _named(catalog: Catalog, request: OpenRequest, path: str) -> list[ToolPlace]:
    """What a full path names. Inside a toolbox, paths are most likely meant without it."""
    inside = request.toolbox_name
    return (named(catalog, f"{inside}/{path}") if inside is not None else []) or named(catalog, path)


def _readings(catalog: Catalog, request: OpenRequest, path: str) -> list[Parts]:
    inside = request.toolbox_name
    if inside is None:
        return list(readings(catalog, path))
    return [parts for parts in readings(catalog, f"{inside}/{path}") if parts[0] == inside]


def _fitting(catalog: Catalog, request: OpenRequest, path: str) -> list[ToolPlace]:
    """The tools that a path without its toolbox or server fits: to show one is not to call it."""
    possible = (parts for parts in _readings(catalog, request, path) if parts[2])
    return list(dict.fromkeys(place for parts in possible for place in fitting(catalog, parts)))


def _is_usable(entry: ServerEntry, failures: Failures) -> bool:
    return (entry.toolbox, entry.name) not in failures


def _why_not(catalog: Catalog, request: OpenRequest, path: str, places: Sequence[ToolPlace], failures: Failures) -> str:
    shown = path[:100]
    if len(places) > 1:
        return f"`{shown}` can mean several tools: {listed(paths_of(places))}; give the full path of one"
    for entry, tool in places:
        if not _is_usable(entry, failures):
            return f"tool `{shown}` cannot be shown: its server is not available"
        if (reason := entry.why_withheld(tool)) is not None:
            return f"tool `{shown}` is withheld: {reason}; {REVIEW}"
        if tool in entry.hidden:
            return f"tool `{shown}` is excluded by `toolFilters` in the configuration"
        return no_such_path(catalog, path_of(entry, tool))
    inside = request.toolbox_name
    return about_path(catalog, path if inside is None else f"{inside}/{path}")
