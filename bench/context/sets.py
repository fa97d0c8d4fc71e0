"""All sets of labelled needs side by side: how much of what is needed is among the first five.

Owns the comparison with plain BM25F, which reads the same words and has no weights, no synonyms and no actions. What
does not beat it on several sets is fitted to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import NamedTuple
from unittest.mock import patch

from bench.context.data import Need, catalogue, halves, needs_by_set, sets
from mcp_workbench.engine.economy import index as search
from mcp_workbench.engine.economy import postings
from mcp_workbench.engine.economy.index import Index

AMONG = 5
_PLAIN = {
    search: {"NAME_COVERED": 0.0, "SYNONYMS": {}, "EVERYDAY": {}, "AGREES": 1.0, "DIFFERS": 1.0},
    postings: {"FIELDS": dict.fromkeys(postings.FIELDS, (1.0, 0.75)), "SATURATION": 1.2, "COMMON_SHARE": 1.0},
}


class SetRow(NamedTuple):
    """One set: how many tools and needs, and per cent found in the half that was looked at and in the one that was not,
    by our search and by plain BM25F."""

    name: str
    tools: int
    looked_at: int
    kept: int
    ours: tuple[float, float]
    plain: tuple[float, float]

    def cells(self) -> tuple[str, ...]:
        shares = (f"{share:.1f} %" for share in (*self.ours, *self.plain))
        return self.name, f"{self.tools:,}", f"{self.looked_at:,} + {self.kept:,}", *shares


HEAD = ("set", "tools", "needs", "looked at", "not looked at", "plain: looked at", "plain: not")


def compare(folder: Path) -> list[SetRow]:
    rows = []
    for name in sets(folder):
        documents = [listed.entry() for listed in catalogue(folder, name)]
        ours = Index.build(documents)
        split = {label: halves(asked) for label, asked in needs_by_set(folder, name).items()}
        found = {label: _both(ours, parts) for label, parts in split.items()}
        with _plain():
            untuned = Index.build(documents)
            plain = {label: _both(untuned, parts) for label, parts in split.items()}
        rows += [
            SetRow(label, len(documents), len(parts[0]), len(parts[1]), found[label], plain[label])
            for label, parts in split.items()
        ]
    return rows


def recall(index: Index, need: Need) -> float:
    """The share of the things needed for which a right tool is among the first."""
    best = {hit.key for hit in index.search(need.text, limit=AMONG).hits}
    return fmean(not best.isdisjoint(right) for right in need.gold)


def _both(index: Index, parts: tuple[Sequence[Need], Sequence[Need]]) -> tuple[float, float]:
    looked_at, kept = (100 * fmean([recall(index, need) for need in part] or [0.0]) for part in parts)
    return looked_at, kept


@contextmanager
def _plain() -> Iterator[None]:
    with ExitStack() as stack:
        for module, values in _PLAIN.items():
            for name, value in values.items():
                stack.enter_context(patch.object(module, name, value))
        yield
