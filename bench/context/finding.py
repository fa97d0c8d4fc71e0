"""Putting the right tool in front of an agent: how often it works, and what it costs.

Owns the rules of the measurement. A need is asked once. The right tool is *in front* when the answer shows it, with its
signature or by name. The cost is that of the request and its answer; where the answer has only the name, or a signature
that is not complete, also that of asking for the definition. What is never found costs its answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple
from unittest.mock import patch

from bench.context.data import Count, Listed, Need
from mcp_workbench.engine.economy import index as search
from mcp_workbench.engine.economy.forms import Form, show
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.economy.search_answer import LIMIT, NEXT_IN_RANK, answer
from mcp_workbench.engine.economy.tool import Tool

# How often one of the best tools may be offered alike before fewer places are filled.
_TWINS = 10


class Reached(NamedTuple):
    """How a set of needs fared, in per cent of the needs, and the mean cost of one in tokens."""

    needs: int
    first: float
    first_five: float
    shown: float
    in_front: float
    tokens: float
    tokens_when_found: float


def rank(index: Index, need: Need, *, limit: int) -> int | None:
    """The place of the first right tool for a need, counted from 0."""
    places = [place for place, hit in enumerate(index.search(need.text, limit=limit).hits) if hit.key in need.gold[0]]
    return places[0] if places else None


def share(index: Index, asked: Sequence[Need], *, among: int) -> float:
    found = sum(rank(index, need, limit=among) is not None for need in asked)
    return 100 * found / len(asked)


def share_of_places(index: Index, catalogue: Sequence[Listed], asked: Sequence[Need], *, among: int) -> float:
    """The same by places of an answer, where what several servers offer alike takes one."""
    offered = {listed.id: (listed.name, listed.description, bytes(listed.input_schema)) for listed in catalogue}
    found = 0
    for need in asked:
        places: dict[object, bool] = {}
        for hit in index.search(need.text, limit=_TWINS * among).hits:
            same = offered[hit.key]
            places[same] = places.get(same, False) or hit.key in need.gold[0]
        found += any([*places.values()][:among])
    return 100 * found / len(asked)


def share_without_synonyms(index: Index, asked: Sequence[Need], *, among: int) -> float:
    """What the ranking finds on its own. The tables are the part of it that somebody wrote by hand."""
    with patch.object(search, "SYNONYMS", {}), patch.object(search, "EVERYDAY", {}):
        return share(index, asked, among=among)


def reach(index: Index, catalogue: Sequence[Listed], asked: Sequence[Need], count: Count) -> Reached:
    tools = {listed.id: listed.tool() for listed in catalogue}
    keys = {tool.path: key for key, tool in tools.items()}
    siblings: dict[tuple[str, str], list[Tool]] = {}
    for tool in tools.values():
        siblings.setdefault((tool.toolbox, tool.server), []).append(tool)
    costs, found_costs, shown = [], [], 0
    for need in asked:
        found = index.search(need.text, limit=LIMIT + NEXT_IN_RANK)
        weak = {tools[hit.key].path for hit in found.hits if hit.is_weak}
        made = answer([tools[hit.key] for hit in found.hits], matched=found.matched, siblings=siblings, weak=weak)
        cost = count(json.dumps({"query": need.text}, ensure_ascii=False)) + count(made.text)
        ready = [tool for tool in made.tools if keys[tool.path] in need.gold[0]]
        right = ready or [tool for tool in made.near if keys[tool.path] in need.gold[0]]
        shown += bool(ready)
        if right and not any(tool not in made.incomplete for tool in ready):
            shown_whole = f'{{"tools":[{show(right[0], Form.FULL).text}]}}'
            cost += count(json.dumps({"tools": [right[0].path]})) + count(shown_whole)
        costs.append(cost)
        if right:
            found_costs.append(cost)
    return Reached(
        needs=len(asked),
        first=share(index, asked, among=1),
        first_five=share(index, asked, among=5),
        shown=100 * shown / len(asked),
        in_front=100 * len(found_costs) / len(asked),
        tokens=fmean(costs),
        tokens_when_found=fmean(found_costs) if found_costs else 0.0,
    )
