"""How long a client waits for the `initialize` answer, against the least that an asyncio program costs to start.

Owns the spawning and its clock. Refuses to know what happens after the first answer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from time import perf_counter

from bench.calls import Effort
from bench.findings import WORKBENCH, Finding, Verdict, share_of, values_of
from bench.subjects import Subject

IMPORT_ASYNCIO = 'python -c "import asyncio"'


def start_up(subjects: Sequence[Subject], effort: Effort) -> Finding:
    """Spawns in turn, the order reversed every other time; the first of each only fills the caches of the disk."""
    timed: dict[str, Callable[[], float]] = {IMPORT_ASYNCIO: lambda: _import_asyncio(subjects[0])}
    timed |= {subject.name: _to_first_answer(subject) for subject in subjects}
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(effort.spawns + 1):
        for name in timed if number % 2 == 0 else reversed(timed):
            seconds = timed[name]()
            if number:
                samples[name].append(seconds)
    ratio = share_of(samples, WORKBENCH, IMPORT_ASYNCIO)
    verdict = Verdict(f"spawn to `initialize` answer, against `{IMPORT_ASYNCIO}`", ratio, 2, False, "×")
    return Finding("start-up", "from spawn to the `initialize` answer", values_of(samples, "s"), verdict)


def _to_first_answer(subject: Subject) -> Callable[[], float]:
    def spawn() -> float:
        start = perf_counter()
        with subject.spawn() as caller:
            caller.initialize()
            return perf_counter() - start

    return spawn


def _import_asyncio(like: Subject) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio"], env=dict(like.environment), check=True)
    return perf_counter() - start
