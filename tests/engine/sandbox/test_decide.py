"""What each profile grants, decided from settings and paths that exist or do not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox.decide import NPM_REGISTRY, ServerProgram, decide
from mcp_workbench.engine.sandbox.machine import look
from mcp_workbench.engine.sandbox.sandbox import Machine, Sandbox


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path.resolve() / "home"
    (found / ".ssh").mkdir(parents=True)
    (found / "state").mkdir()
    return found


def machine_of(home: Path) -> Machine:
    protected = ((str(home / ".ssh"), "where your SSH keys are"), (str(home / "state"), "where our state is"))
    return Machine(str(home), str(home / "homes"), protected, look, system=("/usr", "/nowhere"), devices=("/dev/null",))


def decided(home: Path, settings: SandboxConfig | None, args: Sequence[str] = (), **changed: Any) -> Sandbox:
    env = changed.pop("env", {})
    program = ServerProgram(
        args=args,
        own_environment=env,
        environment={"HOME": str(home), "XDG_CONFIG_HOME": "/c", "DISPLAY": ":0", "PATH": "/usr/bin", **env},
        folder=None,
        is_folder_named=False,
        files=(),
        script=None,
        home_name="abc",
    )
    return decide(settings, program._replace(**changed), machine_of(home))


def contained(home: Path, args: Sequence[str] = (), **changed: Any) -> Sandbox:
    return decided(home, SandboxConfig(profile="contained"), args, **changed)


def named(sandbox: Sandbox) -> set[str]:
    """What is written beyond what every server writes."""
    assert sandbox.home is not None
    return set(sandbox.write) - {sandbox.home, "/dev/null"}


def test_without_a_setting_it_is_guard_as_far_as_possible(home: Path) -> None:
    sandbox = decided(home, None, folder="/srv")
    assert (sandbox.profile, sandbox.is_best_effort, sandbox.limits_files, sandbox.folder) == (
        "guard",
        True,
        False,
        "/srv",
    )
    assert sandbox.environment["DISPLAY"] == ":0"
    assert not decided(home, SandboxConfig(profile="guard")).is_best_effort


def test_contained_has_a_home_and_a_temporary_folder_of_its_own(home: Path) -> None:
    sandbox = contained(home)
    assert (sandbox.home, sandbox.temporary) == (str(home / "homes/abc"), str(home / "homes/abc/tmp"))
    environment = sandbox.environment
    assert (environment["HOME"], environment["TMPDIR"]) == (sandbox.home, sandbox.temporary)
    assert environment["PYTHONPYCACHEPREFIX"].startswith(str(sandbox.home))
    assert environment["PATH"] == "/usr/bin" and not {"XDG_CONFIG_HOME", "DISPLAY"} & environment.keys()
    assert sandbox.read == ("/usr",) and not named(sandbox)
    assert (sandbox.network, sandbox.memory, sandbox.folder) == ("all", None, sandbox.home)


def test_variables_of_the_entry_are_not_replaced(home: Path) -> None:
    assert contained(home, env={"HOME": "/x", "TMPDIR": "/y"}).environment["HOME"] == "/x"


def test_a_folder_that_is_named_can_be_written_and_of_a_file_its_folder(home: Path) -> None:
    for name in ("work", "notes", "mem ory\nfiles", "db"):
        (home / name).mkdir()
    (home / "notes/n.txt").touch()
    (home / "db/x.sqlite").touch()
    # Not there yet: the server creates it.
    later = home / "mem ory\nfiles" / "m.json"
    args = ("--quiet", str(home / "work"), f"--notes={home}/notes/n.txt", "//host/share", "https://a.b/c")
    sandbox = contained(home, args, env={"MEMORY": str(later), "URL": "sqlite:///x", "DB": f"{home}/db/x.sqlite"})
    assert named(sandbox) == {str(home / name) for name in ("work", "notes", "mem ory\nfiles", "db")}
    assert sandbox.skipped == ()


def test_the_folder_of_a_database_in_an_address_is_granted(home: Path) -> None:
    for name in ("a", "b", "c"):
        (home / name).mkdir()
    env = {
        "DB_URL": f"sqlite:///{home}/a/data.db?mode=rw",
        "OTHER": f"sqlite+aiosqlite:///{home}/b/x",
        "R": "sqlite:///c/x",
    }
    sandbox = contained(home, (f"--root=file://{home}/c",), env=env)
    assert named(sandbox) == {str(home / name) for name in ("a", "b", "c")}
    assert named(contained(home, (f"https://example.com{home}/a", f"postgresql://{home}/a"))) == set()


def test_a_name_that_is_not_unicode_is_granted(home: Path) -> None:
    folder = os.fsencode(home) + b"/\xff\xfe"
    os.mkdir(folder)
    assert named(contained(home, (os.fsdecode(folder),))) == {os.fsdecode(folder)}


def test_missing_folders_are_skipped_and_reported(home: Path) -> None:
    settings = SandboxConfig(profile="contained", read=("/nowhere/r",), write=("/nowhere/w",))
    sandbox = decided(home, settings, ("/nowhere/deep/a",))
    assert not named(sandbox)
    assert sandbox.skipped == tuple(f"`/nowhere/{name}` does not exist" for name in ("r", "w", "deep/a"))


@pytest.mark.parametrize("name", ["", "..", "state", "state/deep", ".ssh"])
def test_broad_or_protected_folders_are_not_granted(name: str, home: Path) -> None:
    (home / "state/deep").mkdir()
    (home / "fine").mkdir()
    sandbox = contained(home, (str(home / "fine"), os.path.join(home, name)))
    assert named(sandbox) == {str(home / "fine")}
    assert len(sandbox.skipped) == 1


def test_the_root_folder_is_not_granted(home: Path) -> None:
    sandbox = contained(home, ("/",), folder="/", is_folder_named=True)
    assert "/" not in (*sandbox.read, *sandbox.write) and sandbox.skipped == ("`/` is everything",)
    assert sandbox.folder == sandbox.home


def test_a_link_to_a_protected_folder_is_seen_through(home: Path) -> None:
    (home / "work").symlink_to(home / ".ssh")
    settings = SandboxConfig(profile="contained", write=(str(home / "work"),))
    sandbox = decided(home, settings)
    assert not named(sandbox) and len(sandbox.skipped) == 1


@pytest.mark.parametrize("target", [".ssh/key", ".aws/credentials", ".aws", ".bashrc"])
def test_a_link_that_the_server_could_have_made_is_not_followed(target: str, home: Path) -> None:
    """It was given the folder at an earlier start, when the path was that of a file or did not exist."""
    for name in ("data", "fine", ".aws"):
        (home / name).mkdir()
    for name in (".ssh/key", ".aws/credentials", ".bashrc"):
        (home / name).touch()
    (home / "data/memory").symlink_to(home / target)
    sandbox = contained(home, (str(home / "fine"),), env={"MEMORY": f"{home}/data/memory"})
    assert named(sandbox) == {str(home / "fine")}
    assert not any(path.startswith(str(home)) for path in sandbox.read)
    assert sandbox.skipped == (f"`{home}/data/memory` leads through a link that the server could have made",)


def test_a_link_in_a_folder_that_it_writes_is_not_followed(home: Path) -> None:
    for name in ("project", ".aws", "fine"):
        (home / name).mkdir()
    (home / "project/link").symlink_to(home / ".aws")
    (home / "short").symlink_to(home / "fine")
    link, short = str(home / "project/link"), str(home / "short")
    settings = SandboxConfig(profile="contained", read=(short, link), write=(short, link))
    sandbox = decided(home, settings, folder=str(home / "project"), is_folder_named=True)
    assert named(sandbox) == {str(home / name) for name in ("fine", "project")}
    assert str(home / ".aws") not in sandbox.read and len(sandbox.skipped) == 1
    moved = decided(
        home, SandboxConfig(profile="contained", write=(str(home / "project"),)), folder=link, is_folder_named=True
    )
    assert named(moved) == {str(home / "project")} and moved.folder == moved.home


def test_a_link_in_a_folder_that_is_named_is_not_followed_on_the_way_to_anything_else(home: Path) -> None:
    for name in ("work", "fine", ".aws"):
        (home / name).mkdir()
    (home / "notes.txt").touch()
    (home / "work/link").symlink_to(home / ".aws")
    (home / "short").symlink_to(home / "fine")
    link = str(home / "work/link")
    settings = SandboxConfig(profile="contained", read=(str(home / "short"), link))
    # The file that is not there yet would be in the folder that the link leads to.
    sandbox = decided(home, settings, (str(home / "notes.txt"), str(home / "work"), f"{link}/new.json"))
    assert named(sandbox) == {str(home / "notes.txt"), str(home / "work")}
    assert str(home / "fine") in sandbox.read and str(home / ".aws") not in sandbox.read
    assert len(sandbox.skipped) == 2


def test_a_link_that_the_server_cannot_have_made_is_followed(home: Path) -> None:
    (home / "disk/notes").mkdir(parents=True)
    (home / "notes").symlink_to(home / "disk/notes")
    assert named(contained(home, (str(home / "notes"),))) == {str(home / "disk/notes")}


def test_a_file_in_a_folder_that_is_too_wide_is_granted_alone(home: Path) -> None:
    (home / "notes.txt").touch()
    (home / ".ssh/key").touch()
    sandbox = contained(home, (str(home / "notes.txt"), "-i", str(home / ".ssh/key")))
    assert named(sandbox) == {str(home / "notes.txt")}
    assert str(home / ".ssh/key") in sandbox.read


def test_a_folder_of_programs_is_read_and_not_written(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "node.js").touch()
    sandbox = contained(home, ("/usr/bin/git",), env={"PATH": f"/usr/bin:{home}/bin"})
    assert not named(sandbox) and str(home / "bin") in sandbox.read


def test_the_script_of_an_interpreter_is_not_a_file_to_work_on(home: Path) -> None:
    (home / "server").mkdir()
    script = home / "server/index.js"
    script.touch()
    sandbox = contained(home, (str(script),), script=str(script), files=(str(home / "server"),))
    assert not named(sandbox) and str(home / "server") in sandbox.read


@pytest.mark.parametrize(("is_named", "profile", "written"), [(True, "contained", True), (False, "contained", False)])
def test_the_folder_it_starts_in_is_read_and_if_it_was_named_written(
    is_named: bool, profile: str, written: bool, home: Path
) -> None:
    (home / "project").mkdir()
    folder = str(home / "project")
    sandbox = contained(home, folder=folder, is_folder_named=is_named)
    assert (folder in sandbox.write, folder in sandbox.read, sandbox.folder) == (written, not written, folder)


def test_sealed_reads_its_folder_and_has_no_network_and_limits(home: Path) -> None:
    (home / "project").mkdir()
    (home / "data").mkdir()
    settings = SandboxConfig(profile="sealed")
    sandbox = decided(home, settings, (str(home / "data"),), folder=str(home / "project"), is_folder_named=True)
    assert str(home / "project") in sandbox.read and named(sandbox) == {str(home / "data")}
    assert (sandbox.network, sandbox.memory, sandbox.processes) == ("none", 1 << 30, 64)
    assert sandbox.environment["npm_config_offline"] == "true" and sandbox.environment["UV_OFFLINE"] == "1"


def test_sealed_with_a_network_is_not_told_to_be_offline(home: Path) -> None:
    sandbox = decided(home, SandboxConfig(profile="sealed", network="all", memory=1 << 31))
    assert (sandbox.network, sandbox.memory) == ("all", 1 << 31) and "UV_OFFLINE" not in sandbox.environment


def test_a_list_of_hosts_leads_programs_to_the_only_way_out(home: Path) -> None:
    env = {"ALL_PROXY": "socks://corporate", "https_proxy": "http://corporate", "OTHER": "kept"}
    settings = SandboxConfig(profile="sealed", network=("other.org", "a.com"))
    found = decided(home, settings, env=env).environment
    proxies = {name: value for name, value in found.items() if name.lower().endswith("proxy") and "NODE" not in name}
    assert proxies == {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:3128"),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    }
    assert found["NODE_USE_ENV_PROXY"] == "1" and found["OTHER"] == "kept" and "UV_OFFLINE" not in found
    # What is on this machine is reached through the proxy as well.
    listed = decided(home, SandboxConfig(network=("other.org", "localhost:5432")))
    assert "NO_PROXY" not in listed.environment


def test_npx_asks_its_registry_first_only_where_that_can_be_reached(home: Path) -> None:
    name = "npm_config_prefer_offline"
    assert decided(home, SandboxConfig(network=("a.com",))).environment[name] == "true"
    assert name not in decided(home, SandboxConfig(network=("a.com", NPM_REGISTRY))).environment
    assert name not in decided(home, SandboxConfig()).environment
