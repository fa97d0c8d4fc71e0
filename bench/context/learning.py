"""What learning from use gains: users are simulated, each with some of the servers, and every need is asked of a user
who has had all needs of the other tasks before.

Owns the simulation. A past need teaches the first tool that it needed, as a call after a search would. The users are
made of few needs, so far fewer than all these cases are independent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from bench.context.data import Listed, Need
from mcp_workbench.engine.economy.index import Index
from mcp_workbench.engine.economy.learned_needs import LearnedNeeds

USERS = 20
SERVERS_OF_USER = 12
AMONG = (1, 5, 10)


class LearningRow(NamedTuple):
    """One set of needs: per cent found among the first, without and with what was learned."""

    name: str
    cases: int
    before: tuple[float, ...]
    after: tuple[float, ...]

    def cells(self) -> tuple[str, ...]:
        shares = (f"{one:.1f} → {other:.1f} %" for one, other in zip(self.before, self.after, strict=True))
        return self.name, f"{self.cases:,}", *shares


HEAD = ("set", "cases", *(f"first {among}" for among in AMONG))


def simulate(catalogue: Sequence[Listed], asked: Sequence[Need]) -> list[LearningRow]:
    servers = sorted({listed.server for listed in catalogue})
    ranks: dict[str, list[tuple[int, int]]] = {}
    for user in range(USERS):
        own = set(random.Random(user).sample(servers, min(SERVERS_OF_USER, len(servers))))
        index = Index.build([listed.entry() for listed in catalogue if listed.server in own])
        here = set(index.keys)
        needs = [need for need in asked if any(here.intersection(right) for right in need.gold)]
        for need in needs:
            past = [(index.words_of(each.text), _served(each, here)) for each in needs if each.task != need.task]
            gold = here.intersection(tool for right in need.gold for tool in right)
            pair = _rank(index, need, gold, None), _rank(index, need, gold, LearnedNeeds(past))
            ranks.setdefault(need.set, []).append(pair)
    rows = [_row(name, pairs) for name, pairs in sorted(ranks.items())]
    return [*rows, _row("all", [pair for pairs in ranks.values() for pair in pairs])]


def _served(need: Need, here: set[str]) -> str:
    return next(tool for right in need.gold for tool in right if tool in here)


def _rank(index: Index, need: Need, gold: set[str], learned: LearnedNeeds | None) -> int:
    hits = index.search(need.text, limit=max(AMONG), learned=learned).hits
    return next((place for place, hit in enumerate(hits) if hit.key in gold), max(AMONG))


def _row(name: str, pairs: Sequence[tuple[int, int]]) -> LearningRow:
    before, after = (tuple(100 * fmean(pair[side] < among for pair in pairs) for among in AMONG) for side in (0, 1))
    return LearningRow(name, len(pairs), before, after)
