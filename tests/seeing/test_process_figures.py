"""What processes take is read from the system, and what cannot be read is not made up."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mcp_workbench.seeing.process_figures import own_process, tree_of


def test_of_ourselves_at_least_the_cpu_time_is_known() -> None:
    facts = own_process(5.0)
    assert facts.cpu_seconds > 0 and facts.started_at == 5.0


def test_a_process_that_has_ended_has_no_figures() -> None:
    assert tree_of([2**22 + 1]) is None and tree_of([]) is None


@pytest.mark.processes
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux' /proc")
def test_children_of_a_server_count_towards_it() -> None:
    child = "import sys; print(flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdin is not None
        started.stdout.readline()
        alone, tree = tree_of([os.getpid()]), tree_of([started.pid])
        started.stdin.close()
    assert tree is not None and tree.processes == 2 and tree.memory > 1024 * 1024
    assert alone is not None and alone.processes >= 3, "and these are ours"
