"""`python -m bench`: runs the measurements and prints where the workbench stands.

Owns the options and the order. Refuses to measure or format anything itself.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from bench.against import comparison, side_by_side
from bench.audit import audited_in_flight, audited_sequential
from bench.calls import QUICK, Effort, in_flight, large_result, sequential
from bench.client import BenchError
from bench.cluster import STATE_SERVER, cluster_instructions
from bench.findings import Finding
from bench.flat import flat_call, flat_list
from bench.footprint import memory, per_tool
from bench.http_calls import http_guarded, http_in_flight, http_sequential
from bench.http_sessions import http_idle, http_sessions
from bench.instructions import (
    audited_instructions,
    counting_instructions,
    guarded_instructions,
    http_counting_instructions,
    http_instructions,
    is_available,
    seeing_instructions,
    stdio_instructions,
)
from bench.machine import describe_machine, doubt
from bench.report import json_report, markdown_report, text_report, write_section
from bench.sandboxes import left_out, sandbox_bwrap, sandbox_start
from bench.seeing import (
    counting_cpu,
    everything_cpu,
    everything_instructions,
    http_counting_cpu,
    page_instructions,
    scrape_instructions,
    top_cpu,
    top_instructions,
    tracing_cpu,
    tracing_instructions,
)
from bench.shared import shared_in_flight, shared_memory, shared_sequential, shared_start_up
from bench.startup import start_up
from bench.subjects import Subject, Workshop

STDIO_NAMES = ("sequential", "in-flight", "start-up", "memory", "per-tool", "large-result", "flat-list", "flat-call")
SHARED_NAMES = ("shared", "shared-in-flight", "shared-start-up", "shared-memory")
HTTP_NAMES = ("http-stdio", "http-http", "http-in-flight", "http-guarded", "http-sessions", "http-idle")
AUDIT_NAMES = ("audit", "audit-in-flight")
SEEING_NAMES = ("counting-cpu", "http-counting-cpu", "top-cpu", "tracing-cpu", "everything-cpu")
# Only where valgrind is installed.
COUNTED_NAMES = (
    *("instructions", "http-instructions", "guarded-instructions", "audit-instructions"),
    *("counting-instructions", "http-counting-instructions", "seeing-instructions", "top-instructions"),
    *("page-instructions", "scrape-instructions", "tracing-instructions", "everything-instructions"),
    "cluster-instructions",
)
SANDBOX_NAMES = ("sandbox-start", "sandbox-bwrap")
NAMES = (*STDIO_NAMES, *AUDIT_NAMES, *SHARED_NAMES, *SANDBOX_NAMES, *HTTP_NAMES, *SEEING_NAMES, *COUNTED_NAMES)
YARDSTICK_PACKAGES = ("uvloop", "orjson")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the workbench against its targets.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression, not a result")
    parser.add_argument("--rounds", type=int, metavar="N", help="more of them on a noisy machine")
    parser.add_argument("--only", action="append", choices=NAMES, help="just this measurement; may be repeated")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--instructions", action="store_true", help="just what is counted by valgrind")
    parts.add_argument("--timed", action="store_true", help="everything else, which takes a few minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, samples included, to FILE")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked section of a Markdown file")
    parser.add_argument("--plain", action="store_true", help="also measure the forwarder with asyncio and json")
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="also measure another gateway; {config} becomes the path of an mcpServers file with ten echo servers",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PATH",
        help="measure another work tree in turn with this one, and print both side by side",
    )
    options = parser.parse_args(arguments)
    if options.write and (options.quick or options.instructions or options.only):
        parser.error("--write records a whole run; leave out --quick, --instructions and --only")
    if options.against and (options.write or options.json):
        parser.error("--against prints a comparison; leave out --write and --json")
    if options.against and not (options.against / "src" / "mcp_workbench").is_dir():
        parser.error(f"--against {options.against}: no work tree of the workbench")
    return options


def run(options: argparse.Namespace, folder: Path) -> list[Finding]:
    measurements, findings = _measurements(options, folder, _effort(options)), []
    for name in _names(options):
        print(f"measuring {name} …", file=sys.stderr)
        findings.append(measurements[name]())
    return findings


def compare(options: argparse.Namespace, folder: Path) -> str:
    """This work tree and another one, side by side."""
    effort = _effort(options)
    # Each tree has two turns.
    half = effort._replace(rounds=(effort.rounds + 1) // 2, spawns=(effort.spawns + 1) // 2)
    measurements = _measurements(options, folder, half)
    # Sandboxes are started in this process.
    names = [name for name in _names(options) if name not in SANDBOX_NAMES]
    measured = side_by_side(
        names, lambda name: measurements[name](), options.against.resolve(), lambda name: name not in COUNTED_NAMES
    )
    return comparison(measured)


def _effort(options: argparse.Namespace) -> Effort:
    effort = QUICK if options.quick else Effort()
    return effort._replace(rounds=options.rounds) if options.rounds else effort


def _names(options: argparse.Namespace) -> list[str]:
    """What is to be measured and can be."""
    names = []
    if options.instructions:
        wanted: Sequence[str] = COUNTED_NAMES
    else:
        wanted = [name for name in NAMES if name not in COUNTED_NAMES] if options.timed else NAMES
    for name in options.only or wanted:
        if (why := _why_left_out(name)) is None:
            names.append(name)
        else:
            print(f"{name} is left out: {why}", file=sys.stderr)
    return names


def _measurements(options: argparse.Namespace, folder: Path, effort: Effort) -> dict[str, Callable[[], Finding]]:
    workshop = Workshop(folder)

    def subjects() -> list[Subject]:
        plain = [workshop.forwarder(plain=True)] if options.plain else []
        others = [workshop.also(description) for description in options.also]
        return [workshop.direct(), workshop.forwarder(), workshop.workbench(), *plain, *others]

    return {
        "sequential": lambda: sequential(subjects(), effort),
        "in-flight": lambda: in_flight(subjects(), effort),
        "start-up": lambda: start_up(subjects(), effort),
        "memory": lambda: memory(subjects(), effort),
        "per-tool": lambda: per_tool(workshop, effort),
        "large-result": lambda: large_result(subjects(), effort),
        "flat-list": lambda: flat_list(workshop, effort),
        "flat-call": lambda: flat_call(workshop, effort),
        "audit": lambda: audited_sequential(workshop, effort),
        "audit-in-flight": lambda: audited_in_flight(workshop, effort),
        "shared": lambda: shared_sequential(workshop, effort),
        "shared-in-flight": lambda: shared_in_flight(workshop, effort),
        "shared-start-up": lambda: shared_start_up(workshop, effort),
        "shared-memory": lambda: shared_memory(workshop, effort),
        "sandbox-start": lambda: sandbox_start(effort),
        "sandbox-bwrap": lambda: sandbox_bwrap(effort),
        "http-stdio": lambda: http_sequential(folder, effort, "stdio"),
        "http-http": lambda: http_sequential(folder, effort, "http"),
        "http-in-flight": lambda: http_in_flight(folder, effort),
        "http-sessions": lambda: http_sessions(folder),
        "http-guarded": lambda: http_guarded(folder, effort),
        "http-idle": lambda: http_idle(folder),
        "counting-cpu": lambda: counting_cpu(folder, effort),
        "http-counting-cpu": lambda: http_counting_cpu(folder, effort),
        "top-cpu": lambda: top_cpu(folder, effort),
        "tracing-cpu": lambda: tracing_cpu(folder, effort),
        "everything-cpu": lambda: everything_cpu(folder, effort),
        "instructions": lambda: stdio_instructions(folder),
        "http-instructions": lambda: http_instructions(folder),
        "guarded-instructions": lambda: guarded_instructions(folder),
        "audit-instructions": lambda: audited_instructions(folder),
        "counting-instructions": lambda: counting_instructions(folder),
        "seeing-instructions": lambda: seeing_instructions(folder),
        "http-counting-instructions": lambda: http_counting_instructions(folder),
        "top-instructions": lambda: top_instructions(folder),
        "everything-instructions": lambda: everything_instructions(folder),
        "page-instructions": lambda: page_instructions(folder),
        "scrape-instructions": lambda: scrape_instructions(folder),
        "tracing-instructions": lambda: tracing_instructions(folder),
        "cluster-instructions": lambda: cluster_instructions(folder),
    }


def _why_left_out(name: str) -> str | None:
    if name in COUNTED_NAMES and not is_available():
        return "valgrind is not installed"
    if name == "cluster-instructions" and STATE_SERVER is None:
        return "neither valkey-server nor redis-server is installed"
    return left_out(name) if name in SANDBOX_NAMES else None


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    missing = [package for package in YARDSTICK_PACKAGES if find_spec(package) is None]
    if missing:
        print(f"error: the yardstick needs {' and '.join(missing)}\n\nhint: install them beside us", file=sys.stderr)
        return 1
    # Before we load it ourselves.
    machine, reason = describe_machine(), doubt()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            if options.against:
                print(compare(options, Path(folder)), end="")
                return 0
            findings = run(options, Path(folder))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    date = datetime.now(UTC).date().isoformat()
    print(text_report(findings, machine, date), end="")
    if reason is not None:
        print(f"warning: {reason}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(json_report(findings, machine, date), indent=2, ensure_ascii=False) + "\n")
    if options.write:
        write_section(options.write, markdown_report(findings, machine, date))
    return 0


if __name__ == "__main__":
    # Servers over HTTP do not end with us by themselves: whoever ends us lets us end them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
