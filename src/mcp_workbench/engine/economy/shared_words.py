"""Suggests names that share words with a wrong one, in any order, for names that are not just misspelled.

One pure function over names; searching descriptions is the task of the index.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.engine.economy.terms import Splitter, runs

_MOST_CHARACTERS = 400


def with_words_of(name: str, names: Iterable[str], *, limit: int) -> list[str]:
    """At most `limit` of `names`, ranked by the words they share with `name`; rare words count more."""
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
