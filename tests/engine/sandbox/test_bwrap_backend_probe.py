"""Whether `bwrap` works here, asked before it is relied on: a wrong yes would start servers that are not contained."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox import bwrap_backend
from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.bwrap_backend import why_not
from mcp_workbench.engine.sandbox.sandbox import Capabilities, Sandbox
from mcp_workbench.errors import DownstreamError

pytestmark = pytest.mark.processes
NO_NAMESPACES = "bwrap: setting up uid map: Permission denied"
HOSTS = Sandbox("contained", limits_files=True, network=("example.org",))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(programs: Path, script: str, mode: int = 0o755, interpreter: str = "/bin/sh") -> None:
    program = programs / "bwrap"
    program.write_text(f"#!{interpreter}\n{script}\n")
    program.chmod(mode)


def refusal() -> DownstreamError:
    with pytest.raises(DownstreamError) as raised:
        choose(HOSTS, Capabilities(landlock_abi=7, has_filters=True, why_no_bwrap=why_not), "linux")
    return raised.value


def test_without_it_the_server_is_not_started_and_how_to_install_it_is_reported(programs: Path) -> None:
    assert why_not() == "bwrap is not installed"
    put(programs, "", mode=0o644)
    assert why_not() == "bwrap is not installed", "it cannot be executed"
    assert "apt install bubblewrap" in str(refusal().hint)


def test_one_that_hangs_is_given_up_and_ended(programs: Path) -> None:
    put(programs, f"echo $$ > {programs}/pid; exec /bin/sleep 600")
    assert why_not(seconds=2.0) == "bwrap did not start within 2 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((programs / "pid").read_text()), 0)


def test_where_users_may_not_have_namespaces_the_remedy_is_reported(programs: Path) -> None:
    put(programs, f"echo debug >&2; echo '{NO_NAMESPACES}' >&2; exit 1")
    assert why_not() == NO_NAMESPACES
    refused = refusal()
    assert NO_NAMESPACES in refused.message and "apparmor" in str(refused.hint)


@pytest.mark.parametrize(
    ("script", "why"), [("exit 3", "bwrap exited with status 3"), ("kill -9 $$", "bwrap exited with status -9")]
)
def test_one_that_fails_silently_does_not_count_as_working(programs: Path, script: str, why: str) -> None:
    put(programs, script)
    assert why_not() == why and why in refusal().message


def test_one_that_cannot_be_executed_is_no_crash(programs: Path) -> None:
    put(programs, "", interpreter="/does/not/exist")
    assert why_not() == "bwrap: No such file or directory"


def test_it_is_tried_with_all_that_servers_are_given(programs: Path) -> None:
    put(programs, f'echo "$@" > {programs}/words')
    assert why_not() is None
    words = (programs / "words").read_text().split()
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--proc", "--dev"} <= set(words)


@pytest.mark.parametrize("trouble", ["hangs", "is killed", "cannot be executed"])
def test_whether_it_takes_descriptors_is_asked_again_after_no_answer(
    trouble: str, programs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a machine that was busy once has it follow links from then on."""
    monkeypatch.setattr(bwrap_backend, "_takes_descriptors", cache(bwrap_backend._takes_descriptors.__wrapped__))
    script, interpreter = {
        "hangs": ("exec /bin/sleep 600", "/bin/sh"),
        "is killed": ("kill -9 $$", "/bin/sh"),
        "cannot be executed": ("", "/does/not/exist"),
    }[trouble]
    put(programs, script, interpreter=interpreter)
    monkeypatch.setattr(bwrap_backend, "_HELP_TIMEOUT", 0.5 if trouble == "hangs" else 60.0)
    assert not bwrap_backend._binds_descriptors()
    assert "bwrap did not say whether it takes descriptors" in caplog.text
    monkeypatch.setattr(bwrap_backend, "_HELP_TIMEOUT", 60.0)
    put(programs, "echo --ro-bind-fd FD DEST")
    assert bwrap_backend._binds_descriptors()
    put(programs, "exit 3")
    assert bwrap_backend._binds_descriptors(), "an answer is kept"
