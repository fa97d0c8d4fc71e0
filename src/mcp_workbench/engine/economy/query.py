"""What a query asks for: its terms and how much each counts, what in it is a value, and the actions it names.

Owns reading a query. Knows nothing about an index, except which terms it has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from itertools import chain, pairwise
from math import sqrt
from typing import NamedTuple

from mcp_workbench.engine.economy.actions import ACTIONS_OF_WORDS, actions, is_question
from mcp_workbench.engine.economy.terms import Splitter, runs, stem

# A query is a sentence or two; a pasted page would take long and match everything.
_MAX_QUERY_TERMS = 64
_MAX_QUERY_LENGTH = 4_000
# How many words have their terms cached: agents use the same ones again and again.
_MAX_CACHED_WORDS = 5_000

# Quoted text is mostly what the tool is given (a title, a message), sometimes the name of what is needed.
# No quote may begin inside another: what is never closed would be read again from each beginning.
_QUOTED = re.compile(
    r"\"[^\"\n]{1,400}\"|“[^“”\n]{1,400}”|「[^「」\n]{1,400}」|『[^『』\n]{1,400}』|《[^《》\n]{1,400}》"
    r"|(?<!\w)['‘][^'‘’\n]{1,400}['’](?!\w)"
)
_IN_QUOTES = 0.4
# Words of people who talk to somebody. Some tools have them too, so they still count.
_CONVERSATION = frozenset(
    map(
        stem,
        "help know like tell give provide additionally currently recently interested looking able wondering thanks hi "
        "hello hey friend family really specific various different along finally furthermore moreover possible suggest "
        "recommend".split(),
    )
)
_IN_CONVERSATION = 0.5
# The same in Chinese, by character. Some are also part of other words.
_PARTICLES = frozenset("的了我你您他她们吗呢吧啊这那些把被给帮也请要并将和在是个")
_WITH_PARTICLE = 0.2
# In a phrase such as `create note`, what is acted on says more than the action: many tools create something. In a
# longer text it is not as clear what belongs to what.
_MAX_TERMS_OF_A_PHRASE = 3
_ACTION_OF_A_PHRASE = 0.6
# A question in the present asks how things are now: `what time is it`.
_PRESENT = frozenset(("is", "are", "s"))
_CURRENT = stem("current")
_AS_QUESTION = 0.8


class Query(NamedTuple):
    """`wanted`: the terms, known or not, with their weights. `values`: those that look like names and numbers, which
    no tool can contain. `actions`: the kinds of action that it names (see `actions`)."""

    wanted: dict[str, float]
    values: set[str]
    actions: int


class QueryReader:
    """Reads queries. `known` are the terms of the index."""

    __slots__ = ("_known", "_split")

    def __init__(self, known: Container[str]) -> None:
        self._known = known
        self._split = Splitter()

    def read(self, text: str) -> Query:
        text = text[:_MAX_QUERY_LENGTH]
        if len(self._split) > _MAX_CACHED_WORDS:
            self._split.clear()
        quoted = _QUOTED.findall(text)
        spoken = runs(_QUOTED.sub(" ", text) if quoted else text)
        counts = self._counted(spoken)
        if not counts:
            # Everything is quoted: then it is the need itself.
            spoken, quoted = runs(text), []
            counts = self._counted(spoken)
        # Repetition is emphasis, with diminishing returns.
        wanted = {term: sqrt(count) * _importance(term) for term, count in counts.items()}
        if len(wanted) <= _MAX_TERMS_OF_A_PHRASE:
            named = wanted.keys() & ACTIONS_OF_WORDS.keys()
            if any(term in self._known for term in wanted.keys() - named):
                for term in named:
                    wanted[term] *= _ACTION_OF_A_PHRASE
        for term in self._counted(chain.from_iterable(map(runs, quoted))):
            wanted.setdefault(term, _IN_QUOTES)
        said = {run.lower() for run in spoken}
        asks = is_question(said)
        kinds = actions(wanted, asks=asks)
        if asks and not _PRESENT.isdisjoint(said):
            wanted.setdefault(_CURRENT, _AS_QUESTION)
        # `file system` may be written as one word, and `filesystem` as two.
        for one, other in pairwise(spoken[:_MAX_QUERY_TERMS]):
            # Pairs of words of other scripts are terms already. Not `I'd`, which would be an `id`.
            if (
                (joined := stem((one + other).lower())) in self._known
                and joined.isascii()
                and len(one) > 1 < len(other)
            ):
                wanted.setdefault(joined, 1.0)
        # `email Anna about 3 reports`: a word with a capital that does not begin the sentence, or a number, is what the
        # tool is given.
        values = (run for place, run in enumerate(spoken) if run[0].isdecimal() or (place and run[0].isupper()))
        return Query(wanted, {term for run in values for term in self._split[run]}, kinds)

    def _counted(self, spoken: Iterable[str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for run in spoken:
            counts.update(self._split[run])
            if len(counts) >= _MAX_QUERY_TERMS:
                break
        return counts


def _importance(term: str) -> float:
    if term.isascii():
        return _IN_CONVERSATION if term in _CONVERSATION else 1.0
    return 1.0 if _PARTICLES.isdisjoint(term) else _WITH_PARTICLE
