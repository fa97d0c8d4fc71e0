"""What a call costs: alone, among 31 others, and with a large result.

Owns the rounds: all subjects are started once, warmed, and measured in turn, the order reversed every other round, so
that a noisy minute or a warm cache meets all of them alike. Refuses to know how subjects are started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from bench.findings import (
    FORWARDER,
    WORKBENCH,
    Finding,
    Verdict,
    added_against_forwarder,
    added_to_direct,
    share_of,
    values_of,
)
from bench.subjects import Connected, Subject, connected

TEXT = "The quick brown fox jumps over the lazy dog, and over the workbench."
IN_FLIGHT = 32
LARGE = 1 << 20


class Effort(NamedTuple):
    """How much is measured."""

    rounds: int = 7
    sequential: int = 2000
    in_flight: int = 20_000
    large: int = 40
    spawns: int = 21
    tools: int = 10_000


QUICK = Effort(rounds=3, sequential=500, in_flight=5000, large=10, spawns=5, tools=2000)


def in_rounds(
    running: Sequence[Connected], rounds: int, measure: Callable[[Connected], float]
) -> dict[str, list[float]]:
    """One sample of each subject a round."""
    samples: dict[str, list[float]] = {each.subject.name: [] for each in running}
    for number in range(rounds):
        for each in running if number % 2 == 0 else reversed(running):
            samples[each.subject.name].append(measure(each))
    return samples


def sequential(subjects: Sequence[Subject], effort: Effort) -> Finding:
    def p50(each: Connected) -> float:
        return median(each.caller.latencies(each.echo(TEXT), effort.sequential))

    with connected(subjects) as running:
        warm_up(running, effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, p50)
    verdict = Verdict(
        "added per call, against what the forwarder adds", added_against_forwarder(samples), 2, False, "×"
    )
    return Finding("sequential", "one call after another, p50", values_of(samples, "s"), verdict)


def in_flight(subjects: Sequence[Subject], effort: Effort) -> Finding:
    def rate(each: Connected) -> float:
        return each.caller.calls_per_second(each.echo(TEXT), effort.in_flight, IN_FLIGHT)

    with connected(subjects) as running:
        warm_up(running, effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, rate)
    share = share_of(samples, WORKBENCH, FORWARDER) * 100
    verdict = Verdict("calls per second, against the forwarder's", share, 40, True, "%")
    return Finding("in-flight", f"{IN_FLIGHT} calls in flight", values_of(samples, "calls/s"), verdict)


def large_result(subjects: Sequence[Subject], effort: Effort) -> Finding:
    def p50(each: Connected) -> float:
        return median(each.caller.latencies(each.sized(LARGE), effort.large))

    with connected(subjects) as running:
        warm_up(running, effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, p50)
    verdict = Verdict("added to a direct call", added_to_direct(samples), 0.003, False, "s")
    return Finding("large-result", "a result of 1 MiB, p50", values_of(samples, "s"), verdict)


def warm_up(running: Sequence[Connected], count: int) -> None:
    for each in running:
        each.caller.latencies(each.echo(TEXT), count)
