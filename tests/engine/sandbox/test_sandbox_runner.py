"""What runs in a sandbox before a server starts has an owner, and bounds."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox import sandbox_runner
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.sandbox import Sandbox
from mcp_workbench.engine.sandbox.sandbox_runner import MAX_OUTPUT_BYTES, SandboxRunner
from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable
from tests.support.processes import alive, wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
]


@pytest.fixture(params=["landlock", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "bwrap" and (trouble := capabilities().why_no_bwrap()) is not None:
        pytest.skip(trouble)
    return Sandbox("guard", environment={"PATH": "/usr/bin:/bin"}, backend=request.param)


@pytest.fixture
def table() -> Iterator[ProcessTable]:
    found = ProcessTable()
    yield found
    found.close()


def shell(runner: SandboxRunner, sandbox: Sandbox, script: str, given: bytes = b"") -> tuple[int, str]:
    return runner.run(sandbox, ("/bin/sh", "-c", script), given)


def processes_with(text: str) -> list[int]:
    """By their command line: in a namespace they have other numbers."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_found = text.encode() in (place / "cmdline").read_bytes() and alive(int(place.name))
        except OSError:
            continue
        if is_found:
            found.append(int(place.name))
    return found


def unique() -> str:
    return f"{os.getpid()}{os.urandom(2).hex()}".translate(str.maketrans("abcdef", "123456"))


def groups(table: ProcessTable) -> set[int]:
    return set(table._groups)


def test_runner_returns_status_and_output(sandbox: Sandbox, table: ProcessTable) -> None:
    runner = SandboxRunner(table)
    assert shell(runner, sandbox, "cat; echo more >&2; exit 3", b"given\n") == (3, "given\nmore\n")
    assert f"{PROCESS_MARK_VARIABLE}=" in shell(runner, sandbox, "env")[1]
    assert groups(table) == set()


def test_it_is_given_its_input_also_where_it_may_write_nothing(sandbox: Sandbox, table: ProcessTable) -> None:
    system = ("/usr", "/bin", "/lib", "/lib64", "/etc")
    contained = sandbox._replace(
        profile="contained",
        limits_files=True,
        read=tuple(dict.fromkeys(map(os.path.realpath, system))),
        links=tuple((path, os.readlink(path)) for path in system if os.path.islink(path)),
        folder="/",
    )
    # As when nothing has asked for it before.
    tempfile.tempdir = None
    assert shell(SandboxRunner(table), contained, "cat", b"given\n") == (0, "given\n")


def test_of_endless_output_the_end_is_kept(sandbox: Sandbox, table: ProcessTable) -> None:
    status, said = shell(SandboxRunner(table), sandbox, "yes | head -c 3000000; echo end")
    assert status == 0 and said.endswith("end\n") and len(said) == MAX_OUTPUT_BYTES


def test_a_program_that_takes_too_long_leaves_no_process(
    sandbox: Sandbox, table: ProcessTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_runner, "RUN_TIMEOUT", 1.0)
    mark = unique()
    # Its child holds the output open.
    status, said = shell(SandboxRunner(table), sandbox, f"echo begun; sleep {mark} & wait")
    assert status == -1 and said == "begun\n\ntimed out after 1 s"
    # The kernel ends what is in bubblewrap's namespace a moment after bubblewrap.
    wait_until(lambda: not processes_with(mark), what="all processes to end")


def test_children_left_running_end_with_the_program(sandbox: Sandbox, table: ProcessTable) -> None:
    mark = unique()
    assert shell(SandboxRunner(table), sandbox, f"sleep {mark} >/dev/null 2>&1 & echo done") == (0, "done\n")
    wait_until(lambda: not processes_with(mark), what="all processes to end")


def test_cancelling_kills_the_whole_group_and_starts_nothing_more(sandbox: Sandbox, table: ProcessTable) -> None:
    runner, mark, results = SandboxRunner(table), unique(), list[tuple[int, str]]()
    thread = threading.Thread(target=lambda: results.append(shell(runner, sandbox, f"sleep {mark} & wait")))
    thread.start()
    # Whoever ends everything ends it, too. It is recorded a moment after it has started.
    wait_until(lambda: len(groups(table)) == 1 and len(processes_with(mark)) > 1, what="its start")
    runner.cancel()
    wait_until(lambda: not processes_with(mark), what="all processes to end")
    thread.join(30)
    assert results and results[0][0] < 0 and groups(table) == set()
    assert shell(runner, sandbox, "exit 0") == (-1, "cancelled")


def test_a_program_that_cannot_be_started_is_reported_and_leaves_no_descriptor(
    sandbox: Sandbox, table: ProcessTable
) -> None:
    runner = SandboxRunner(table)
    runner.run(sandbox, ("/nonexistent/program",), b"")
    before = os.listdir("/proc/self/fd")
    status, said = runner.run(sandbox, ("/nonexistent/program",), b"")
    assert status != 0 and "No such file" in said
    assert len(os.listdir("/proc/self/fd")) == len(before) and groups(table) == set()
