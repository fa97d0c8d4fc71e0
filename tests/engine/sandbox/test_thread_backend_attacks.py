"""What a hostile server can do in each profile, tried by a real process of an ordinary user."""

from __future__ import annotations

import os

import pytest

from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.transport import landlock
from tests.engine.sandbox.attack_runner import PYTHON, attack_in
from tests.support.ordinary_user import as_ordinary_user, folder_of_ordinary_user

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
    depends |= {"trace a sibling", "copy memory of a sibling", "take a descriptor of a sibling"}
    reaching = {
        "connect to an abstract socket",
        "read the environment of a sibling",
        "read the memory of a sibling",
        "signal a sibling",
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
    more = {"signal a sibling", "connect to an abstract socket"}
    assert succeeding(None) == MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES | more


def test_contained_keeps_it_from_the_users_files_and_sockets_as_well() -> None:
    assert succeeding(SandboxConfig(profile="contained")) == MEANT | NOT_STOPPED | NETWORK | RESOURCES


def test_sealed_keeps_it_from_the_network_and_from_using_up_the_machine_as_well() -> None:
    assert succeeding(SandboxConfig(profile="sealed")) == MEANT | NOT_STOPPED


def test_contained_without_network_has_none() -> None:
    sandbox = SandboxConfig(profile="contained", network="none")
    assert succeeding(sandbox) == MEANT | NOT_STOPPED | RESOURCES


def test_additional_grants_are_usable() -> None:
    sandbox = SandboxConfig(profile="contained", processes=50, memory=256 << 20)
    assert succeeding(sandbox) == MEANT | NOT_STOPPED | NETWORK
