"""What a hostile server can do in each profile that `bwrap` enforces, tried by a real process of an ordinary user."""

from __future__ import annotations

import os
import sys

import pytest

from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox import bwrap_backend
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.transport import landlock
from tests.engine.sandbox.attack_runner import PYTHON
from tests.engine.sandbox.test_thread_backend_attacks import (
    FILES,
    LOCAL_SOCKETS,
    MEANT,
    NETWORK,
    NOT_STOPPED,
    RESOURCES,
    succeeding,
)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().why_no_bwrap() is not None or not capabilities().has_filters,
        reason=f"needs seccomp, and bwrap to work: {capabilities().why_no_bwrap()}",
    ),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"needs {PYTHON}"),
]
# Its own: whoever listens there is in the sandbox too.
OWN_NETWORK = {"listen"}


@pytest.fixture(params=[landlock.abi(), 0], ids=["with Landlock", "without Landlock"], autouse=True)
def has_landlock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(landlock, "abi", lambda: request.param)
    return bool(request.param >= landlock.SCOPES_ABI)


def test_guard_keeps_a_server_from_other_processes_and_privileges(has_landlock: bool) -> None:
    reached = set() if has_landlock else {"connect to an abstract socket"}
    everything_else = MEANT | NOT_STOPPED | NETWORK | FILES | LOCAL_SOCKETS | RESOURCES | reached
    # It has process numbers of its own.
    assert succeeding(SandboxConfig(profile="guard", backend="bwrap")) == everything_else - {
        "read the command line of a sibling"
    }


def test_contained_has_nothing_of_the_users_files_and_sockets() -> None:
    assert succeeding(SandboxConfig(profile="contained", backend="bwrap")) == MEANT | NETWORK | RESOURCES


def test_sealed_server_reaches_no_host_and_cannot_exhaust_the_machine() -> None:
    assert succeeding(SandboxConfig(profile="sealed", backend="bwrap")) == MEANT


def test_contained_without_network_has_none() -> None:
    sandbox = SandboxConfig(profile="contained", network="none", backend="bwrap")
    assert succeeding(sandbox) == MEANT | RESOURCES


@pytest.fixture
def readable_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our interpreter, which starts a server with hosts, may be where ordinary users cannot read."""
    monkeypatch.setattr(sys, "_base_executable", PYTHON)
    monkeypatch.setattr(bwrap_backend, "interpreter_files", lambda python: ["/usr"])


@pytest.mark.usefixtures("readable_python")
def test_host_list_allows_connections_through_the_proxy_only() -> None:
    hosts = SandboxConfig(profile="contained", network=("example.org", "127.0.0.1"))
    assert succeeding(hosts) == MEANT | OWN_NETWORK | RESOURCES
    assert succeeding(SandboxConfig(profile="sealed", network=("example.org",))) == MEANT | OWN_NETWORK


@pytest.mark.usefixtures("readable_python")
def test_with_single_unix_sockets_no_other_is_reached() -> None:
    sandbox = SandboxConfig(profile="contained", network=("example.org",), unix_sockets=("/nowhere",))
    assert succeeding(sandbox) == MEANT | OWN_NETWORK | RESOURCES


def test_additional_grants_are_usable() -> None:
    sandbox = SandboxConfig(profile="contained", processes=50, memory=256 << 20, backend="bwrap")
    assert succeeding(sandbox) == MEANT | NETWORK
