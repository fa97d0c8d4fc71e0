"""Names that share words with a wrong one, whatever the order: what was probably meant where the spelling is far off.

Owns one pure function over names alone; looking through descriptions is the work of the index.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.economy.terms import Splitter, runs

_MOST_CHARACTERS = 400


def with_words_of(name: str, names: Iterable[str], *, limit: int) -> list[str]:
    """At most `limit` of `names`, those that share most words with `name` first; words that fewer have count more."""
    split = Splitter()
    wanted = {term for run in runs(name[:_MOST_CHARACTERS]) for term in split[run]}
    found: list[tuple[str, set[str]]] = []
    having = dict.fromkeys(wanted, 0)
    for each in names:
        shared = {term for run in runs(each[:_MOST_CHARACTERS]) for term in split[run]} & wanted
        if shared:
            found.append((each, shared))
            for term in shared:
                having[term] += 1
    found.sort(key=lambda pair: -sum(1 / having[term] ** 0.5 for term in pair[1]))
    return [each for each, _ in found[:limit]]
