"""The nets that catch processes: the guardian, the marks, the strays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable
from tests.support.processes import alive, available, command_line, descendants, wait_until

pytestmark = pytest.mark.skipif(not available(), reason="asks /proc about processes")


@pytest.fixture
def table() -> Iterator[ProcessTable]:
    table = ProcessTable()
    yield table
    table.close()


def guardians() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if "trap '' INT TERM" in command_line(pid)}


def sole_guardian() -> int:
    """In the middle of `exec` it has no command line yet."""
    wait_until(lambda: len(guardians()) == 1, what="one guardian")
    return guardians().pop()


def test_a_table_that_is_not_used_starts_nothing(table: ProcessTable) -> None:
    before = descendants(os.getpid())
    assert table.mark() != table.mark()
    assert descendants(os.getpid()) == before
    assert not table.is_prepared


def test_preparing_twice_starts_one_guardian_and_closing_ends_it(table: ProcessTable) -> None:
    table.prepare()
    table.prepare()
    sole_guardian()
    table.close()
    assert guardians() == set()


def test_a_guardian_that_was_killed_is_replaced_before_the_next_start(table: ProcessTable) -> None:
    table.prepare()
    first = sole_guardian()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first))
    table.add(123456)  # nobody reads this any more, and that is no error
    table.prepare()
    second = sole_guardian()
    assert second != first
    table.remove(123456)


def test_a_guardian_ignores_the_signals_that_a_terminal_sends(table: ProcessTable) -> None:
    table.prepare()
    guardian = sole_guardian()
    wait_until(lambda: ignored_signals(guardian) >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    assert alive(guardian)
    assert os.getpgid(guardian) != os.getpgrp()


def ignored_signals(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 65) if mask & (1 << (number - 1))}


def test_strays_are_distinguished_by_their_mark(table: ProcessTable) -> None:
    mine, other = table.mark(), table.mark()
    table.prepare()
    sleeper = ["sleep", "600"]
    stray = subprocess.Popen(sleeper, env={**os.environ, PROCESS_MARK_VARIABLE: mine}, start_new_session=True)
    server = subprocess.Popen(sleeper, env={**os.environ, PROCESS_MARK_VARIABLE: mine}, start_new_session=True)
    table.add(server.pid)
    try:
        wait_until(lambda: table.strays(mine) == [stray.pid], what="the mark in the environment")
        assert table.strays(other) == []
        assert server.pid not in table.strays()
    finally:
        for process in (stray, server):
            process.kill()
            process.wait()


def test_strays_without_an_environment_are_distinguished_by_their_tag(table: ProcessTable) -> None:
    mine, other = table.mark(), table.mark()
    table.prepare()
    guardian = sole_guardian()
    with table.tagging(mine):
        stray = subprocess.Popen(["sh", "-c", "sleep 600; true"], env={}, executable="/bin/sh", start_new_session=True)
    stranger = subprocess.Popen(["sleep", "600"], env={}, executable="/bin/sleep", start_new_session=True)
    try:
        wait_until(lambda: table.strays(mine) == [stray.pid], what="the tag in the limits")
        # In the middle of `exec` the stranger cannot be read, and counts as possibly marked.
        wait_until(lambda: table.is_clear_of(other), what="the end of `exec`")
        assert table.strays(other) == []
        assert not table.is_clear_of(mine)
        (below,) = [pid for pid in wait_for_children(stray.pid) if pid != stray.pid]
        assert limit_of(below) == limit_of(stray.pid) != limit_of(stranger.pid) == limit_of(os.getpid())
        assert limit_of(guardian) not in (limit_of(stray.pid), limit_of(os.getpid()))
    finally:
        for process in (stray, stranger):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_children(pid: int) -> set[int]:
    wait_until(lambda: bool(descendants(pid)))
    return descendants(pid)


def limit_of(pid: int) -> str:
    limits = Path(f"/proc/{pid}/limits").read_text()
    return next(line for line in limits.splitlines() if line.startswith("Max realtime timeout"))


def test_a_process_that_cannot_be_read_right_now_counts_as_left(table: ProcessTable) -> None:
    """In the middle of `exec` a process has no environment; it must not slip through just then."""
    mark = table.mark()
    ended = subprocess.Popen(["true"], env={**os.environ, PROCESS_MARK_VARIABLE: mark}, start_new_session=True)
    wait_until(lambda: not alive(ended.pid))
    assert table.strays(mark) == []
    assert not table.is_clear_of(mark), "not before it has been reaped"
    table.reap_strays()
    assert table.is_clear_of(mark)
    ended.wait()
    bare = subprocess.Popen(["sleep", "600"], env={}, executable="/bin/sleep", start_new_session=True)
    wait_until(lambda: "sleep" in command_line(bare.pid))
    assert table.is_clear_of(mark), "one that has an empty environment for good is nobody's"
    bare.kill()
    bare.wait()


def test_at_the_very_end_whole_families_go(table: ProcessTable) -> None:
    """Without a mark and each in a session of its own, so that only their descent gives them away."""
    script = "setsid sh -c 'setsid sh -c \"setsid sleep 600 & sleep 600\" & sleep 600' & sleep 600"
    before = descendants(os.getpid())
    family = subprocess.Popen(["setsid", "sh", "-c", script], env={"PATH": os.environ["PATH"]})
    wait_until(lambda: sum(command_line(pid) == "sleep 600" for pid in descendants(os.getpid()) - before) == 4)
    assert len(table.strays()) < 4
    table.kill_strays()
    assert descendants(os.getpid()) == before
    family.wait()


def test_marks_of_servers_are_no_prefixes_of_each_other(table: ProcessTable) -> None:
    marks = [table.mark() for _ in range(20)]
    assert not any(one != other and other.startswith(one) for one in marks for other in marks)
    assert not set(marks) & {ProcessTable().mark() for _ in range(20)}


# A process that starts servers in groups of their own and dies without warning, as we do when we are killed.
DIES = """
import os, signal, subprocess, sys
from mcp_workbench.engine.transport.processes import PROCESS_MARK_VARIABLE, ProcessTable
table = ProcessTable()
table.prepare()
started = []
for command in (["sleep", "600"], ["sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600"]):
    environment = {**os.environ, PROCESS_MARK_VARIABLE: table.mark()}
    started.append(subprocess.Popen(command, start_new_session=True, env=environment))
    table.add(started[-1].pid)
