"""What a call costs in instructions, counted by valgrind: the same on a busy machine as on a quiet one.

Each process is run twice with different numbers of calls, for the same time, and only the difference counts, so that
start-up, connecting, shutting down and what is done every second cancel out. The forwarder and the workbench run on the
same interpreter. What the kernel and the servers do is not counted. Owns the runs; knows nothing about how anything
else is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from bench.calls import IN_FLIGHT, TEXT
from bench.client import BenchError, Call, Caller, StdioCaller
from bench.findings import (
    AUDITED,
    COUNTING,
    FORWARDER,
    GUARDED,
    UNCOUNTED,
    WORKBENCH,
    Finding,
    Value,
    Verdict,
)
from bench.http_client import HttpCaller
from bench.http_sessions import processor_seconds
from bench.http_subjects import LEGACY_CLIENT, POLICY, Listener, make_key
from bench.subjects import HERE, echo_command

VALGRIND: Final = "valgrind"
WARM_UP_CALLS: Final = 50
MAX_ATTEMPTS: Final = 3
# Idle is less than a fiftieth of a core for a second. A process that never is idle is measured nevertheless.
QUIET_INTERVAL: Final = 1.0
QUIET_SECONDS: Final = 0.02
SETTLE_DEADLINE: Final = 20.0
# Memory is settled after some hundred calls; the difference of the two is what is counted.
FEW_CALLS: Final = 300
MANY_CALLS: Final = 1300
# A process under valgrind takes some 50 times as long to start.
VALGRIND_START_DEADLINE: Final = 180.0
STDIO_TIMES: Final = 2.0
HTTP_TIMES: Final = 2.2
GUARDED_TIMES: Final = 1.5
# As much as 90 % of the calls per second.
AUDITED_TIMES: Final = 1 / 0.9
# What history costs those who do not look.
COUNTING_TIMES: Final = 1.05
# A legacy client's request is shorter, because it has no stamp: the same for the forwarder.
LEGACY_FORWARDER: Final = "forwarder, legacy client"
# Under valgrind the first call takes longer than a second, after which the next revision answers with a stream.
UNPRIMED_VERSION: Final = "2025-06-18"
# Over HTTP calls are always counted: only here not.
UNCOUNTING: Final = (
    "import sys; from mcp_workbench.app.runtime import CallCounting;"
    "from mcp_workbench.engine.observe.call_figures import CallFigures;"
    "CallCounting.start = lambda self: CallFigures();"
    "from mcp_workbench.__main__ import main; sys.exit(main())"
)
SERVERS_COUNTED: Final = ("first", "second")
TOOLBOX: Final = "bench"
_NUMBERS: Final = itertools.count(1)

# Sends that many calls to a process that was started with this prefix, for at least that many seconds, and ends it.
# Returns how long it took.
Run = Callable[[tuple[str, ...], Path, int, float], float]
# After how many calls something else is done, and what.
Between = tuple[int, Callable[[], object]]
# Looks at the process with this id, in this folder.
Looker = Callable[[int, Path], AbstractContextManager[Between | None]]


class Ready(NamedTuple):
    """A workbench that takes calls, and one of them."""

    caller: Caller
    pid: int
    call: Call
    between: Between | None


class Counted(NamedTuple):
    """The instructions of one call."""

    subject: str
    each: float


def is_available() -> bool:
    return shutil.which(VALGRIND) is not None


def count(subject: str, run: Run, folder: Path, calls: int = MANY_CALLS) -> Counted:
    unmeasured = folder / f"count-{next(_NUMBERS)}"
    unmeasured.mkdir()
    # Leaves compiled modules behind, which the first of the two would otherwise have to make.
    run((), unmeasured, 1, 0)
    many, lasted = _instructions(run, folder, calls, 0)
    # As long as the other: what a process does every second cancels out too.
    few, _ = _instructions(run, folder, FEW_CALLS, lasted)
    return Counted(subject, (many - few) / (calls - FEW_CALLS))


def _instructions(run: Run, folder: Path, calls: int, least_seconds: float) -> tuple[int, float]:
    for attempt in range(MAX_ATTEMPTS):
        own = folder / f"count-{next(_NUMBERS)}"
        own.mkdir()
        try:
            return _counted_run(run, own, calls, least_seconds)
        except BenchError:
            # On a busy machine, a server may take so long to start under valgrind that its first answer comes as a
            # stream. To go on would cost something that the other run has not.
            if attempt == MAX_ATTEMPTS - 1:
                raise
    raise AssertionError


def _counted_run(run: Run, own: Path, calls: int, least_seconds: float) -> tuple[int, float]:
    # One file for each process: only those that are forked and not replaced are counted too, in files of their own.
    prefix = (
        VALGRIND,
        "--quiet",
        # Else a thread that is always busy may keep the others from ever running.
        "--fair-sched=try",
        "--tool=cachegrind",
        "--cache-sim=no",
        f"--cachegrind-out-file={own}/%p.out",
        f"--log-file={own}/%p.log",
    )
    lasted = run(prefix, own, calls, least_seconds)
    totals = [_total(path) for path in own.glob("*.out")]
    if not totals:
        raise BenchError(f"valgrind counted nothing: {[path.read_text()[:500] for path in own.glob('*.log')]}")
    # The counted process does the calls; the guardian that it forks only waits.
    return max(totals), lasted


def _total(path: Path) -> int:
    with path.open() as lines:
        found = next((line for line in lines if line.startswith("summary:")), None)
    if found is None:
        raise BenchError(f"`{path.name}` has no summary")
    return int(found.split()[1])


# ── what is compared ──


def stdio_instructions(folder: Path) -> Finding:
    counted = [count(FORWARDER, stdio_forwarder(), folder), count(WORKBENCH, stdio_workbench(), folder)]
    return compared("instructions", "instructions of a call", counted, "against the forwarder's", STDIO_TIMES)


def http_instructions(folder: Path) -> Finding:
    counted = [
        count(FORWARDER, http_forwarder(), folder),
        count(WORKBENCH, http_workbench(), folder),
        count(LEGACY_FORWARDER, http_forwarder(modern=False), folder),
        count(LEGACY_CLIENT, http_workbench(modern=False), folder),
    ]
    title = "instructions of a call, HTTP to stdio"
    return compared("http-instructions", title, counted, "against the forwarder's", HTTP_TIMES)


def guarded_instructions(folder: Path) -> Finding:
    # In flight: the audit writes what has come within 20 ms, which under valgrind would be a single call.
    counted = [
        count(WORKBENCH, http_workbench(IN_FLIGHT), folder),
        count(GUARDED, http_workbench(IN_FLIGHT, is_guarded=True), folder),
    ]
    title = f"instructions of a call over HTTP with a key, three rules and an audit, {IN_FLIGHT} in flight"
    return compared("guarded-instructions", title, counted, "against the same without", GUARDED_TIMES)


def audited_instructions(folder: Path) -> Finding:
    counted = [
        count(WORKBENCH, stdio_workbench(IN_FLIGHT), folder),
        count(AUDITED, stdio_workbench(IN_FLIGHT, is_audited=True), folder),
    ]
    title = f"instructions of a call with an audit, {IN_FLIGHT} in flight"
    return compared("audit-instructions", title, counted, "against the same without an audit", AUDITED_TIMES)


def counting_instructions(folder: Path) -> Finding:
    """A workbench over stdio counts nothing, unless metrics are wanted."""
    counted = [
        count(WORKBENCH, stdio_workbench(), folder),
        count(COUNTING, stdio_workbench(is_counting=True), folder),
    ]
    title = "instructions of a call that is counted"
    return compared("counting-instructions", title, counted, "against the same without counting", COUNTING_TIMES)


def http_counting_instructions(folder: Path) -> Finding:
    """Over HTTP calls are always counted."""
    counted = [
        count(UNCOUNTED, http_workbench(is_counting=False), folder),
        count(WORKBENCH, http_workbench(), folder),
    ]
    title = "instructions of a call over HTTP that is counted"
    return compared("http-counting-instructions", title, counted, "against the same without counting", COUNTING_TIMES)


def seeing_instructions(folder: Path) -> Finding:
    """The same beside an audit, which learns of the same ends."""
    counted = [
        count(AUDITED, stdio_workbench(IN_FLIGHT, is_audited=True), folder),
        count(COUNTING, stdio_workbench(IN_FLIGHT, is_audited=True, is_counting=True), folder),
    ]
    title = f"instructions of a call that is counted and audited, {IN_FLIGHT} in flight"
    return compared("seeing-instructions", title, counted, "against the same with an audit alone", COUNTING_TIMES)


def compared(name: str, title: str, counted: Sequence[Counted], against: str, bound: float) -> Finding:
    """The second against the first."""
    values = tuple(Value(each.subject, "instructions", (each.each,)) for each in counted)
    measured = counted[1].each / counted[0].each
    return Finding(name, title, values, Verdict(f"instructions of a call, {against}", measured, bound, False, "×"))


# ── what is run ──


def stdio_forwarder(in_flight: int = 1) -> Run:
    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        command = (*prefix, sys.executable, str(HERE / "forwarder.py"), "--", *echo_command())
        with StdioCaller(command, environment=environment(folder)) as caller:
            caller.initialize()
            return make_calls(
                caller,
                caller.pid,
                Call.of("echo", {"text": TEXT}, text=TEXT),
                calls,
                least_seconds,
                in_flight=in_flight,
            )

    return run


def nobody(pid: int, folder: Path) -> AbstractContextManager[Between | None]:
    return nullcontext()


def stdio_workbench(
    in_flight: int = 1,
    *,
    is_audited: bool = False,
    is_counting: bool = False,
    traces: tuple[str, float] | None = None,
    looker: Looker = nobody,
) -> Run:
    """`traces`: the address of a collector, and the part of calls that is traced."""

    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        options = {"is_audited": is_audited, "is_counting": is_counting}
        with ready_stdio(folder, prefix, **options, traces=traces, looker=looker) as ready:
            return make_calls(*ready[:3], calls, least_seconds, ready.between, in_flight=in_flight)

    return run


@contextmanager
def ready_stdio(
    folder: Path,
    prefix: tuple[str, ...] = (),
    *,
    is_audited: bool = False,
    is_counting: bool = False,
    traces: tuple[str, float] | None = None,
    looker: Looker = nobody,
) -> Iterator[Ready]:
    config = write_config(folder, in_toolbox=True, audit=is_audited, metrics=is_counting, traces=traces)
    command = (*prefix, sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config))
    with StdioCaller(command, environment=environment(folder)) as caller:
        caller.initialize()
        with looker(caller.pid, folder) as between:
            yield Ready(caller, caller.pid, use_tool(), between)


def http_forwarder(*, modern: bool = True) -> Run:
    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        command = (*prefix, sys.executable, "-m", "bench.http_forwarder", "--stdio", *echo_command())
        with Listener(command, environment(folder), VALGRIND_START_DEADLINE) as listener:
            with HttpCaller(listener.url, modern=modern) as caller:
                return make_calls(
                    caller, listener.pid, Call.of("echo", {"text": TEXT}, text=TEXT), calls, least_seconds
                )

    return run


def http_workbench(
    in_flight: int = 1, *, modern: bool = True, is_guarded: bool = False, is_counting: bool = True
) -> Run:
    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        own = environment(folder)
        token = make_key(own) if is_guarded else ""
        config = write_config(folder, in_toolbox=False, audit=is_guarded, policy=POLICY if is_guarded else ())
        command = http_command(prefix, config, *(() if is_guarded else ("--no-token",)))
        if not is_counting:
            command = with_script(command, UNCOUNTING)
        with Listener(command, own, VALGRIND_START_DEADLINE) as listener:
            with HttpCaller(listener.url, modern=modern, token=token, legacy_version=UNPRIMED_VERSION) as caller:
                if not modern:
                    caller.initialize()
                return make_calls(caller, listener.pid, flat_call(), calls, least_seconds, in_flight=in_flight)

    return run


def http_command(prefix: tuple[str, ...], config: Path, *options: str) -> tuple[str, ...]:
    serve = (*prefix, sys.executable, "-m", "mcp_workbench", "serve", "--http", "127.0.0.1:0")
    return (*serve, *options, "--face", "flat", "--config", str(config))


def with_script(command: tuple[str, ...], script: str) -> tuple[str, ...]:
    """The command with this script in place of the module that it runs."""
    at = command.index("-m")
    return (*command[:at], "-c", script, *command[at + 2 :])


def flat_call() -> Call:
    """Over HTTP servers are shown flat, so that a call is the same as the forwarder's but for its name."""
    return Call.of(f"{SERVERS_COUNTED[0]}:echo", {"text": TEXT}, text=TEXT)


