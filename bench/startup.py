"""How long a client waits for the `initialize` answer, against the least that an asyncio program costs to start.

Owns the spawning and its clock. Refuses to know what happens after the first answer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from bench.calls import Effort
from bench.findings import WORKBENCH, Finding, Verdict, share_of, values_of
from bench.subjects import Subject

IMPORT_ASYNCIO = 'python -c "import asyncio"'


def start_up(subjects: Sequence[Subject], effort: Effort) -> Finding:
    timed: dict[str, Callable[[], float]] = {IMPORT_ASYNCIO: lambda: interpreter(subjects[0], "import asyncio")}
    timed |= {subject.name: partial(to_first_answer, subject) for subject in subjects}
    samples = spawned_in_turn(timed, effort.spawns)
    ratio = share_of(samples, WORKBENCH, IMPORT_ASYNCIO)
    verdict = Verdict(f"spawn to `initialize` answer, against `{IMPORT_ASYNCIO}`", ratio, 2, False, "×")
    return Finding("start-up", "from spawn to the `initialize` answer", values_of(samples, "s"), verdict)


def spawned_in_turn(timed: dict[str, Callable[[], float]], spawns: int) -> dict[str, list[float]]:
    """Each in turn, the order reversed every other time; the first of each only fills the caches of the disk."""
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(spawns + 1):
        for name in timed if number % 2 == 0 else reversed(timed):
            seconds = timed[name]()
            if number:
                samples[name].append(seconds)
    return samples


def to_first_answer(subject: Subject) -> float:
    start = perf_counter()
    with subject.spawn() as caller:
        caller.initialize()
        return perf_counter() - start


def interpreter(like: Subject, program: str) -> float:
    """What Python takes for this program, in the environment of a subject."""
    start = perf_counter()
    subprocess.run([sys.executable, "-c", program], env=dict(like.environment), check=True)
    return perf_counter() - start
