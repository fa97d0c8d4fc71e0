"""The words that tell groups of tools apart: what a toolbox or server has that the others have not.

Owns the choice of words (TF-IDF with each group as one document). Refuses to know what a group is. The words come out
as people wrote them, not as stems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log, sqrt

from mcp_workbench.economy.fields import SearchDocument, fields
from mcp_workbench.economy.terms import is_pair, runs, spelt

_SHORTEST = 3
_FROM_NAME = 2  # A word in a tool's name says twice what one in its first sentence does.


def distinctive_words(
    groups: Mapping[str, Iterable[SearchDocument]], *, most: int = 8, besides: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """For each group up to `most` words, the most distinctive first.

    `besides` is what is said about a group anyway, its name and description: those words are not repeated."""
    weights: dict[str, Counter[str]] = {}
    spellings: dict[str, Counter[str]] = {}
    split = _SpellingCache()
    for group, documents in groups.items():
        weights[group] = Counter()
        for document in documents:
            texts = fields(document)
            for text, weight in ((texts.name, _FROM_NAME), (texts.lead, 1)):
                # Once for each tool: a tool that repeats a word does not make its group more about it.
                found = dict(pair for run in runs(text) for pair in split[run])
                for term, spelling in found.items():
                    spellings.setdefault(term, Counter())[spelling] += 1
                    weights[group][term] += weight
    having = Counter(term for counts in weights.values() for term in counts)
    chosen = {}
    for group, counts in weights.items():
        said = {term for run in runs(f"{group} {(besides or {}).get(group, '')}") for term, _ in split[run]}
        ranked = sorted(
            (-sqrt(count) * log((len(weights) + 1) / having[term]), term)
            for term, count in counts.items()
            if term not in said and _is_distinctive(term, count)
        )
        chosen[group] = _picked((term for _, term in ranked), spellings, most)
    return chosen


class _SpellingCache(dict[str, list[tuple[str, str]]]):
    def __missing__(self, run: str) -> list[tuple[str, str]]:
        self[run] = spelt(run)
        return self[run]


def _is_distinctive(term: str, count: int) -> bool:
    if is_pair(term):
        return count > 1  # A pair that occurs once is most likely the end of one word and the start of the next.
    return len(term) >= _SHORTEST and not term.isdecimal()


def _picked(ranked: Iterable[str], spellings: Mapping[str, Counter[str]], most: int) -> tuple[str, ...]:
    picked: list[str] = []
    for term in ranked:
        if len(picked) == most:
            break
        if not (is_pair(term) and any(is_pair(other) and set(term) & set(other) for other in picked)):
            picked.append(_usual(spellings[term]))
    return tuple(picked)


def _usual(spellings: Counter[str]) -> str:
    """The most frequent spelling; of equally frequent ones the shortest, then the first in the alphabet."""
    return min(spellings, key=lambda spelling: (-spellings[spelling], len(spelling), spelling))
