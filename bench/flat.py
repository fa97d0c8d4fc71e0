"""The face `flat` with few tools and with 10,000: what a list costs for each of its bytes, and what a call costs.

Owns the two sizes, the filling of their caches, and the rounds. All servers of a subject have the same command, so that
one of them is enough to make the others known: lists come from manifests, and only the server that is called runs.
Refuses to know how a face works inside.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import NamedTuple

from bench.calls import TEXT, Effort, in_rounds
from bench.client import BenchError, StdioCaller
from bench.findings import Finding, Verdict, share_of, values_of
from bench.subjects import Connected, Subject, Workshop, connected

# Tools of one server; with 100 of them the lists of both sizes are made of the same definitions.
TOOLS_EACH = 100
FEW_TOOLS = 10
# Ten times the bytes may take this many times as long for each byte before it is no longer called linear.
LINEAR = 1.5
# Looking up one name among 10,000 may cost this much more than among ten, noise included.
SAME = 1.15


class Listing(NamedTuple):
    """One `tools/list`."""

    seconds: float
    bytes: int


class ListingCaller(StdioCaller):
    """A caller that times a list without reading it."""

    def first_list(self) -> Listing:
        with self._deadline():
            identifier = self._next_identifier()
            line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % identifier
            start = perf_counter()
            self._write(line)
            data = self._read_lines()
            seconds = perf_counter() - start
            listed = self._answer_to(identifier, data)
        if not listed.get("result", {}).get("tools"):
            raise BenchError(f"an empty list: {data[:500].decode(errors='replace')}")
        return Listing(seconds, len(data))


def flat_list(workshop: Workshop, effort: Effort) -> Finding:
    """A fresh workbench each time: the first list is the one that is made of manifests."""
    sizes = (effort.tools // 10, effort.tools)
    subjects = [_known(workshop, count, TOOLS_EACH) for count in sizes]
    for_each_byte: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    seconds: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for number in range(effort.rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            caller = ListingCaller(subject.command, environment=subject.environment)
            with caller:
                caller.initialize()
                listing = caller.first_list()
            seconds[subject.name].append(listing.seconds)
            for_each_byte[subject.name].append(listing.seconds / listing.bytes)
    small, large = (subject.name for subject in subjects)
    ratio = share_of(for_each_byte, large, small)
    verdict = Verdict(f"time for each byte of the list, against {sizes[0]:,} tools", ratio, LINEAR, False, "×")
    return Finding("flat-list", "the first list of face `flat`, from manifests", values_of(seconds, "s"), verdict)


def flat_call(workshop: Workshop, effort: Effort) -> Finding:
    """One call after another to the same tool, among few and among many."""
    subjects = [_known(workshop, FEW_TOOLS, FEW_TOOLS), _known(workshop, effort.tools, TOOLS_EACH)]

    def p50(each: Connected) -> float:
        return median(each.caller.latencies(each.echo(TEXT), effort.sequential))

    with connected(subjects) as running:
        for each in running:
            each.caller.latencies(each.echo(TEXT), effort.sequential // 2)
        samples = in_rounds(running, effort.rounds, p50)
    small, large = (subject.name for subject in subjects)
    ratio = share_of(samples, large, small)
    verdict = Verdict(f"a call, against the same with {FEW_TOOLS} tools", ratio, SAME, False, "×")
    return Finding("flat-call", "a call in face `flat`, p50", values_of(samples, "s"), verdict)


def _known(workshop: Workshop, tools: int, tools_each: int) -> Subject:
    """A workbench that remembers every one of its servers, none of them running."""
    subject = workshop.flat(tools // tools_each, tools_each)
    only = workshop.flat(1, tools_each, environment=subject.environment)
    with only.spawn() as caller:
        caller.initialize()
        if len(caller.request("tools/list", {})["tools"]) != tools_each:
            raise BenchError("the list does not hold every tool")
    return subject
