"""What tools do, in a few kinds: whether the action that a query asks for is the one that a tool's name announces.

Owns the kinds and the words for them. Knows nothing about ranking.

A kind is wider than a synonym: `add`, `save` and `write` all make something that was not there before. That is too
little to find a tool by, and enough to choose between `add_note` and `list_notes` for "create a note".
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.engine.economy.terms import stem

_ACTION_WORDS = """
create add make new insert write generate build append save store register record put post compose draft upload attach
read get list show fetch retrieve view search find query lookup check describe see look display browse inspect load
update edit modify change set rename replace patch adjust move
delete remove erase drop clear cancel uninstall discard
send post publish submit share reply notify forward
run execute start launch invoke trigger call
stop kill end terminate close cancel pause
convert transform translate export format encode decode
calculate compute evaluate sum solve
"""
# Questions ask to be told something.
_QUESTION_WORDS = frozenset("what which who whose where when".split())


def _table() -> dict[str, int]:
    """The kinds of each word, one bit each: `post` both makes and sends."""
    kinds: dict[str, int] = {}
    for number, line in enumerate(_ACTION_WORDS.split("\n")):
        for word in line.split():
            kinds[stem(word)] = kinds.get(stem(word), 0) | 1 << number
    return kinds


ACTIONS_OF_WORDS = _table()


def is_question(words: Iterable[str]) -> bool:
    return not _QUESTION_WORDS.isdisjoint(words)


def actions(terms: Iterable[str], *, asks: bool) -> int:
    """The kinds of action that a query names; 0 if it names none. A question without a verb `asks` to read."""
    named = 0
    for term in terms:
        named |= ACTIONS_OF_WORDS.get(term, 0)
    return named or (ACTIONS_OF_WORDS["read"] if asks else 0)
