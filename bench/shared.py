"""What sharing costs: a front end in front of a shared workbench, against a workbench alone.

Owns the shared workbench that is measured: it is started with `up` in folders of its own, and taken down again. The
bounds are those of a bare forwarder, which is what a front end is, and of a bare interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from bench.calls import IN_FLIGHT, TEXT, Effort, in_rounds, warm_up
from bench.findings import FORWARDED, SHARED, WORKBENCH, Finding, Samples, Value, Verdict, share_of, values_of
from bench.processes import settled_memory_of
from bench.startup import interpreter, spawned_in_turn, to_first_answer
from bench.subjects import Connected, Subject, Workshop, connected

BARE = "python -c pass"
MIB = 1 << 20


@contextmanager
def shared_workbench(workshop: Workshop) -> Iterator[Subject]:
    """A subject whose command joins a shared workbench that runs meanwhile."""
    subject = workshop.shared()
    command = [sys.executable, "-m", "mcp_workbench"]
    environment = dict(subject.environment)
    subprocess.run([*command, "up"], env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        yield subject
    finally:
        subprocess.run([*command, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


def shared_sequential(workshop: Workshop, effort: Effort) -> Finding:
    many = _in_many_rounds(effort)

    def p50(each: Connected) -> float:
        return median(each.caller.latencies(each.echo(TEXT), many.sequential))

    samples = _measured(workshop, many, p50)
    added = added_by_front_end(samples)
    verdict = Verdict("added by the front end, against a forwarder in its place", added, 1, False, "×")
    return Finding("shared", "shared workbench, one call after another, p50", values_of(samples, "s"), verdict)


def shared_in_flight(workshop: Workshop, effort: Effort) -> Finding:
    many = _in_many_rounds(effort)

    def rate(each: Connected) -> float:
        return each.caller.calls_per_second(each.echo(TEXT), many.in_flight, IN_FLIGHT)

    samples = _measured(workshop, many, rate)
    share = median(ours / theirs for ours, theirs in zip(samples[SHARED], samples[FORWARDED], strict=True)) * 100
    verdict = Verdict("calls per second, against those with a forwarder in its place", share, 100, True, "%")
    title = f"shared workbench, {IN_FLIGHT} calls in flight"
    return Finding("shared-in-flight", title, values_of(samples, "calls/s"), verdict)


def shared_start_up(workshop: Workshop, effort: Effort) -> Finding:
    # With a client that is there already, as it is where it matters: so the catalogue is there, too.
    with shared_workbench(workshop) as subject, connected([subject]):
        timed: dict[str, Callable[[], float]] = {
            BARE: lambda: interpreter(subject, "pass"),
            SHARED: lambda: to_first_answer(subject),
        }
        samples = spawned_in_turn(timed, effort.spawns)
    ratio = share_of(samples, SHARED, BARE)
    verdict = Verdict(f"spawn to `initialize` answer, against `{BARE}`", ratio, 2, False, "×")
    title = "front end, from spawn to the `initialize` answer"
    return Finding("shared-start-up", title, values_of(samples, "s"), verdict)


def shared_memory(workshop: Workshop, effort: Effort) -> Finding:
    with shared_workbench(workshop) as subject, connected([subject]) as [each]:
        each.caller.calls_per_second(each.echo(TEXT), effort.in_flight, IN_FLIGHT)
        front_end = settled_memory_of(each.caller.pid).rss
        bare = _bare_memory(subject)
    values = (Value(f"`{BARE}`, RSS", "B", (bare,)), Value("front end after calls, RSS", "B", (front_end,)))
    verdict = Verdict(f"resident memory of a front end, beyond `{BARE}`", front_end - bare, 3 * MIB, False, "B")
    return Finding("shared-memory", "memory of a front end", values, verdict)


def _in_many_rounds(effort: Effort) -> Effort:
    """Short ones: two chains of processes differ by a few microseconds, and are compared round by round."""
    return effort._replace(rounds=3 * effort.rounds, sequential=effort.sequential // 2, in_flight=effort.in_flight // 4)


def _measured(workshop: Workshop, effort: Effort, measure: Callable[[Connected], float]) -> dict[str, list[float]]:
    with shared_workbench(workshop) as subject:
        subjects: Sequence[Subject] = [workshop.workbench(), workshop.forwarded(), subject]
        with connected(subjects) as running:
            warm_up(running, effort.sequential // 2)
            return in_rounds(running, effort.rounds, measure)


def added_by_front_end(samples: Samples) -> float:
    """How many times what a forwarder adds to a workbench the front end adds. In the same place: the more processes a
    call passes, the more each of them adds. Round by round: what else the machine is busy with changes meanwhile."""
    rounds = zip(samples[WORKBENCH], samples[FORWARDED], samples[SHARED], strict=True)
    ratios = [(shared - alone) / (forwarded - alone) for alone, forwarded, shared in rounds if forwarded > alone]
    return median(ratios) if ratios else float("inf")


def _bare_memory(like: Subject) -> int:
    """What an interpreter has that waits instead of ending. `os` is there in each."""
    command = [sys.executable, "-c", "import os; os.read(0, 1)"]
    with subprocess.Popen(command, env=dict(like.environment), stdin=subprocess.PIPE) as process:
        rss = settled_memory_of(process.pid).rss
        assert process.stdin is not None
        process.stdin.close()
    return rss
