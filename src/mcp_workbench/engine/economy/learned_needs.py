"""What a user needed before and which tool served it: ranks that tool higher for needs in similar words.

Owns which words of a need are kept, and when two needs are alike. Immutable, so that the same query has the same answer
as long as somebody holds one. Knows nothing about who the user is or where it is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from mcp_workbench.engine.economy.query import Query

# Words that two needs have in common, of all their words (Dice). Below it, needs have nothing to do with each other.
ALIKE: Final = 0.35
# What a tool gains that served the same need, as a share of the best score. Twice as much lets yesterday's tool win
# over one that is named in the query.
LEARNED: Final = 0.5
# Of a longer need, only the first words are kept: it is a task, of which one tool served a part.
MAX_WORDS_OF_NEED: Final = 24
# Words in quotes have this weight, and particles of Chinese less: neither says what is needed.
_QUOTED_WEIGHT: Final = 0.4


def words_of(query: Query) -> tuple[str, ...]:
    """The stems of a need that may be kept. Names, numbers and quotes are what the tool is given, so they are not."""
    words = (word for word, weight in query.wanted.items() if weight > _QUOTED_WEIGHT and word not in query.values)
    return tuple(words)[:MAX_WORDS_OF_NEED]


class Ranked(Protocol):
    """An index: what it ranks, in its order."""

    keys: list[str]


class LearnedNeeds:
    """Needs and the tools that served them."""

    __slots__ = ("_places", "_sizes", "_tools", "_with_word")

    def __init__(self, needs: Sequence[tuple[Iterable[str], str]] = ()) -> None:
        self._tools = [tool for _, tool in needs]
        self._sizes: list[int] = []
        # By word, the numbers of the needs that have it.
        self._with_word: dict[str, list[int]] = {}
        self._places: WeakKeyDictionary[Ranked, dict[str, int]] = WeakKeyDictionary()
        for number, (words, _) in enumerate(needs):
            different = set(words)
            self._sizes.append(len(different))
            for word in different:
                self._with_word.setdefault(word, []).append(number)

    def __bool__(self) -> bool:
        return bool(self._tools)

    def served(self, index: Ranked, query: Query) -> dict[int, float]:
        """The tools of an index that served needs like this one, with how alike the likest was, from 0 to 1."""
        words = words_of(query)
        common = Counter(number for word in words for number in self._with_word.get(word, ()))
        places, found = self._places_in(index), dict[int, float]()
        for number, shared in common.items():
            alike = 2 * shared / (len(words) + self._sizes[number])
            place = places.get(self._tools[number])
            if alike >= ALIKE and place is not None and alike > found.get(place, 0.0):
                found[place] = alike
        return found

    def _places_in(self, index: Ranked) -> dict[str, int]:
        places = self._places.get(index)
        if places is None:
            tools = set(self._tools)
            places = {key: place for place, key in enumerate(index.keys) if key in tools}
            self._places[index] = places
        return places
