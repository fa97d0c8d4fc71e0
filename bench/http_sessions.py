"""What a connected legacy client costs while it does nothing: memory for its session, and time of the processor.

Owns the thousand clients and the two readings. Each has shaken hands and holds its GET stream open. Refuses to know how
sessions are kept.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.client import BenchError
from bench.findings import Finding, Value, Verdict
from bench.http_client import HttpCaller
from bench.http_subjects import HttpWorkshop
from bench.processes import PROC, settled_memory_of

SESSIONS = 1000
MAX_INSTRUCTIONS_BYTES = 60 * 1024
# Long enough for every stream to get the comment that keeps proxies from cutting it.
IDLE_SECONDS = 20.0
# A hundredth of a core: the comments, and the noise of counting. A loop that polls is far beyond it.
MAX_BUSY = 1.0
FILES_WANTED = 4096


class Housed(NamedTuple):
    """A workbench with a thousand clients, and what it weighed before they came."""

    pid: int
    before: int
    after: int


def http_sessions(folder: Path) -> Finding:
    with _housed(folder) as housed:
        each = (housed.after - housed.before) / SESSIONS
    values = (
        Value("workbench before, RSS", "B", (housed.before,)),
        Value(f"workbench with {SESSIONS:,} sessions, RSS", "B", (housed.after,)),
    )
    verdict = Verdict("resident memory for each session", each, MAX_INSTRUCTIONS_BYTES, False, "B")
    return Finding("http-sessions", f"{SESSIONS:,} legacy sessions, each with a GET stream", values, verdict)


def http_idle(folder: Path) -> Finding:
    with _housed(folder) as housed:
        start, begun = time.monotonic(), processor_seconds(housed.pid)
        time.sleep(IDLE_SECONDS)
        used = processor_seconds(housed.pid) - begun
        passed = time.monotonic() - start
    values = (Value(f"workbench, processor time in {IDLE_SECONDS:.0f} s", "s", (used,)),)
    verdict = Verdict("of one core while nobody asks for anything", used / passed * 100, MAX_BUSY, False, "%")
    return Finding("http-idle", f"{SESSIONS:,} idle legacy sessions", values, verdict)


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used, to the nanosecond; the counters in `stat` are too coarse for us."""
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError as error:
        raise BenchError(f"processor time is read from /proc, which failed: {error}") from None


@contextmanager
def _housed(folder: Path) -> Iterator[Housed]:
    _allow_files()
    with ExitStack() as stack:
        workbench = HttpWorkshop(folder, stack).workbench(None)
        # The first session loads what all of them share.
        _enter(stack, workbench.url)
        before = settled_memory_of(workbench.pid).rss
        callers = [_enter(stack, workbench.url) for _ in range(SESSIONS)]
        yield Housed(workbench.pid, before, settled_memory_of(workbench.pid).rss)
        for caller in callers:
            caller.check_session()


def _enter(stack: ExitStack, url: str) -> HttpCaller:
    caller = stack.enter_context(HttpCaller(url, modern=False))
    caller.initialize()
    caller.open_stream()
    return caller


def _allow_files() -> None:
    """For us and for those we start: a thousand sockets on either side do not fit into the usual soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES_WANTED:
        wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
