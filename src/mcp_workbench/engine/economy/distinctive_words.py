"""The words that characterise groups of tools: those of one toolbox or server that the others do not have.

Owns the choice of words (TF-IDF with each group as one document). Knows nothing about what a group is. Words are
returned as people wrote them, not as stems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log, sqrt

from mcp_workbench.engine.economy.fields import SearchDocument, fields
from mcp_workbench.engine.economy.terms import is_pair, runs, spelt

_MIN_WORD_LENGTH = 3
_FROM_NAME = 2  # A word in a tool's name weighs twice as much as one in its first sentence.


def distinctive_words(groups: Mapping[str, Iterable[SearchDocument]], *, most: int = 8) -> dict[str, dict[str, float]]:
    """Up to `most` words for each group, the most distinctive first, with how distinctive they are. Those of its name
    are not repeated."""
    weights: dict[str, Counter[str]] = {}
    spellings: dict[str, Counter[str]] = {}
    split = _SpellingCache()
    for group, documents in groups.items():
        weights[group] = Counter()
        for document in documents:
            texts = fields(document)
            for text, weight in ((texts.name, _FROM_NAME), (texts.lead, 1)):
                # Counted once per tool: repeating a word in one tool does not make it typical of the group.
                found = dict(pair for run in runs(text) for pair in split[run])
                for term, spelling in found.items():
                    spellings.setdefault(term, Counter())[spelling] += 1
                    weights[group][term] += weight
    having = Counter(term for counts in weights.values() for term in counts)
    chosen = {}
    for group, counts in weights.items():
        said = {term for run in runs(group) for term, _ in split[run]}
        ranked = sorted(
            # The root: a toolbox with a hundred tools has every word often, which makes none of them typical.
            (-sqrt(count) * log((len(weights) + 1) / having[term]), term)
            for term, count in counts.items()
            if term not in said and _is_distinctive(term, count)
        )
        chosen[group] = _picked(ranked, spellings, most)
    return chosen


class _SpellingCache(dict[str, list[tuple[str, str]]]):
    def __missing__(self, run: str) -> list[tuple[str, str]]:
        self[run] = spelt(run)
        return self[run]


def _is_distinctive(term: str, count: int) -> bool:
    if is_pair(term):
        return count > 1  # A pair that occurs only once most likely spans two words.
    return len(term) >= _MIN_WORD_LENGTH and not term.isdecimal()


def _picked(ranked: Iterable[tuple[float, str]], spellings: Mapping[str, Counter[str]], most: int) -> dict[str, float]:
    picked: dict[str, float] = {}
    for worth, term in ranked:
        if len(picked) == most:
            break
        # Pairs of a script without spaces overlap: two with a character in common say the same.
        if not (is_pair(term) and any(is_pair(other) and set(term) & set(other) for other in picked)):
            picked[_usual(spellings[term])] = -worth
    return picked


def _usual(spellings: Counter[str]) -> str:
    """The most frequent spelling; of equally frequent ones the shortest, then the first in the alphabet."""
    return min(spellings, key=lambda spelling: (-spellings[spelling], len(spelling), spelling))
