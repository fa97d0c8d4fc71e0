"""`python -m soak`: run, and write docs/internals/soak.md. Exit status 0 when everything held, 1 when not."""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from soak.record import Record, Settings
from soak.report import write
from soak.run import Run
from soak.samples import Samples
from tests.support.processes import adopt_orphans, available

DOCS = Path(__file__).resolve().parent.parent / "docs" / "internals"
# A connection for each client on either side, four descriptors for each server, and room.
MAX_DEMO_FILES = 65_536


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=1000, help="over HTTP, half of each era")
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--stdio", type=int, default=4, help="workbenches over stdio beside the one over HTTP")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two calls of a client, about")
    parser.add_argument("--kill-pause", type=float, default=1.0, help="seconds between two kills, about")
    parser.add_argument("--large-pause", type=float, default=20.0, help="seconds between two large messages")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where soak.md and soak.svg go")
    given = parser.parse_args()
    if not available():
        print("the soak run reads /proc, which only Linux has", file=sys.stderr)
        return 2
    _raise_limit()
    adopt_orphans()
    settings = Settings(
        given.minutes, given.clients, given.servers, given.stdio, given.pause, given.kill_pause, given.large_pause
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        record = Record(settings, Samples(folder / "samples.jsonl"))
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(_run(record, folder, given.docs))
        finally:
            record.is_over = True
            write(record, given.docs)
    problems = record.verdict()
    print(f"{record.accounts!r}", *(f"- {problem}" for problem in problems), sep="\n")
    print(f"written to {given.docs / 'soak.md'}")
    return 1 if problems else 0


async def _run(record: Record, folder: Path, docs: Path) -> None:
    run = Run(record, folder, lambda: write(record, docs))
    loop = asyncio.get_running_loop()

    def asked_to_end() -> None:
        run.end()
        # The next one ends us at once; the report is written even then.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_end)
    try:
        await run.play()
    except Exception as error:
        record.problems.append(f"the run broke off: {error!r}")
        print(f"the run broke off: {error!r}", file=sys.stderr)
    except asyncio.CancelledError:
        record.problems.append("the run was broken off before its end")
        raise


def _raise_limit() -> None:
    """As many files as we may have: for ourselves, and for the workbench, which inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DEMO_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_DEMO_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
