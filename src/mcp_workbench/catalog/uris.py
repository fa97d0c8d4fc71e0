"""Which server a resource URI belongs to: the one that lists it, else the one whose template it fits. Pure.

URIs pass through unchanged, so two servers may list the same one; the first in the order of the configuration has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mcp_workbench.catalog.entry import ServerEntry

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


def owner(entries: Iterable[ServerEntry], uri: str) -> ServerEntry | None:
    """Who is asked for this URI. Of several templates that fit, the one that says most decides."""
    best, best_score = None, -1
    for entry in entries:
        if uri in entry.definitions("resources"):
            return entry
        for template in entry.definitions("resourceTemplates"):
            score = fit(uri, template)
            if score > best_score:
                best, best_score = entry, score
    return best


def fit(uri: str, template: str) -> int:
    """How many characters of a template a URI repeats; -1 when it cannot be an expansion of it.

    Wider than RFC 6570: an expression stands for anything. That only decides who is asked, and takes linear time where
    a regular expression made from a hostile template would not; whether the resource exists, the server decides.
    """
    literals = _literals(template)
    first, last = literals[0], literals[-1]
    if len(literals) == 1:
        return len(first) if uri == first else -1
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return -1
    position, end = len(first), len(uri) - len(last)
    for literal in literals[1:-1]:
        found = uri.find(literal, position, end)
        if found < 0:
            return -1
        position = found + len(literal)
    return sum(map(len, literals))


@lru_cache(maxsize=1024)
def _literals(template: str) -> tuple[str, ...]:
    return tuple(_EXPRESSION.split(template))
