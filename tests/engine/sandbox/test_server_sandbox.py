"""A server's sandbox, from its configuration to a process."""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.sandbox import Sandbox
from mcp_workbench.engine.sandbox.server_sandbox import Owner, enforce, home_name, sandbox_of
from mcp_workbench.engine.transport import landlock, seccomp
from mcp_workbench.engine.transport.confinement import CannotConfine, start_confined
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
]
OWNER = Owner("/c.json", "box")
BACKEND = "auto"


@pytest.fixture(params=["landlock", "bwrap"], autouse=True)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "bwrap" and (trouble := capabilities().why_no_bwrap()) is not None:
        pytest.skip(trouble)
    monkeypatch.setattr(f"{__name__}.BACKEND", request.param)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path.resolve() / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path.resolve() / "data"))
    return found


def decided(home: Path, *args: str, **settings: object) -> Sandbox:
    sandbox = SandboxConfig(**{"profile": "contained", "backend": BACKEND, **settings})  # type: ignore[arg-type]
    config = ServerConfig(name="s", command="/bin/cat", args=args, sandbox=sandbox)
    return sandbox_of(config, {"HOME": str(home), "PATH": "/usr/bin:/bin"}, None, OWNER)


def shell(sandbox: Sandbox, script: str, *args: str) -> subprocess.CompletedProcess[str]:
    launch = enforce(sandbox).launch
    command = [*launch.wrapper, "/bin/sh", "-c", script, "sh", *args]
    options: dict[str, Any] = {"env": sandbox.environment, "cwd": sandbox.folder, "pass_fds": launch.descriptors}
    try:
        return start_confined(
            launch.confinement, lambda: subprocess.run(command, capture_output=True, text=True, **options)
        )
    finally:
        launch.abandon()


def test_a_link_that_takes_the_place_of_a_granted_folder_is_not_followed(home: Path) -> None:
    work, secret = home / "work", home / "secret"
    for each in (work, secret):
        each.mkdir()
        (each / "file").write_text(each.name)
    sandbox = decided(home, str(work))
    assert shell(sandbox, 'cat "$1/file"', str(work)).stdout == "work"
    work.rename(home / "moved")
    work.symlink_to(secret)
    done = shell(sandbox, 'cat "$1/file"', str(work))
    assert done.stdout == "" and done.stderr.startswith("cat: ")


def test_a_link_on_the_way_to_a_granted_folder_is_not_followed_either(home: Path) -> None:
    for each in ("a/work", "b/work"):
        (home / each).mkdir(parents=True)
        (home / each / "file").write_text(each)
    sandbox = decided(home, str(home / "a/work"))
    (home / "a").rename(home / "moved")
    (home / "a").symlink_to(home / "b")
    assert shell(sandbox, 'cat "$1/file"', str(home / "a/work")).stdout == ""


def test_its_home_lasts_and_is_that_of_this_server_and_user_alone(home: Path) -> None:
    assert shell(decided(home), 'echo kept > "$HOME/file"').returncode == 0
    # Other arguments are no other server.
    assert shell(decided(home, str(home)), 'cat "$HOME/file"').stdout == "kept\n"
    config = ServerConfig(name="s", command="/bin/cat")
    others = {
        home_name(ServerConfig(name="t", command="/bin/cat"), OWNER),
        home_name(config, OWNER._replace(toolbox="other")),
        home_name(config, OWNER._replace(principal="anna")),
        home_name(config, OWNER._replace(path="/d.json")),
    }
    assert len(others | {home_name(config, OWNER)}) == 5


def test_private_home_is_closed_to_other_users(home: Path) -> None:
    sandbox = decided(home)
    enforce(sandbox)
    assert sandbox.home is not None and os.stat(sandbox.home).st_mode & 0o777 == 0o700


def test_limits_are_in_force_and_cannot_be_raised(home: Path) -> None:
    sandbox = decided(home, memory=64 << 20, cpu_seconds=7)
    assert shell(sandbox, "ulimit -d; ulimit -t; ulimit -Hd; ulimit -Ht").stdout.split() == ["65536", "7"] * 2


def test_a_hundred_starts_leave_no_thread_no_descriptor_and_no_mount(home: Path) -> None:
    sandbox = decided(home, str(home))
    mounts = Path("/proc/self/mounts").read_text()
    shell(sandbox, "true")
    gc.collect()
    threads, descriptors = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        assert shell(sandbox, ":").returncode == 0
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert Path("/proc/self/mounts").read_text() == mounts
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads, what="the end of all threads")


@pytest.mark.parametrize("part", ["landlock", "seccomp"])
def test_unenforceable_sandbox_stops_the_start_unless_best_effort(
    part: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> None:
        raise OSError(1, "refused")

    monkeypatch.setattr(f"{__name__}.BACKEND", "landlock")

    if part == "landlock":
        monkeypatch.setattr(landlock.Ruleset, "apply", refused)
    else:
        monkeypatch.setattr(seccomp, "filter_program", refused)
    with pytest.raises(CannotConfine, match="refused"):
        shell(decided(home), 'touch "$HOME/started"')
    assert not list((home.parent / "data").rglob("started"))
    assert shell(decided(home, best_effort=True), 'touch "$HOME/started"').returncode == 0


def test_a_home_that_its_entry_sets_is_not_taken_for_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, other = tmp_path.resolve() / "user", tmp_path.resolve() / "other"
    (user / ".ssh").mkdir(parents=True)
    other.mkdir()
    monkeypatch.setenv("HOME", str(user))
    config = ServerConfig(
        name="s",
        command="/bin/sh",
        args=(str(user / ".ssh"),),
        env={"HOME": str(other)},
        sandbox=SandboxConfig(profile="contained"),
    )
    sandbox = sandbox_of(config, {"PATH": "/bin", "HOME": str(other)}, None, Owner("/c.json", "box"))
    assert str(other) in sandbox.write
    assert str(user / ".ssh") not in (*sandbox.read, *sandbox.write) and len(sandbox.skipped) == 1
