"""What a hostile server can do in each profile, tried by a real process of an ordinary user."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import Profile, SandboxConfig
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.server_sandbox import sandbox_of
from mcp_workbench.engine.sandbox.thread_backend import confinement_of
from mcp_workbench.engine.transport import landlock
from mcp_workbench.engine.transport.confinement import start_confined
from tests.engine.sandbox.attack_runner import OWNER, PYTHON, attack_in
from tests.support.ordinary_user import as_ordinary_user, folder_of_ordinary_user, in_own_process

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().landlock_abi < 6 or not capabilities().has_filters, reason="needs Landlock ABI 6 and seccomp"
    ),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"needs {PYTHON}"),
]

MEANT = {"read the file it was given", "write the folder it was given", "write its own home"}
# Landlock knows neither of the first two; the third is what every user may see.
NOT_STOPPED = {"see that the key exists", "change the mode of the key", "read the command line of a sibling"}
NETWORK = {"connect by TCP", "listen", "send by UDP"}
FILES = {
    "read the user's key",
    "read the home of another server",
    "read our sign-ins",
    "read the user's terminal",
    "write .bashrc",
    "write .bashrc by a symbolic link",
    "write .bashrc by a hard link",
    "truncate .bashrc",
    "create a file in the home folder",
    "remove a file",
}
LOCAL_SOCKETS = {
    "connect to a Unix socket",
    "send a datagram from a pair",
    "send a datagram from a raw pair",
    "send by netlink",
}
RESOURCES = {"start 200 processes", "exceed its memory"}


def succeeding(sandbox: SandboxConfig | None) -> set[str]:
    # Not in `/tmp`, of which some sandboxes have their own.
    with folder_of_ordinary_user("/var/tmp") as folder:
        found: dict[str, bool] = as_ordinary_user(lambda: attack_in(folder, sandbox))
    return {name for name, has_succeeded in found.items() if has_succeeded}


def test_without_a_sandbox_every_attack_succeeds() -> None:
    """What shows that the other tests can fail. Some of it depends on the machine: whether users may have namespaces,
    io_uring, or trace what is not their child."""
    depends = {"enter a user namespace", "enter a user namespace by clone", "use io_uring", "use the keyring"}
    depends |= {"enter a user namespace by clone3", "enter a user namespace by a 32-bit call"}
    depends |= {"trace a sibling", "copy memory of a sibling", "take a descriptor of a sibling"}
    reaching = {
        "connect to an abstract socket",
        "read the environment of a sibling",
        "read the memory of a sibling",
        "signal a sibling",
        "signal a sibling by its descriptor",
        "end a sibling by a descriptor of its own",
        "list the root of a sibling",
        "set limits of a sibling",
        "gain privileges by a setuid program",
        "take off the tag of its workbench",
    }
    found = succeeding(SandboxConfig(profile="off"))
    assert found - depends == MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES | reaching


@pytest.mark.parametrize("sandbox", [None, SandboxConfig(profile="guard")], ids=["by default", "guard"])
def test_guard_keeps_a_server_from_other_processes_and_privileges(sandbox: SandboxConfig | None) -> None:
    assert succeeding(sandbox) == MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES


@pytest.mark.parametrize("abi", [2, 3, 5])
def test_an_older_kernel_keeps_processes_apart_too_but_for_signals_and_abstract_sockets(
    abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    more = {"signal a sibling", "signal a sibling by its descriptor", "end a sibling by a descriptor of its own"}
    more |= {"connect to an abstract socket"}
    assert succeeding(None) == MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES | more


def test_contained_keeps_it_from_the_users_files_and_sockets_as_well() -> None:
    assert succeeding(SandboxConfig(profile="contained")) == MEANT | NOT_STOPPED | NETWORK | RESOURCES


def test_sealed_keeps_it_from_the_network_and_from_using_up_the_machine_as_well() -> None:
    assert succeeding(SandboxConfig(profile="sealed")) == MEANT | NOT_STOPPED


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_is_kept_from_the_same_but_for_the_limit_of_processes() -> None:
    expected: dict[Profile, set[str]] = {
        "guard": MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES,
        "contained": MEANT | NOT_STOPPED | NETWORK | RESOURCES,
        "sealed": MEANT | NOT_STOPPED | {"start 200 processes"},
    }
    for profile, succeeding_ones in expected.items():
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            sandbox = SandboxConfig(profile=profile)
            found = in_own_process(partial(attack_in, Path(folder), sandbox), lambda: None)
        assert {name for name, has_succeeded in found.items() if has_succeeded} == succeeding_ones, profile


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("profile", ["contained", "sealed"])
def test_root_uses_the_files_of_others_that_it_was_given_and_owns_no_other(tmp_path: Path, profile: Profile) -> None:
    given, theirs = tmp_path / "given", tmp_path / "theirs"
    given.mkdir()
    for path in (given / "file", theirs):
        path.write_text("before")
        path.chmod(0o600)
    for path in (given, given / "file", theirs):
        os.chown(path, 1234, 1234)
    tried = f"chown 0 '{theirs}'; chmod 666 '{theirs}'; setpriv --reuid 1234 --clear-groups true; echo after > file"
    config = ServerConfig(name="s", command="/bin/sh", args=(str(given),), sandbox=SandboxConfig(profile=profile))
    sandbox = sandbox_of(config, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, None, OWNER)
    command = ["/bin/sh", "-c", f"cd '{given}' && {tried}"]
    start_confined(confinement_of(sandbox), lambda: subprocess.run(command, env=sandbox.environment))
    assert (given / "file").read_text() == "after\n"
    assert (theirs.stat().st_uid, stat.S_IMODE(theirs.stat().st_mode)) == (1234, 0o600)


def test_contained_without_network_has_none() -> None:
    sandbox = SandboxConfig(profile="contained", network="none")
    assert succeeding(sandbox) == MEANT | NOT_STOPPED | RESOURCES


def test_additional_grants_are_usable() -> None:
    sandbox = SandboxConfig(profile="contained", processes=50, memory=256 << 20)
    assert succeeding(sandbox) == MEANT | NOT_STOPPED | NETWORK
