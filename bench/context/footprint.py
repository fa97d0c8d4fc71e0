"""What the index itself costs: CPU to build, memory to keep, time to ask."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from bench.context.data import Listed, Need
from mcp_workbench.engine.economy.index import Index

# The least of several rounds: what is more is the work of whoever shares the processor.
_ROUNDS = 7


class Footprint(NamedTuple):
    """Seconds of CPU for building and for one query (mean over the needs, and the slowest twentieth), and bytes."""

    tools: int
    build: float
    query: float
    query_slow: float
    memory: int
    stored: int


def footprint(catalogue: Sequence[Listed], asked: Sequence[Need]) -> Footprint:
    entries = [listed.entry() for listed in catalogue]
    builds, means, slows = [], [], []
    index = Index.build(entries)
    for _ in range(_ROUNDS):
        begun = time.process_time()
        index = Index.build(entries)
        builds.append(time.process_time() - begun)
        each = []
        for need in asked:
            begun = time.process_time()
            index.search(need.text, limit=10)
            each.append(time.process_time() - begun)
        means.append(fmean(each))
        slows.append(sorted(each)[len(each) * 19 // 20])
    tracemalloc.start()
    kept = Index.build(entries)
    kept.search("mispelled wrods", limit=10)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Footprint(len(entries), min(builds), min(means), min(slows), memory, len(kept.to_bytes()))
