"""Whether the instructions alone say which toolbox has what is needed.

Owns the measurement: each server is a toolbox, and the line of the instructions that has most of a need's words, rare
ones first, is the toolbox that is opened. A model understands more than words; it does not know more about a toolbox
than its line says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log

from bench.context.data import Listed, Need
from mcp_workbench.engine.catalog.tool_index import WORDS_OF_A_TOOLBOX
from mcp_workbench.engine.economy.distinctive_words import distinctive_words
from mcp_workbench.engine.economy.fields import SearchDocument
from mcp_workbench.engine.economy.instructions import Box, instructions
from mcp_workbench.engine.economy.terms import terms


def routed(catalogue: Sequence[Listed], asked: Sequence[Need], *, most: int) -> float:
    """Per cent of the needs whose first right tool is in the toolbox that instructions of at most so many bytes point
    to."""
    servers: dict[str, list[SearchDocument]] = {}
    home: dict[str, str] = {}
    for listed in catalogue:
        servers.setdefault(listed.server, []).append(listed.entry())
        home[listed.id] = listed.server
    lines = introductions(servers, most)
    having = Counter(word for line in lines.values() for word in line)
    right = 0
    for need in asked:
        wanted = set(terms(need.text))
        worth = {
            name: sum(log(1 + len(lines) / having[word]) for word in wanted & line) for name, line in lines.items()
        }
        best = max(worth, key=worth.__getitem__)
        right += bool(worth[best]) and best in {home[tool] for tool in need.gold[0] if tool in home}
    return 100 * right / len(asked)


def introductions(servers: Mapping[str, Sequence[SearchDocument]], most: int) -> dict[str, set[str]]:
    """The terms of each toolbox's line, as far as it has one."""
    words = distinctive_words(servers, most=WORDS_OF_A_TOOLBOX)
    boxes = [
        Box(name, "", len(tools), tuple(words[name]), (name,), tuple(words[name].values()))
        for name, tools in servers.items()
    ]
    _, _, told = instructions(boxes, most=most).partition("\nToolboxes:\n")
    return {name: set(terms(line)) for name, line in zip(servers, told.split("\n"), strict=True)}
