"""What a call over HTTP costs: alone and among 31 others, with servers over stdio and over HTTP.

Owns the comparisons and their targets. `direct` is the same client at the server itself, over the server's own
transport: the difference is all that the workbench adds, its HTTP side included. Refuses to know how anything is
started.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.calls import IN_FLIGHT, TEXT, Effort
from bench.findings import (
    DIRECT,
    FORWARDER,
    GUARDED,
    WORKBENCH,
    Finding,
    Verdict,
    added_to_direct,
    share_of,
    values_of,
)
from bench.http_subjects import LEGACY_CLIENT, Downstream, HttpWorkshop, Reached, in_rounds, reached

MAX_ADDED_TIME: dict[Downstream, float] = {"stdio": 0.000_25, "http": 0.000_35}
TITLES: dict[Downstream, str] = {"stdio": "HTTP to stdio", "http": "HTTP to HTTP"}
MIN_PINNING_SHARE = 35
MAX_TIMES_GUARDED = 1.5


def http_sequential(folder: Path, effort: Effort, downstream: Downstream) -> Finding:
    def p50(each: Reached) -> float:
        return median(each.caller.latencies(each.echo(TEXT), effort.sequential))

    with reached(folder, downstream) as running:
        for each in running:
            each.caller.latencies(each.echo(TEXT), effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, p50)
    verdict = Verdict("added to a direct call", added_to_direct(samples), MAX_ADDED_TIME[downstream], False, "s")
    title = f"{TITLES[downstream]}, one call after another, p50"
    return Finding(f"http-{downstream}", title, values_of(samples, "s"), verdict)


def http_guarded(folder: Path, effort: Effort) -> Finding:
    """A named key, three rules and an audit, against a workbench without them."""

    def p50(each: Reached) -> float:
        return median(each.caller.latencies(each.echo(TEXT), effort.sequential))

    with ExitStack() as stack:
        workshop = HttpWorkshop(folder, stack)
        guarded, token = workshop.guarded()
        running = [
            workshop.reach(WORKBENCH, workshop.workbench(None).url, "echo0:echo"),
            workshop.reach(GUARDED, guarded.url, "echo0:echo", token=token),
        ]
        for each in running:
            each.caller.latencies(each.echo(TEXT), effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, p50)
    verdict = Verdict(
        "time of a call, against the same without",
        share_of(samples, GUARDED, WORKBENCH),
        MAX_TIMES_GUARDED,
        False,
        "×",
    )
    title = "HTTP with a key, three rules and an audit, p50"
    return Finding("http-guarded", title, values_of(samples, "s"), verdict)


def http_in_flight(folder: Path, effort: Effort) -> Finding:
    """Both kinds of servers; the worse one is judged."""
    count = effort.in_flight // 4

    def rate(each: Reached) -> float:
        return each.caller.calls_per_second(each.echo(TEXT), count, IN_FLIGHT)

    samples: dict[str, list[float]] = {}
    shares: list[float] = []
    for downstream, title in TITLES.items():
        with reached(folder, downstream) as running:
            compared = [each for each in running if each.name not in (DIRECT, LEGACY_CLIENT)]
            for each in compared:
                each.caller.calls_per_second(each.echo(TEXT), effort.sequential // 2, IN_FLIGHT)
            taken = in_rounds(compared, effort.rounds, rate)
        shares.append(share_of(taken, WORKBENCH, FORWARDER) * 100)
        samples |= {f"{name}, {title}": numbers for name, numbers in taken.items()}
    verdict = Verdict("calls per second, against the forwarder's", min(shares), MIN_PINNING_SHARE, True, "%")
    return Finding("http-in-flight", f"{IN_FLIGHT} calls in flight over HTTP", values_of(samples, "calls/s"), verdict)
