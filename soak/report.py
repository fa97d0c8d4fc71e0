"""A run as a page: docs/internals/soak.md, and its picture.

Owns the words and the tables. Refuses to know how the run went on.
"""

from __future__ import annotations

import os
from pathlib import Path

from soak.plot import Panel, draw
from soak.record import Record
from soak.samples import Reading, Sample

MB = 1e6
MAX_REASONS = 20

WHAT = """\
# A long run

`make soak` wrote this page. It puts a crowd of clients around one workbench with many servers, most of them over stdio
and some at an address, kills and stops servers at random, sends large messages, and accounts for every call; then it
looks at what is left. It is the longer form of two cases of the fault suite in `tests/faults`."""
PICTURE = """\
![Memory, descriptors, tasks and latency over time](soak.svg)

Read from the kernel and from `workbench://status`. The workbench holds a connection for each client over HTTP, four
descriptors and one task for each server over stdio, and for each server at an address one task and as many connections
as it has calls under way. Peaks of memory are messages of 16 and 64 MiB that pass through. Latency is what clients see
of calls that servers answer at once: it includes the starts of servers that had been killed, and that clients,
workbench and servers wait for each other on the same cores. Servers at an address close a connection that was idle for
half a second: now and then that meets a call, which then fails, because it must not be repeated."""
AGAIN = """\
## Again

```sh
make soak                                                      # an hour, unless told otherwise
make soak SOAK_ARGS="--minutes 5 --clients 200 --servers 20"   # for a smaller machine
```

Interrupted (Ctrl-C), it ends in order and writes this page for as long as it went; interrupted twice, at once."""


def write(record: Record, folder: Path) -> None:
    """Replace both files."""
    _replace(folder / "soak.svg", _picture(record.samples.all))
    _replace(folder / "soak.md", _page(record))


def _replace(path: Path, content: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(content, encoding="utf-8")
    os.replace(draft, path)


def _picture(samples: list[Sample]) -> str:
    def milliseconds(value: float | None) -> float | None:
        return None if value is None else value * 1000

    return draw(
        [sample.seconds / 60 for sample in samples],
        [
            Panel("memory, MB", [("memory", [sample.memory / MB for sample in samples])]),
            Panel("descriptors", [("descriptors", [sample.descriptors for sample in samples])]),
            Panel("tasks", [("tasks", [sample.tasks for sample in samples])]),
            Panel(
                "latency, ms",
                [
                    ("median", [milliseconds(sample.median) for sample in samples]),
                    ("99 of 100 below", [milliseconds(sample.slow) for sample in samples]),
                ],
                is_logarithmic=True,
            ),
        ],
    )


def _page(record: Record) -> str:
    settings = record.settings
    arguments = (
        f"--minutes {settings.minutes:g} --clients {settings.clients} --servers {settings.servers} "
        f"--stdio {settings.stdio} --pause {settings.pause:g} --kill-pause {settings.kill_pause:g} "
        f"--large-pause {settings.large_pause:g}"
    )
    sections = [
        WHAT,
        _verdict(record),
        PICTURE,
        "## What was done\n\n" + _table(_what_was_done(record)),
        "## What became of every call\n\n" + _table(_sums(record)) + _reasons(record),
        "## Before, meanwhile, after\n\n" + _vitals(record),
        "## The machine\n\n" + _table(list(record.machine.items())),
        AGAIN + f"\n\nThis one was started with\n`{arguments}`.",
    ]
    return "\n\n".join(sections) + "\n"


def _verdict(record: Record) -> str:
    problems = record.verdict()
    state = "" if record.is_over else " It was still going on when this was written, or was killed."
    if record.is_over and record.is_interrupted:
        state = " It was interrupted before its time."
    length = f"{record.seconds / 60:.1f} minutes"
    if not problems:
        return f"**Everything held, for {length}.**{state}"
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"**Not everything held, in {length}.**{state}\n\n{listed}"


def _what_was_done(record: Record) -> list[tuple[str, str]]:
    settings = record.settings
    return [
        ("clients at once over HTTP, half of each era", f"{settings.clients:,}"),
        ("clients that came, one after the other", f"{record.arrivals:,}"),
        ("servers", f"{settings.servers:,}"),
        ("of these at an address (HTTP), half of each era", f"{settings.remotes:,}"),
        (
            "workbenches over stdio beside it, each with 3 of its own and one at an address",
            f"{settings.stdio:,}",
        ),
        ("servers killed (SIGKILL, SIGTERM, SIGSEGV)", f"{record.kills:,}"),
        ("servers stopped for a second (SIGSTOP)", f"{record.stops:,}"),
        ("servers at an address killed", f"{record.remote_kills:,}"),
        ("started again at the same address, up to two seconds later", f"{record.remote_restarts:,}"),
        ("servers at an address stopped for a second", f"{record.remote_stops:,}"),
        *(
            (f"messages of {size} MiB as a {direction}", f"{count:,}")
            for (size, direction), count in sorted(record.large.items())
        ),
    ]


def _sums(record: Record) -> list[tuple[str, str]]:
    accounts = record.accounts
    rows = [
        ("started", f"{accounts.started:,}"),
        ("answered, with the right answer", f"{accounts.answered:,}"),
        ("failed, with a reason", f"{accounts.failed:,}"),
        ("cancelled by the client", f"{accounts.cancelled:,}"),
        ("anything else", f"{len(accounts.wrong):,}"),
        ("without an end", f"{accounts.under_way:,}"),
    ]
    if record.noted is not None:
        rows.append(("seen by servers more than once", f"{record.repeated:,}"))
        rows.append(("seen by servers at an address", f"{record.remote_noted or 0:,}"))
    return rows


def _reasons(record: Record) -> str:
    most = record.accounts.reasons.most_common(MAX_REASONS)
    if not most:
        return ""
    return "\n\nWhy they failed:\n\n" + _table([(f"{reason}", f"{count:,}") for reason, count in most])


def _vitals(record: Record) -> str:
    if not record.samples.all:
        return "There was no time for a reading."
    lines = ["| | memory, MB | descriptors | tasks |", "|---|---:|---:|---:|"]

    def row(name: str, memory: float, descriptors: float, tasks: float) -> None:
        lines.append(f"| {name} | {memory / MB:.1f} | {descriptors:.0f} | {tasks:.0f} |")

    def rest(name: str, reading: Reading | None) -> None:
        if reading is not None:
            row(name, reading.memory, reading.descriptors, reading.tasks)

    rest("every server up, before anybody came", record.before)
    drifts = [
        record.samples.drift(lambda sample: sample.memory),
        record.samples.drift(lambda sample: sample.descriptors),
        record.samples.drift(lambda sample: sample.tasks),
    ]
    row("second tenth of the run, median", *(early for early, _ in drifts))
    row("last tenth of the run, median", *(late for _, late in drifts))
    everything = record.samples.all
    row(
        "most",
        max(sample.memory for sample in everything),
        max(sample.descriptors for sample in everything),
        max(sample.tasks for sample in everything),
    )
    rest("every server up, after everybody had gone", record.after)
    for number, ended in enumerate(record.stdio, 1):
        rest(f"stdio {number}, before", ended.before)
        rest(f"stdio {number}, after", ended.after)
    return "\n".join(lines)


def _table(rows: list[tuple[str, str]]) -> str:
    written = [f"| {name.replace('|', '/')} | {value} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---:|", *written])
