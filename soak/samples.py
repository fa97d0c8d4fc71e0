"""How a workbench is doing over time, as the kernel and its own status tell it.

Owns the readings and what they add up to. Refuses to know what should hold.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.vitals import resident_bytes
from tests.support.client import Conversation
from tests.support.processes import open_descriptors


@dataclass(frozen=True)
class Sample:
    """One reading."""

    seconds: float
    memory: int
    descriptors: int
    tasks: int
    calls_in_flight: int
    calls: int
    # Of the calls that were answered since the last reading, in seconds; None when there were none.
    median: float | None
    slow: float | None


@dataclass(frozen=True)
class Reading:
    """What can be told of one workbench at one moment."""

    memory: int
    descriptors: int
    tasks: int
    calls_in_flight: int


async def read(pid: int, client: Conversation) -> Reading:
    """`client` asks for `workbench://status`: how many tasks there are only the process itself can tell."""
    result = await client.request("resources/read", {"uri": "workbench://status"})
    status = json.loads(result["contents"][0]["text"])
    under_way = sum(server["callsInFlight"] for server in status["servers"])
    return Reading(resident_bytes(pid), len(open_descriptors(pid)), status["tasks"], under_way)


class Samples:
    """All readings of a run, in memory and, should that be lost, in a file."""

    def __init__(self, path: Path) -> None:
        self.all: list[Sample] = []
        self._path = path
        path.write_text("")

    def take(self, seconds: float, reading: Reading, calls: int, latencies: Sequence[float]) -> None:
        """`latencies` sorted."""
        median = statistics.median(latencies) if latencies else None
        slow = latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))] if latencies else None
        sample = Sample(seconds, **asdict(reading), calls=calls, median=median, slow=slow)
        self.all.append(sample)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def drift(self, of: Callable[[Sample], int]) -> tuple[float, float]:
        """The median when everybody had arrived, and at the end: over the second and the last tenth of the run."""
        tenth = max(1, len(self.all) // 10)
        return (
            statistics.median(map(of, self.all[tenth : 2 * tenth] or self.all)),
            statistics.median(map(of, self.all[-tenth:])),
        )
