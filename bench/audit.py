"""What the audit costs: the same workbench with every call written to a file, and without. The two take turns, and the
ratio is taken within each round, so that a noisy minute meets both. Each process is faster or slower than its twin for
as long as it lives, by where its memory and its servers happen to lie: every pair of rounds has a new pair."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from bench.calls import IN_FLIGHT, TEXT, Effort, in_rounds, warm_up
from bench.findings import AUDITED, WORKBENCH, Finding, Samples, Verdict, values_of
from bench.subjects import Connected, Workshop, connected

ROUNDS_OF_A_PAIR = 2


def audited_sequential(workshop: Workshop, effort: Effort) -> Finding:
    def p50(each: Connected) -> float:
        return median(each.caller.latencies(each.echo(TEXT), effort.sequential))

    samples = _in_pairs(workshop, effort, p50)
    verdict = Verdict("time of a call, against the same without an audit", _ratio(samples), 1.10, False, "×")
    return Finding("audit", "with an audit, one call after another, p50", values_of(samples, "s"), verdict)


def audited_in_flight(workshop: Workshop, effort: Effort) -> Finding:
    def rate(each: Connected) -> float:
        return each.caller.calls_per_second(each.echo(TEXT), effort.in_flight, IN_FLIGHT)

    samples = _in_pairs(workshop, effort, rate)
    share = _ratio(samples) * 100
    verdict = Verdict("calls per second, against the same without an audit", share, 90, True, "%")
    return Finding("audit-in-flight", f"with an audit, {IN_FLIGHT} in flight", values_of(samples, "calls/s"), verdict)


def _in_pairs(workshop: Workshop, effort: Effort, measure: Callable[[Connected], float]) -> Samples:
    samples: dict[str, list[float]] = {WORKBENCH: [], AUDITED: []}
    for number in range(effort.rounds):
        pair = [workshop.workbench(), workshop.audited()]
        with connected(pair if number % 2 == 0 else pair[::-1]) as running:
            warm_up(running, effort.sequential // 2)
            for name, found in in_rounds(running, ROUNDS_OF_A_PAIR, measure).items():
                samples[name] += found
    return samples


def _ratio(samples: Samples) -> float:
    return median(on / off for on, off in zip(samples[AUDITED], samples[WORKBENCH], strict=True))
