"""What the workbench weighs: with ten servers connected, and for each further tool it knows.

Owns which processes count as the workbench's own and which are the servers behind it. Refuses to know how memory is
read.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.calls import IN_FLIGHT, LARGE, TEXT, Effort
from bench.client import BenchError
from bench.echo_server import definition_bytes, tool_definitions
from bench.findings import WORKBENCH, Finding, Value, Verdict, beyond_definition
from bench.processes import Memory, marked_processes, memory_of, settled_memory_of
from bench.subjects import MARK, SERVERS, Connected, Subject, Workshop, connected

MIB = 1 << 20
FEW_TOOLS = 100


def memory(subjects: Sequence[Subject], effort: Effort) -> Finding:
    """RSS of the one process that serves; whatever it keeps beside itself is shown with it but judged apart."""
    values: list[Value] = []
    measured: int | None = None
    with connected(subjects) as running:
        for each in running:
            taken = settled_memory_of(each.caller.pid)
            values += _values(each.subject.name, taken)
            if each.subject.name == WORKBENCH:
                measured = taken.rss
                values += _own_helpers(each)
                _put_under_load(each, effort)
                values += _values(f"{WORKBENCH} after load", settled_memory_of(each.caller.pid))
    if measured is None:
        raise BenchError("the workbench is not among the subjects")
    verdict = Verdict(f"resident memory with {SERVERS} servers connected", measured, 35 * MIB, False, "B")
    return Finding("memory", f"memory with {SERVERS} servers connected", tuple(values), verdict)


def per_tool(workshop: Workshop, effort: Effort) -> Finding:
    """The same ten servers with few tools and with many, a fresh workbench each: the difference is the tools'."""
    values: list[Value] = []
    resident: dict[int, int] = {}
    for count in (FEW_TOOLS, effort.tools):
        with connected([workshop.workbench_with_tools(count)]) as [each]:
            taken = settled_memory_of(each.caller.pid)
        resident[count] = taken.rss
        values += _values(f"{WORKBENCH}, {count:,} tools", taken)
    further = effort.tools - FEW_TOOLS
    definitions = SERVERS * (
        definition_bytes(tool_definitions(effort.tools // SERVERS))
        - definition_bytes(tool_definitions(FEW_TOOLS // SERVERS))
    )
    values.append(Value("one definition, on average", "B", (definitions / further,)))
    beyond = beyond_definition(resident[FEW_TOOLS], resident[effort.tools], further, definitions)
    verdict = Verdict("for each further known tool, beyond its definition", beyond, 1024, False, "B")
    return Finding("per-tool", f"memory with {FEW_TOOLS} and with {effort.tools:,} known tools", tuple(values), verdict)


def _values(subject: str, taken: Memory) -> list[Value]:
    values = [Value(f"{subject}, RSS", "B", (taken.rss,))]
    if taken.pss is not None:
        values.append(Value(f"{subject}, PSS", "B", (taken.pss,)))
    return values


def _own_helpers(each: Connected) -> list[Value]:
    """Processes that the workbench started for itself, not for a server."""
    values: list[Value] = []
    for process in marked_processes(MARK, each.subject.environment[MARK]):
        is_server = any(word.endswith("echo_server.py") for word in process.command)
        if not is_server and process.pid != each.caller.pid:
            values += _values(f"{WORKBENCH}'s helper process", memory_of(process.pid))
    return values


def _put_under_load(each: Connected, effort: Effort) -> None:
    each.caller.calls_per_second(each.echo(TEXT), effort.in_flight, IN_FLIGHT)
    each.caller.latencies(each.sized(LARGE), effort.large)