def use_tool() -> Call:
    tool = {"toolbox": TOOLBOX, "server": SERVERS_COUNTED[0], "tool": "echo"}
    return Call.of("use_tool", {"tool": tool, "arguments": {"text": TEXT}}, text=TEXT)


def environment(folder: Path) -> dict[str, str]:
    """Ours, with folders of its own, and with the same order of sets in every run."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "STATE", "DATA", "CONFIG")}
    return {**ours, **own, "XDG_RUNTIME_DIR": str(folder), "PYTHONHASHSEED": "1"}


def write_config(
    folder: Path,
    *,
    in_toolbox: bool,
    audit: bool = False,
    policy: Sequence[Mapping[str, object]] = (),
    metrics: bool = False,
    traces: tuple[str, float] | None = None,
    page: Mapping[str, object] | None = None,
) -> Path:
    program, *arguments = echo_command()
    servers = {name: {"command": program, "args": arguments} for name in SERVERS_COUNTED}
    config: dict[str, object] = {"mcpServers": servers}
    if in_toolbox:
        config = {"toolboxes": {TOOLBOX: {"description": "Echoes.", **config}}}
    if audit:
        config["audit"] = {"file": str(folder / "audit.jsonl")}
    if metrics:
        # At a free port: nobody asks for them.
        config["metrics"] = "127.0.0.1:0"
    if policy:
        config["policy"] = list(policy)
    if traces is not None:
        config["telemetry"] = {"otlp": traces[0], "traces": traces[1]}
    if page is not None:
        config["page"] = page
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def make_calls(
    caller: Caller,
    pid: int,
    call: Call,
    calls: int,
    least_seconds: float,
    between: Between | None = None,
    *,
    in_flight: int = 1,
) -> float:
    caller.latencies(call, WARM_UP_CALLS)
    _settle(pid)
    start = time.monotonic()
    if in_flight == 1:
        make_some(caller, call, calls, between)
    else:
        caller.calls_per_second(call, calls, in_flight)
    lasted = time.monotonic() - start
    time.sleep(max(0.0, least_seconds - lasted))
    return lasted


def make_some(caller: Caller, call: Call, calls: int, between: Between | None) -> None:
    """One after another, with what is done between them."""
    if between is None:
        caller.latencies(call, calls)
        return
    for _ in range(calls // between[0]):
        caller.latencies(call, between[0])
        between[1]()
    if rest := calls % between[0]:
        caller.latencies(call, rest)


def _settle(pid: int) -> None:
    """Wait until the process has nothing left to do: what it does once, soon after its first calls, is not theirs."""
    deadline = time.monotonic() + SETTLE_DEADLINE
    before, since = -1.0, time.monotonic()
    while time.monotonic() < deadline:
        now = processor_seconds(pid)
        if now - before > QUIET_SECONDS:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET_INTERVAL:
            return
        time.sleep(QUIET_INTERVAL / 10)
