"""Metrics in the text format of Prometheus, and in OpenMetrics if asked for.

A function of figures and of what is known of servers: nothing is counted here. Names are those of OpenTelemetry's
conventions for MCP in Prometheus' spelling, and `workbench_…` for everything else. What clients can make up is never a
label: no principal, URI, argument or session; tools only if that is configured, and no more than `MAX_TOOL_SERIES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from mcp_workbench.engine.lasting_state import StateHealth
from mcp_workbench.engine.observe.call_figures import BUCKET_BOUNDS, OTHER, CallFigures, Histogram, ItemFigures, Label

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Tools that are named if `perTool` is set; further ones are counted together.
MAX_TOOL_SERIES: Final = 500
# As OpenTelemetry's `error.type` for MCP, with the ends that only a proxy knows.
_ERROR_TYPES: Final = {
    "ok": "",
    "tool_error": "tool_error",
    "error": "jsonrpc",
    "refused": "refused",
    "needs_approval": "needs_approval",
    "cancelled": "cancelled",
    "timeout": "timeout",
}
# The place of what is about no server.
_NOWHERE: Final = ("", "")
_LE: Final = (*map(repr, BUCKET_BOUNDS), "+Inf")


class ServerFacts(NamedTuple):
    """What is known of a server now, over all of its connections."""

    toolbox: str
    server: str
    # Those of its connections.
    states: Collection[str]
    starts: int
    # By reason.
    failures: Mapping[str, int]
    stderr_lines: int
    # None if they cannot be measured here.
    memory: int | None
    processes: int | None
    # Connections to hosts that its sandbox does not allow.
    refused: int = 0


class ProcessFacts(NamedTuple):
    """What is known of our own process; None for what cannot be measured here."""

    cpu_seconds: float
    started_at: float
    memory: int | None = None
    virtual_memory: int | None = None
    open_files: int | None = None
    max_files: int | None = None


class WorkbenchFacts(NamedTuple):
    """Everything that no call tells."""

    version: str
    process: ProcessFacts
    # All states that a server can be in.
    states: Collection[str]
    servers: Collection[ServerFacts]
    # Toolboxes and servers that are configured: other names are a client's invention.
    known: Collection[Label]
    approvals_waiting: int
    # Lines of the audit; None without one.
    audit_lost: int | None
    # Calls whose traces were lost; None if none are sent.
    spans_dropped: int | None = None
    # Of a cluster; None without one.
    state: StateHealth | None = None
    # Of all definitions of tools, by toolbox; and of the list that our own user's clients get, if it is known.
    tokens: Mapping[str, int] = {}
    listed_tokens: int | None = None


class Family:
    """All series of one name."""

    def __init__(self, name: str, kind: Literal["counter", "gauge", "histogram"], about: str) -> None:
        self._name = name
        self._kind = kind
        self._about = about
        self._samples: list[str] = []

    def add(self, value: float, **labels: str) -> None:
        suffix = "_total" if self._kind == "counter" else ""
        self._samples.append(f"{self._name}{suffix}{_braced(_written(labels))} {_number(value)}\n")

    def add_histogram(self, histogram: Histogram, **labels: str) -> None:
        written = _written(labels)
        separator = "," if written else ""
        total = 0
        for bound, count in zip(_LE, histogram.counts, strict=True):
            total += count
            self._samples.append(f'{self._name}_bucket{{{written}{separator}le="{bound}"}} {total}\n')
        self._samples.append(f"{self._name}_sum{_braced(written)} {_number(histogram.seconds)}\n")
        self._samples.append(f"{self._name}_count{_braced(written)} {total}\n")

    def text(self, *, is_open: bool) -> str:
        """The family with its head; empty without series."""
        if not self._samples:
            return ""
        # OpenMetrics names a counter without the suffix that its series have.
        name = self._name + ("_total" if self._kind == "counter" and not is_open else "")
        return f"# HELP {name} {self._about}\n# TYPE {name} {self._kind}\n" + "".join(self._samples)


def exposition(figures: CallFigures, facts: WorkbenchFacts, *, per_tool: bool, is_open: bool) -> bytes:
    """All metrics. `is_open`: as OpenMetrics."""
    families = (
        *_calls(figures, facts, per_tool),
        *_sessions(figures, facts),
        *_now(figures, facts),
        *_servers(facts),
        *_context(facts),
        *_events(figures, facts),
        *(() if facts.state is None else _state(facts.state)),
        *_process(facts),
    )
    text = "".join(family.text(is_open=is_open) for family in families)
    # Names from configurations may hold what UTF-8 cannot.
    return (text + ("# EOF\n" if is_open else "")).encode(errors="replace")


def _calls(figures: CallFigures, facts: WorkbenchFacts, per_tool: bool) -> Iterable[Family]:
    """How long calls took, and what they carried."""
    at_us = Family("mcp_server_operation_duration_seconds", "histogram", "From the arrival of a request to its answer.")
    at_server = Family(
        "mcp_client_operation_duration_seconds", "histogram", "From sending a request to a server to its answer."
    )
    carried = Family("workbench_message_bytes", "counter", "Bytes of arguments and answers.")
    sums: dict[tuple[tuple[str, str], ...], tuple[Histogram, Histogram]] = {}
    sizes: dict[Label, list[int]] = {}
    tools = 0
    for row in figures.totals().rows:
        place = _place(row, facts.known)
        labels = {"toolbox": place[0], "server": place[1], "mcp_method_name": row.method}
        if per_tool and row.method == "tools/call":
            tools += 1
            labels["gen_ai_tool_name"] = row.item if tools <= MAX_TOOL_SERIES and place != (OTHER, OTHER) else OTHER
        size = sizes.setdefault(place, [0, 0])
        size[0] += row.bytes_in
        size[1] += row.bytes_out
        for end, ended in row.ends.items():
            key = tuple((labels | {"error_type": _ERROR_TYPES[end]}).items())
            both = sums.setdefault(key, (Histogram(), Histogram()))
            both[0].add(ended.from_arrival())
            both[1].add(ended.at_server())
    for key, (arrived, sent) in sums.items():
        if arrived.total:
            at_us.add_histogram(arrived, **dict(key))
        if sent.total:
            at_server.add_histogram(sent, **dict(key))
    for (toolbox, server), (bytes_in, bytes_out) in sizes.items():
        carried.add(bytes_in, toolbox=toolbox, server=server, direction="request")
        carried.add(bytes_out, toolbox=toolbox, server=server, direction="response")
    return at_us, at_server, carried


def _now(figures: CallFigures, facts: WorkbenchFacts) -> Iterable[Family]:
    running = Family("workbench_requests_in_flight", "gauge", "Requests that are with a server.")
    waiting = Family("workbench_requests_waiting", "gauge", "Requests that wait for their server, or for a person.")
    sums: dict[Label, list[int]] = {}
    for label, server in figures.totals().by_server().items():
        both = sums.setdefault(label if label in facts.known else (OTHER, OTHER), [0, 0])
        both[0] += server.running
        both[1] += server.waiting
    for (toolbox, name), numbers in sums.items():
        running.add(numbers[0], toolbox=toolbox, server=name)
        waiting.add(numbers[1], toolbox=toolbox, server=name)
    return running, waiting


def _servers(facts: WorkbenchFacts) -> Iterable[Family]:
    state = Family("workbench_server_state", "gauge", "1 for each state that a connection of the server is in.")
    starts = Family("workbench_server_starts", "counter", "Starts of the server.")
    failures = Family("workbench_server_failures", "counter", "Failed starts and crashes of the server.")
    stderr = Family("workbench_server_stderr_lines", "counter", "Lines that the server has written to stderr.")
    memory = Family("workbench_server_memory_bytes", "gauge", "Resident memory of the server's processes.")
    processes = Family("workbench_server_processes", "gauge", "Processes of the server.")
    refused = Family("workbench_sandbox_refused", "counter", "Connections that the server's sandbox refused.")
    for each in facts.servers:
        labels = {"toolbox": each.toolbox, "server": each.server}
        if each.refused:
            refused.add(each.refused, **labels, kind="host")
        for name in facts.states:
            state.add(name in each.states, **labels, state=name)
        starts.add(each.starts, **labels)
        for reason, number in each.failures.items():
            failures.add(number, **labels, reason=reason)
        stderr.add(each.stderr_lines, **labels)
        if each.memory is not None:
            memory.add(each.memory, **labels)
        if each.processes is not None:
            processes.add(each.processes, **labels)
    return state, starts, failures, stderr, memory, processes, refused


def _sessions(figures: CallFigures, facts: WorkbenchFacts) -> Iterable[Family]:
    of_clients = Family("mcp_server_session_duration_seconds", "histogram", "How long clients stayed connected.")
    of_servers = Family("mcp_client_session_duration_seconds", "histogram", "How long servers stayed connected.")
    sums: dict[tuple[Label, str], Histogram] = {}
    for (place, version), histogram in figures.sessions.items():
        known = place if place in facts.known or place == _NOWHERE else (OTHER, OTHER)
        sums.setdefault((known, version), Histogram()).add(histogram)
    for (place, version), histogram in sums.items():
        if place == _NOWHERE:
            of_clients.add_histogram(histogram, mcp_protocol_version=version)
        else:
            of_servers.add_histogram(histogram, toolbox=place[0], server=place[1], mcp_protocol_version=version)
    return of_clients, of_servers


def _context(facts: WorkbenchFacts) -> Iterable[Family]:
    tokens = Family("workbench_context_tokens", "gauge", "Tokens of definitions of tools.")
    for toolbox, number in facts.tokens.items():
        tokens.add(number, toolbox=toolbox, form="full")
    if facts.listed_tokens is not None:
        tokens.add(facts.listed_tokens, toolbox="", form="listed")
    return (tokens,)


def _events(figures: CallFigures, facts: WorkbenchFacts) -> Iterable[Family]:
    approvals = Family("workbench_approvals", "counter", "Decisions of people about calls.")
    waiting = Family("workbench_approvals_waiting", "gauge", "Calls that wait for a person's approval.")
    denied = Family("workbench_denied", "counter", "Requests that were denied, by what denied them.")
    sign_ins = Family("workbench_sign_ins", "counter", "Sign-ins of people to servers.")
    refused = Family("workbench_auth_failures", "counter", "Requests without valid credentials.")
    lost = Family("workbench_audit_lost", "counter", "Lines of the audit that could not be written.")
    dropped = Family("workbench_spans_dropped", "counter", "Traced calls whose spans could not be sent.")
    saved = Family("workbench_tokens_saved", "counter", "Tokens of definitions that lists of tools left out.")
    for decision in ("passed", "denied"):
        approvals.add(figures.events["approval", decision, _NOWHERE], decision=decision)
    waiting.add(facts.approvals_waiting)
    for step, number in sorted(figures.denied.items()):
        denied.add(number, step=step)
    outcomes: Counter[tuple[Label, str]] = Counter()
    for (kind, outcome, place), number in figures.events.items():
        if kind == "sign_in":
            outcomes[place if place in facts.known else (OTHER, OTHER), outcome.replace(" ", "_")] += number
    for ((toolbox, server), outcome), number in sorted(outcomes.items()):
        sign_ins.add(number, toolbox=toolbox, server=server, outcome=outcome)
    refused.add(figures.events["authentication", "denied", _NOWHERE], kind="http")
    if facts.audit_lost is not None:
        lost.add(facts.audit_lost)
    if facts.spans_dropped is not None:
        dropped.add(facts.spans_dropped)
    for toolbox, tokens in figures.saved.items():
        saved.add(tokens, toolbox=toolbox)
    return approvals, waiting, denied, sign_ins, refused, lost, dropped, saved


def _state(state: StateHealth) -> Iterable[Family]:
    """Of a cluster."""
    found = {
        Family("workbench_state_up", "gauge", "Whether the cluster's state can be used."): int(state.problem is None),
        Family("workbench_state_latency_seconds", "gauge", "Of its last round trip."): state.latency_seconds,
        Family("workbench_state_outages", "counter", "How often it went away."): state.outages,
        Family("workbench_state_waiting", "gauge", "Values that wait to be written there."): state.waiting,
        Family("workbench_state_lost", "counter", "Values dropped before they could be written."): state.lost,
        Family("workbench_state_refused", "counter", "Values that this cluster has not written."): state.refused,
    }
    for family, value in found.items():
        if value is not None:
            family.add(value)
            yield family


def _process(facts: WorkbenchFacts) -> Iterable[Family]:
    """As the client libraries of Prometheus name them."""
    build = Family("workbench_build_info", "gauge", "1; the version is a label.")
    build.add(1, version=facts.version)
    cpu = Family("process_cpu_seconds", "counter", "User and system CPU time of the workbench.")
    cpu.add(facts.process.cpu_seconds)
    found = [build, cpu]
    for name, about, value in (
        ("process_start_time_seconds", "When the workbench started, in seconds since 1970.", facts.process.started_at),
        ("process_resident_memory_bytes", "Resident memory of the workbench.", facts.process.memory),
        ("process_virtual_memory_bytes", "Virtual memory of the workbench.", facts.process.virtual_memory),
        ("process_open_fds", "Open file descriptors.", facts.process.open_files),
        ("process_max_fds", "Largest number of open file descriptors.", facts.process.max_files),
    ):
        if value is not None:
            family = Family(name, "gauge", about)
            family.add(value)
            found.append(family)
    return found


def _place(row: ItemFigures, known: Collection[Label]) -> Label:
    label = (row.toolbox, row.server)
    # Requests to all servers name none.
    return label if label in known or not row.server else (OTHER, OTHER)


def _written(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    # Whole numbers without a fraction, also those that were counted as floats.
    return str(int(value)) if value == int(value) else repr(round(value, 9))
