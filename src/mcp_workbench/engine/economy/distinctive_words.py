"""The words that characterise groups of tools: those of one toolbox or server that the others do not have.

Owns the choice of words: each is chosen for the tools that those before it do not cover, and for how sure a reader can
be that it means this group. Knows nothing about what a group is. Words are returned as people wrote them, not as stems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import log, sqrt
from typing import Final

from mcp_workbench.engine.economy.fields import Fields, SearchDocument, fields
from mcp_workbench.engine.economy.terms import is_pair, runs, spelt

_MIN_WORD_LENGTH: Final = 3
# What a tool still counts once a word covers it: one word seldom says all that a tool does.
_COVERED: Final = 0.7
# As if every word also occurred so often elsewhere: that it occurs once, and only here, may be chance.
_UNSEEN: Final = 2.0


def distinctive_words(groups: Mapping[str, Iterable[SearchDocument]], *, most: int = 8) -> dict[str, dict[str, float]]:
    """Up to `most` words for each group, the most distinctive first, with how much each adds to those before it. Those
    of its name are not repeated."""
    split = _SpellingCache()
    spellings: dict[str, Counter[str]] = {}
    leads: dict[str, list[tuple[str, ...]]] = {}
    # How often a term occurs in a group, relative to its size, and in all of them.
    shares: dict[str, dict[str, float]] = {}
    everywhere: dict[str, float] = {}
    for group, documents in groups.items():
        leads[group] = tools = []
        counts: Counter[str] = Counter()
        for document in documents:
            texts = fields(document)
            tools.append(_lead(texts, split, spellings))
            counts.update({*tools[-1], *_terms(texts.rest, split)})
        # The root: a toolbox with a hundred tools has every word often, which makes none of them typical.
        root = sqrt(len(tools))
        for term, count in counts.items():
            everywhere[term] = everywhere.get(term, 0.0) + count / root
        shares[group] = {term: counts[term] / root for lead in tools for term in lead}
    having = Counter(term for terms in shares.values() for term in terms)
    chosen = {}
    for group, tools in leads.items():
        worth = {
            term: share / (everywhere[term] + _UNSEEN) * log((len(leads) + 1) / having[term])
            for term, share in shares.pop(group).items()
        }
        chosen[group] = _picked(tools, _terms(group, split), worth, spellings, most)
    return chosen


class _SpellingCache(dict[str, list[tuple[str, str]]]):
    def __missing__(self, run: str) -> list[tuple[str, str]]:
        self[run] = spelt(run)
        return self[run]


def _terms(text: str, split: _SpellingCache) -> set[str]:
    return {term for run in runs(text) for term, _ in split[run]}


def _lead(texts: Fields, split: _SpellingCache, spellings: dict[str, Counter[str]]) -> tuple[str, ...]:
    """The terms of a tool's name, twice, because they weigh twice as much, and of its first sentence. Repeating a word
    does not make it typical of the group, so each counts once for each text."""
    found: list[str] = []
    for text, weight in ((texts.name, 2), (texts.lead, 1)):
        said = dict(pair for run in runs(text) for pair in split[run])
        for term, spelling in said.items():
            spellings.setdefault(term, Counter())[spelling] += 1
        found += [*said] * weight
    return tuple(found)


def _picked(
    tools: Sequence[tuple[str, ...]],
    named: set[str],
    worth: Mapping[str, float],
    spellings: Mapping[str, Counter[str]],
    most: int,
) -> dict[str, float]:
    """One word after the other, each the one that adds most."""
    where: dict[str, list[int]] = {}
    for number, lead in enumerate(tools):
        for term in lead:
            where.setdefault(term, []).append(number)
    left = [_COVERED ** len(named.intersection(lead)) for lead in tools]

    def added(term: str) -> float:
        return worth[term] * sum(left[number] for number in where[term]) / sqrt(len(tools))

    candidates = [
        (-added(term), term)
        for term, numbers in where.items()
        if term not in named and _is_distinctive(term, len(numbers))
    ]
    heapify(candidates)
    picked: dict[str, float] = {}
    pairs: set[str] = set()
    while candidates and len(picked) < most:
        before, term = heappop(candidates)
        # What a term adds only ever becomes less, so the first that still adds what it did adds most.
        if (now := -added(term)) > before:
            heappush(candidates, (now, term))
        elif not is_pair(term) or pairs.isdisjoint(term):
            # Pairs of a script without spaces overlap: two with a character in common say the same.
            if is_pair(term):
                pairs.update(term)
            picked[_usual(spellings[term])] = -now
            for number in set(where[term]):
                left[number] *= _COVERED
    return picked


def _is_distinctive(term: str, count: int) -> bool:
    if is_pair(term):
        return count > 1  # A pair that occurs only once most likely spans two words.
    return len(term) >= _MIN_WORD_LENGTH and not term.isdecimal()


def _usual(spellings: Counter[str]) -> str:
    """The most frequent spelling; of equally frequent ones the shortest, then the first in the alphabet."""
    return min(spellings, key=lambda spelling: (-spellings[spelling], len(spelling), spelling))
