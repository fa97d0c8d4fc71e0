"""What is taken from a server, and from nothing else."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_workbench.engine.process_context import DEBUGGER, hide_memory
from mcp_workbench.engine.transport import seccomp
from mcp_workbench.engine.transport.confinement import (
    GUARDED,
    ROOT_CAPABILITIES,
    Confinement,
    start_confined,
)
from tests.support.processes import available, wait_until

pytestmark = pytest.mark.skipif(not available(), reason="confines on Linux only")

MASK = sum(1 << number for number in ROOT_CAPABILITIES)


def status_of(confinement: Confinement, command: str = "cat /proc/self/status") -> dict[str, str]:
    """What the kernel says of a program started under this confinement."""

    def start() -> bytes:
        return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True).stdout

    return status(start_confined(confinement, start).decode())


def status(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def our_status() -> dict[str, str]:
    return status(Path("/proc/thread-self/status").read_text())


def test_server_and_its_children_never_gain_privileges_and_we_still_can() -> None:
    before = our_status()
    assert status_of(GUARDED)["NoNewPrivs"] == "1"
    assert status_of(GUARDED, "sh -c '(setsid sh -c \"cat /proc/self/status\")'")["NoNewPrivs"] == "1"
    after = our_status()
    for name in ("NoNewPrivs", "CapEff", "CapPrm", "CapBnd", "CapInh"):
        assert after[name] == before[name], name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_server_of_root_keeps_only_capabilities_for_files_and_users() -> None:
    found = status_of(GUARDED)
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert int(found[name], 16) & ~MASK == 0, name
    assert int(found["CapPrm"], 16) == int(our_status()["CapPrm"], 16) & MASK
    assert int(found["CapInh"], 16) == int(found["CapAmb"], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_server_of_root_uses_files_of_others(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("before")
    theirs.chmod(0o600)
    os.chown(theirs, 1234, 1234)
    command = f"echo after > '{theirs}' && chown 1235 '{theirs}'"
    start_confined(GUARDED, lambda: subprocess.run(["/bin/sh", "-c", command], check=True))
    assert (theirs.read_text(), theirs.stat().st_uid) == ("after\n", 1235)


@pytest.mark.parametrize("has_flags", [True, False])
def test_filter_is_applied_once_with_and_without_the_call_for_it(
    has_flags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_flags:
        # No call has this number.
        monkeypatch.setattr(seccomp, "call_number", lambda: 9999)
    before = int(our_status().get("Seccomp_filters", "0"))
    found = status_of(GUARDED)
    assert (found["Seccomp"], int(found["Seccomp_filters"])) == ("2", before + 1)


def test_a_program_that_cannot_be_started_is_reported_as_without_confinement() -> None:
    def start() -> None:
        subprocess.run(["/does/not/exist"])

    with pytest.raises(FileNotFoundError):
        start_confined(GUARDED, start)


def test_a_hundred_starts_leave_no_thread(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/task"))
    for _ in range(100):
        start_confined(GUARDED, lambda: None)
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= before, what="the end of all threads")


def forked(work: Callable[[], None]) -> int:
    """Do this in a process of its own, as an ordinary user. Returns its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
                # PR_SET_DUMPABLE: the kernel has hidden the memory of a process that was root.
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_readable(pid: int) -> bool:
    """Whether another process of the same user can read its environment."""
    reader = os.fork()
    if reader == 0:
        try:
            Path(f"/proc/{pid}/environ").read_bytes()
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0


def test_our_memory_is_hidden_from_our_own_user_and_of_no_hindrance_to_us() -> None:
    def work() -> None:
        owner = os.getpid()
        os.environ[DEBUGGER] = "1"
        hide_memory()
        assert is_readable(owner), "a user may ask for that"
        del os.environ[DEBUGGER]
        hide_memory()
        assert not is_readable(owner)
        # What we need of ourselves.
        assert os.listdir("/proc/self/fd")
        assert Path(f"/proc/self/task/{owner}/children").read_text() == ""
        assert "NoNewPrivs" in Path("/proc/self/status").read_text()
        assert Path("/proc/self/limits").read_text()
        # And what we start can be looked into again, by the guardian for one.
        child = subprocess.Popen(["/bin/sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        assert Path(f"/proc/{child.pid}/environ").read_bytes()
        child.communicate(b"\n")

    assert forked(work) == 0