finished = subprocess.Popen(["true"], start_new_session=True)
table.add(finished.pid)
finished.wait()
table.remove(finished.pid)
# One that has left every group but kept the mark.
marked = {**os.environ, PROCESS_MARK_VARIABLE: table.mark()}
subprocess.run(["setsid", "sh", "-c", "trap '' TERM; sleep 600 &"], env=marked)
print(len(started), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_when_we_are_killed_the_guardian_ends_every_group_and_every_marked_process() -> None:
    before = descendants(os.getpid())
    # Orphans of the dying process come to us: it is a subreaper, and so are we.
    with subprocess.Popen([sys.executable, "-c", DIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as dying:
        assert dying.stdin is not None and dying.stdout is not None
        dying.stdout.readline()
        wait_until(lambda: sum(command_line(pid) == "sleep 600" for pid in descendants(os.getpid())) >= 3)
        dying.stdin.write(b"\n")
        dying.stdin.flush()
        dying.wait()
    wait_until(lambda: not descendants(os.getpid()) - before, what="the end of everything it started")


def test_killing_everything_at_once_ends_groups_and_strays() -> None:
    script = DIES.replace(
        "sys.stdin.readline()\nos.kill(os.getpid(), signal.SIGKILL)", "table.kill_all(); table.close()"
    )
    before = descendants(os.getpid())
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout == b"2\n"
    wait_until(lambda: not descendants(os.getpid()) - before, what="the end of everything it started")
