"""Finding tools by need: field-weighted BM25 over a catalogue, in plain Python.

Owns the ranking. Knows nothing about where tools come from, who may see them (see `within`) or how a hit is presented.

The formula is BM25F: a term's occurrences are weighted by field and by the length of that field, summed over the
fields, and only then saturated. In addition, the score is multiplied by the share of the tool's name that the query
covers, which ranks `write_file` above tools that mention files at length. Words of the query also match their synonyms
and themselves written as one word or as two, and unknown words match a likely spelling.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from itertools import compress

import msgspec

from mcp_workbench.engine.economy.actions import ACTIONS_OF_WORDS
from mcp_workbench.engine.economy.fields import SearchDocument, fields
from mcp_workbench.engine.economy.learned_needs import LEARNED, LearnedNeeds, words_of
from mcp_workbench.engine.economy.postings import STEPS, Postings, numbers, post, rarity, read, written
from mcp_workbench.engine.economy.query import QueryReader
from mcp_workbench.engine.economy.synonyms import EVERYDAY, SYNONYMS
from mcp_workbench.engine.economy.terms import stem

NAME_COVERED = 1.0
# A tool that matches less than about one word of the query, or half of a short query, is a weak match, unless it has a
# word that few tools have: `create` says little, `weather` says enough.
_WEAK_WORDS = 1.1
_WEAK_SHARE = 0.5
_FEW_TOOLS = 0.01
_MIN_TOOLS = 3
_SAID_PLAINLY = 0.8  # The share of a word's value that it has in a name or a first sentence.
SYNONYM = 0.4
# The same for what tools are called that do what an everyday word says. A catalogue that has the word knows better.
EVERYDAY_WORD = 0.5
EVERYDAY_WORD_OF_A_TOOL = 0.1
# What a tool gains whose name has the action that the query names, and loses if it has another one. Little: it decides
# between tools for the same thing. In a long query, actions are those of a whole task.
AGREES = 1.1
DIFFERS = 0.8
_MAX_TERMS_PER_ACTION = 12
# How many tools beyond the limit may still rise above it by their action.
_RECONSIDERED = 20
MISSPELT = 0.7
_MAX_SPELLINGS = 3
_MIN_SPELLED_PART = 4


class Hit(msgspec.Struct, frozen=True):
    """A tool that was found: its key, its position in the indexed documents, its score, and whether it matches hardly
    more than one word of the query."""

    key: str
    position: int
    score: float
    is_weak: bool = False


class Found(msgspec.Struct, frozen=True):
    """The best hits, best first, and how many tools matched at all."""

    hits: tuple[Hit, ...]
    matched: int


class Index:
    """An immutable index: built once for a catalogue, stored as bytes, and safe to search from any thread."""

    __slots__ = (
        "__weakref__",
        "_actions",
        "_every",
        "_frequencies",
        "_name_shares",
        "_name_starts",
        "_name_tools",
        "_neighbours",
        "_numbers",
        "_postings",
        "_read",
        "_runs",
        "_starts",
        "_tools",
        "keys",
        "stamp",
    )

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self.keys = postings.keys
        self.stamp = postings.stamp
        self._numbers = {term: number for number, term in enumerate(postings.terms)}
        self._starts = numbers(postings.starts)
        # Shared lists of numbers: iterating over them creates no objects, on which a query would spend most of its
        # time.
        self._every = list(range(len(postings.keys)))
        self._tools = numbers(postings.tools)
        # The tools of each term that was asked for, by its number: most never are.
        self._runs: dict[int, list[int]] = {}
        self._frequencies = postings.frequencies
        self._name_starts = numbers(postings.name_starts)
        self._name_tools = numbers(postings.name_tools)
        self._name_shares = postings.name_shares
        self._neighbours: dict[tuple[str, int], list[str]] | None = None
        self._read = QueryReader(self._numbers).read
        self._actions = self._announced()

    def __repr__(self) -> str:
        return f"<Index of {len(self.keys)} tools, {len(self._numbers)} terms>"

    @classmethod
    def build(cls, documents: Iterable[SearchDocument], *, stamp: str = "") -> Index:
        """Index `documents` in order. `stamp` identifies this state of the catalogue for the caller."""
        return cls(post([(document.key, fields(document)) for document in documents], stamp))

    def to_bytes(self) -> bytes:
        return written(self._postings)

    @classmethod
    def from_bytes(cls, data: bytes) -> Index | None:
        """Read the index that `to_bytes` wrote; None if it is damaged or of another version."""
        postings = read(data)
        return cls(postings) if postings is not None else None

    def words_of(self, query: str) -> tuple[str, ...]:
        """The words of a need that may be kept (see `learned_needs`)."""
        return words_of(self._read(query))

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        within: Container[str] | None = None,
        learned: LearnedNeeds | None = None,
    ) -> Found:
        """The best `limit` tools for a query, among those whose key is in `within`. What the user `learned` before
        ranks higher."""
        scores = [0.0] * len(self.keys)
        covered: dict[int, float] = {}
        read = wanted, values, asked_actions = self._read(query)
        for term, weight in self._weigh(wanted).items():
            self._add(self._numbers[term], weight, scores, covered)
        for tool, share in covered.items():
            scores[tool] *= 1 + NAME_COVERED * share
        if learned:
            gain = LEARNED * (max(scores, default=0.0) or self._worth(wanted))
            for tool, alike in learned.served(self, read).items():
                scores[tool] += gain * alike
        keys = self.keys
        # In order, so that the first of equally good tools wins.
        matching = list(compress(self._every, scores))
        if within is not None:
            matching = [tool for tool in matching if keys[tool] in within]
        best = heapq.nlargest(limit + _RECONSIDERED, matching, key=scores.__getitem__)
        if asked_actions and len(wanted) <= _MAX_TERMS_PER_ACTION:
            best = self._by_action(best, scores, asked_actions)
        # An unknown action is none that a tool lacks: it is called something else here.
        asked = {
            term: weight
            for term, weight in wanted.items()
            if term in self._numbers or not (term in values or term in ACTIONS_OF_WORDS)
        }
        enough = min(
            self._worth(asked) * min(_WEAK_WORDS / max(len(asked), 1), _WEAK_SHARE),
            _SAID_PLAINLY * rarity(len(keys), max(int(len(keys) * _FEW_TOOLS), _MIN_TOOLS)),
        )
        hits = (
            Hit(keys[tool], tool, scores[tool], scores[tool] < enough * (1 + NAME_COVERED * covered.get(tool, 0.0)))
            for tool in best[:limit]
        )
        return Found(tuple(hits), len(matching))

    def _by_action(self, tools: list[int], scores: list[float], asked: int) -> list[int]:
        """`tools` ranked again by whether their actions are among those `asked` for."""
        announced = self._actions
        for tool in tools:
            if announced[tool]:
                scores[tool] *= AGREES if announced[tool] & asked else DIFFERS
        return sorted(tools, key=scores.__getitem__, reverse=True)

    def _worth(self, wanted: dict[str, float]) -> float:
        """The score of an ideal tool that has every word of the query often enough. An unknown word counts half as much
        as the rarest one: it may be essential or irrelevant."""
        tools, starts = len(self.keys), self._starts
        rarest = rarity(tools, 0)
        return (
            sum(
                weight * (rarity(tools, starts[number + 1] - starts[number]) if number is not None else rarest / 2)
                for term, weight in wanted.items()
                for number in (self._numbers.get(term),)
            )
            or rarest
        )

    def _announced(self) -> list[int]:
        """The kinds of action that each tool's name has."""
        announced = [0] * len(self.keys)
        for term, kinds in ACTIONS_OF_WORDS.items():
            if (number := self._numbers.get(term)) is not None:
                for tool in self._name_tools[self._name_starts[number] : self._name_starts[number + 1]]:
                    announced[tool] |= kinds
        return announced

    def _add(self, number: int, weight: float, scores: list[float], covered: dict[int, float]) -> None:
        first, last = self._starts[number], self._starts[number + 1]
        factor = weight * rarity(len(scores), last - first) / STEPS
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = list(map(self._every.__getitem__, self._tools[first:last]))
        for tool, frequency in zip(run, self._frequencies[first:last], strict=True):
            scores[tool] += factor * frequency
        first, last = self._name_starts[number], self._name_starts[number + 1]
        spoken = min(weight, 1.0) / STEPS
        for tool, share in zip(self._name_tools[first:last], self._name_shares[first:last], strict=True):
            covered[tool] = covered.get(tool, 0.0) + spoken * share

    def _weigh(self, wanted: dict[str, float]) -> dict[str, float]:
        """The known terms to look up, with their weights: those of the query, their synonyms and likely spellings."""
        weights = {term: weight for term, weight in wanted.items() if term in self._numbers}
        for term, weight in wanted.items():
            everyday = EVERYDAY_WORD_OF_A_TOOL
            if term not in self._numbers:
                everyday = EVERYDAY_WORD
                for spelling in (*self._spellings(term), *self._parts(term)):
                    weights.setdefault(spelling, weight * MISSPELT)
            for others, share in ((SYNONYMS.get(term, ()), SYNONYM), (EVERYDAY.get(term, ()), everyday)):
                for other in others:
                    if other in self._numbers and weights.get(other, 0.0) < weight * share:
                        weights[other] = weight * share
        return weights

    def _parts(self, term: str) -> tuple[str, ...]:
        """The two known words that an unknown one consists of."""
        if len(term) < 2 * _MIN_SPELLED_PART or not (term.isascii() and term.isalpha()):
            return ()
        for at in range(_MIN_SPELLED_PART, len(term) - _MIN_SPELLED_PART + 1):
            one, other = stem(term[:at]), stem(term[at:])
            if one in self._numbers and other in self._numbers:
                return one, other
        return ()

    def _spellings(self, term: str) -> list[str]:
        """Known terms one typing error away from an unknown one. Short words and numbers have too many such
        neighbours."""
        if len(term) < 5 or not (term.isascii() and term.isalpha()):
            return []
        if self._neighbours is None:
            self._neighbours = {}
            # Grouped by first letter and length when the first unknown word comes: people rarely mistype the first
            # letter, and most queries need none of it.
            for known in self._numbers:
                self._neighbours.setdefault((known[0], len(known)), []).append(known)
        near = (
            known
            for length in (len(term), len(term) + 1, len(term) - 1)
            for known in self._neighbours.get((term[0], length), ())
            if _one_slip(term, known)
        )
        return [spelling for spelling, _ in zip(near, range(_MAX_SPELLINGS), strict=False)]


def _one_slip(one: str, other: str) -> bool:
    """Whether two different words differ by one extra, missing or wrong letter, or by two swapped neighbours."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    if len(one) == len(other):
        return one[1:] == other[1:] or (one[:2] == other[1::-1] and one[2:] == other[2:])
    return one[1:] == other if len(one) > len(other) else one == other[1:]
