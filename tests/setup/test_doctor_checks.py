"""The small checks of `doctor`, each on its own: from what there is to what is wrong with it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_workbench.engine import socket_peers
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.observe import status_socket
from mcp_workbench.engine.sandbox import machine
from mcp_workbench.engine.sandbox.sandbox import Capabilities
from mcp_workbench.engine.sandbox.server_sandbox import Owner, private_home
from mcp_workbench.engine.version import full_version
from mcp_workbench.setup import doctor_checks
from mcp_workbench.setup.diagnosis import Diagnosis, Examined, in_order
from mcp_workbench.signin.secrets import private_files
from tests.cli.commands.test_init import environment
from tests.cli.in_process import live_in
from tests.support import fake_keyring


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run = {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    chain = {**fake_keyring.environment(tmp_path / "keys"), "FAKE_KEYRING_FAULT": ""}
    live_in(monkeypatch, tmp_path, {**environment(tmp_path), **run, **chain})
    return tmp_path


def subject(home: Path, **servers: Any) -> Examined:
    content = json.dumps({"toolboxes": {"box": {"description": "d", "mcpServers": servers}}})
    return Examined(parse(content.encode(), str(home / "workbench-config.json"), os.environ), os.environ)


NOTHING = Examined(None, {})


def test_the_most_important_comes_first_and_the_order_of_checks_is_kept() -> None:
    found = [Diagnosis("note", "a", ""), Diagnosis("error", "b", ""), Diagnosis("warning", "c", "")]
    assert [each.area for each in in_order([*found, Diagnosis("error", "d", "")])] == ["b", "d", "c", "a"]
    assert found[0].as_json() == {
        "severity": "note", "area": "a", "text": "", "hint": None, "canFix": False, "fixed": None
    }  # fmt: skip


def test_a_missing_program_is_reported_once_with_how_to_get_it(home: Path) -> None:
    servers = {f"s{number}": {"command": "npx", "args": ["-y", str(number)]} for number in range(5)}
    program = home / "bin" / "here"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    more = {
        "fine": {"command": "here"},
        "own": {"command": "mcp-workbench"},
        "remote": {"url": "https://x.example"},
        "path": {"command": "/nowhere/x"},
        "folder": {"command": "./x", "cwd": str(home)},
        "elsewhere": {"command": "there", "env": {"PATH": str(home)}},
    }
    found = doctor_checks.programs(subject(home, **servers, **more))
    assert [(each.severity, each.text) for each in found] == [
        ("error", "the program `npx` is missing, which `box/s0`, `box/s1`, `box/s2` and 2 more need"),
        ("error", "the program `/nowhere/x` is missing, which `box/path` needs"),
        ("error", "the program `./x` is missing, which `box/folder` needs"),
        ("error", "the program `there` is missing, which `box/elsewhere` needs"),
    ]
    assert "install Node.js" in found[0].hint and "full path" in found[1].hint
    assert doctor_checks.programs(NOTHING) == []


def test_secrets_that_lead_nowhere_are_errors_and_open_files_can_be_closed(home: Path) -> None:
    (home / "x.env").write_text("A=1\n")
    (home / "x.env").chmod(0o644)
    found = doctor_checks.secrets(
        subject(
            home,
            x={"command": "x", "envFile": "x.env"},
            y={"command": "y", "env": {"K": "${file:missing}"}},
        )
    )
    assert [(each.severity, each.text.partition(" ")[0]) for each in found] == [
        ("error", "box/y:"),
        ("warning", f"`{home / 'x.env'}`"),
    ]
    fix = found[1].fix
    assert fix is not None and "only you" in fix()
    assert stat.S_IMODE((home / "x.env").stat().st_mode) == 0o600
    assert len(doctor_checks.secrets(subject(home, x={"command": "x", "envFile": "x.env"}))) == 0
    assert doctor_checks.secrets(NOTHING) == []


@pytest.mark.processes
def test_the_keychain_is_asked_where_something_needs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needing = subject(home, x={"command": "x", "env": {"K": "${keyring:k}"}})
    assert doctor_checks.keychain(needing) == []
    monkeypatch.setenv("FAKE_KEYRING_FAULT", "locked")
    (found,) = doctor_checks.keychain(needing)
    assert found.severity == "error" and "is locked" in found.text and "`box/x` cannot start without it" in found.text
    assert doctor_checks.keychain(subject(home, x={"command": "x"})) == []


@pytest.mark.processes
def test_secret_in_its_own_file_needs_no_keychain(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    private_files.put("mcp-workbench", "k", "a value", os.environ)
    kept = {"command": "x", "env": {"K": "${keyring:k}"}}
    needing = subject(home, kept=kept, other={"command": "x", "env": {"K": "${keyring:k} ${keyring:other}"}})
    (found,) = doctor_checks.keychain(needing)
    assert "`box/other` cannot start without it" in found.text and "box/kept" not in found.text
    assert found.hint.startswith("`mcp-workbench secret set NAME` works without a keychain; or ")
    assert doctor_checks.keychain(subject(home, kept=kept)) == []
    (path,) = (each for each in Path(private_files.folder()).iterdir())
    path.write_text("neither plain nor sealed")
    assert doctor_checks.keychain(subject(home, kept=kept)) == []
    (damaged,) = doctor_checks.secrets(subject(home, kept=kept))
    assert damaged.severity == "error" and "was not written by the workbench" in damaged.text


def test_a_cache_that_cannot_be_written_is_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_checks.cache(NOTHING) == []
    (home / "cache").write_text("a file in its place")
    (found,) = doctor_checks.cache(NOTHING)
    assert found.severity == "warning" and f"make `{home / 'cache'}` a folder" in found.hint
    monkeypatch.setattr("mcp_workbench.engine.catalog.manifests.default_folder", lambda: None)
    assert "no folder for the cache" in doctor_checks.cache(NOTHING)[0].text


def test_a_folder_for_sockets_that_others_can_enter_is_closed_and_a_long_path_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "run" / f"mcp-workbench-{os.getuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    found = [each for each in doctor_checks.sockets(NOTHING) if "can be entered" in each.text]
    assert found and found[0].fix is not None and "only you" in found[0].fix()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "x" * 120)
    assert "too long for a socket" in doctor_checks.sockets(NOTHING)[0].text


def test_where_servers_cannot_be_distinguished_from_commands_approving_is_refused_and_that_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = subject(home, one={"command": "x"})
    assert plain.config is not None
    rules = (PolicyRule(then="allow"), PolicyRule(then="ask"))
    asking = replace(plain, config=replace(plain.config, policy=rules))
    monkeypatch.setattr(socket_peers, "is_confined", lambda: False)
    assert doctor_checks.approvals(asking) == []
    monkeypatch.setattr(socket_peers, "is_confined", lambda: True)
    (found,) = doctor_checks.approvals(asking)
    assert found.severity == "warning" and "no_new_privs" in found.text and "a client that can ask you" in found.hint
    assert [each.severity for each in doctor_checks.approvals(plain)] == ["note"], "nothing is asked here"


def test_workbenches_of_another_version_and_other_installations_are_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def running() -> list[dict[str, Any]]:
        return [
            {"pid": 1, "version": "0.0.1", "serving": "shared", "configuration": {"rejected": None}},
            {"pid": 4, "version": "0.0.1", "serving": "ending", "configuration": {"rejected": None}},
            {"pid": 2, "version": "0.0.1"},
            {"pid": 3, "version": full_version(), "configuration": {"rejected": "a mistake"}},
        ]

    monkeypatch.setattr(status_socket, "running_workbenches", running)
    (home / "bin" / "mcp-workbench").write_text("#!/bin/sh\n")
    (home / "bin" / "mcp-workbench").chmod(0o755)
    found = doctor_checks.versions(NOTHING)
    assert [each.hint.partition(";")[0] for each in found[:3]] == [
        "mcp-workbench up --restart",
        "restart the client that started it",
        "correct the file",
    ]
    assert found[2].severity == "error" and "a mistake" in found[2].text
    assert "which is a different installation" in found[3].text


def test_limits_of_the_system(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (70, 4096))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10 * 1024**2))
    files, *disks = doctor_checks.limits(subject(home, x={"command": "x"}))
    assert files.text == "only 70 files may be open at once, and 74 may be needed for all servers"
    assert disks and all("only 10 MiB are free" in each.text for each in disks)
    assert len(disks) == len({os.stat(folder).st_dev for folder in (home, "/tmp")}), "a disk is named once"


def test_space_for_the_workbenchs_own_files_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere / "not" / "there" / "yet"))
    device = {str(elsewhere): 7}
    monkeypatch.setattr(doctor_checks, "_disk_of", lambda folder: device.get(folder, 8))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=0 if str(path) == str(elsewhere) else 1024**4)
    )
    (found,) = (each for each in doctor_checks.limits(NOTHING) if "free on" in each.text)
    assert found.text == f"only 0 MiB are free on the disk of `{elsewhere}`"


def test_sandbox_of_each_server_is_reported_with_missing_features(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {
        "first": ServerConfig(name="first", command="/bin/cat"),
        "fits": ServerConfig(name="fits", command="/bin/cat", sandbox=SandboxConfig(profile="guard")),
        "not": ServerConfig(name="not", command="/bin/cat", args=("/nowhere/x",), sandbox=SandboxConfig()),
    }

    def found(abi: int, servers: dict[str, ServerConfig]) -> list[str]:
        monkeypatch.setattr(machine, "capabilities", lambda: Capabilities(abi, has_filters=True))
        box = ToolboxConfig(name="b", description="d", servers=servers)
        subject = Examined(WorkbenchConfig(path="/c.json", toolboxes={"b": box}), {"HOME": "/nowhere", "PATH": "/bin"})
        return [f"{each.severity}: {each.text}" for each in doctor_checks.sandboxes(subject)]

    (machine_alone,) = found(7, {})
    assert (
        machine_alone.startswith("note: this machine has Landlock ABI 7") and "bwrap is not installed" in machine_alone
    )
    assert found(7, {"first": servers["first"]})[1:] == ["note: `b/first` runs in `guard`, the default"]
    assert "`b/x`, `b/y` run in `guard`, the default; this machine cannot keep it from" in str(
        found(2, dict.fromkeys("xy", servers["first"]))
    )
    home = private_home(servers["not"], Owner("/c.json", "b"))
    assert found(7, servers)[1:] == [
        "note: `b/first` runs in `guard`, the default",
        "note: `b/fits` runs in `guard`",
        "warning: `b/not`: not granted: `/nowhere/x` does not exist",
        f"note: `b/not` runs in `contained` by landlock; its home folder is `{home}`",
    ]
    assert [each.partition(":")[0] for each in found(0, servers)] == ["note", "note", "error", "error"]
    with_own_home = SandboxConfig(home="own", best_effort=True)
    servers["not"] = ServerConfig(name="not", command="/bin/cat", sandbox=with_own_home)
    servers["fits"] = ServerConfig(
        name="fits", command="/bin/cat", sandbox=SandboxConfig(profile="guard", best_effort=True)
    )
    shown = found(0, servers)
    assert "note: `b/not` runs in `contained` by landlock" in shown and "note: `b/fits` runs in `guard`" in shown
    assert any(each.startswith("warning: `b/fits`: this machine cannot") for each in shown)
