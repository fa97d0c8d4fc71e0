"""`mcp-workbench team trust`, and what `serve` makes of a file that lies in the current folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.in_process import run
from tests.cli.shell import Done
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder, as somebody cloned it."""
    folder = tmp_path / "project"
    folder.mkdir()
    write_config(folder, {"box": {"server": scripted_entry("--starts", folder / "starts")}})
    return folder


@pytest.mark.requirement("config.trust")
def test_a_file_is_used_after_it_was_trusted_and_asked_for_again_when_it_changes(project: Path) -> None:
    path = project / "workbench-config.json"
    refused = run("check", "--connect", cwd=project)
    assert (refused.status, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: the configuration `{path}` is not trusted yet\n\nhint: look at what it ")
    assert not (project / "starts").exists()
    trusted = run("trust", cwd=project)
    assert trusted.status == 0
    assert trusted.stdout.startswith(f"{path}: trusted as it is now; it starts\n  box/server  ")
    assert run("check", cwd=project) == Done(0, f"{path}: valid, 1 toolbox with 1 server\n", "")
    path.write_text(path.read_text() + "\n")
    assert "has changed since it was trusted" in run("check", cwd=project).stderr


def test_trust_can_be_listed_and_revoked(project: Path) -> None:
    path = project / "workbench-config.json"
    assert run("trust", "--list") == Done(0, "", "note: no file is trusted\n")
    run("trust", path)
    assert run("trust", "--list") == Done(0, f"{path}: trusted\n", "")
    (listed,) = json.loads(run("trust", "--list", "--json").stdout)
    assert (listed["path"], listed["inForce"]) == (str(path), True)
    text = path.read_text()
    path.write_text(text + " ")
    assert run("trust", "--list") == Done(0, f"{path}: has changed since it was trusted\n", "")
    path.unlink()
    assert run("trust", "--list") == Done(0, f"{path}: does not exist\n", "")
    assert run("trust", "--remove", path) == Done(0, "", f"note: `{path}` is no longer trusted\n")
    assert run("trust", "--remove", path) == Done(0, "", f"note: `{path}` was not trusted\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--json"], "--json requires --list"),
        (["--list", "x.json"], "--list can be combined with --json only"),
        (["gone.json"], "gone.json: does not exist"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    done = run("trust", *arguments, cwd=tmp_path)
    assert (done.status, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_a_file_that_is_no_configuration_cannot_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "workbench-config.json").write_text('{"mcpServers": {"a": {"comand": "x"}}}')
    done = run("trust", cwd=tmp_path)
    assert done.status == 2 and "unknown key `comand`" in done.stderr
    assert run("trust", "--list").stdout == ""


@pytest.mark.requirement("config.trust")
async def test_serve_in_a_cloned_folder_starts_nothing_of_it(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "config" / "mcp-workbench"
    own.mkdir(parents=True)
    write_config(own, {"mine": {"server": scripted_entry()}})
    log = tmp_path / "log"
    serve = [*workbench_command("x")[:3], "serve", "--log-file", str(log)]
    async with RawClient.spawn(serve, cwd=project) as client:
        await client.initialize()
        index = json.dumps(await client.call_tool("open_toolbox", {}))
        assert "mine" in index and "Toolbox box" not in index
    assert not (project / "starts").exists()
    assert "is not trusted yet" in log.read_text()


def test_hidden_parts_of_the_file_are_named_before_trust(tmp_path: Path) -> None:
    toolbox = {"description": "Notes.\u200b\u200b", "mcpServers": {"s": {"command": "x", "args": ["a\u202eb"]}}}
    write_config(tmp_path, {"box": toolbox})
    done = run("trust", cwd=tmp_path)
    assert done.status == 0 and "\u202e" not in done.stdout
    assert done.stderr.splitlines() == [
        "warning: hidden characters in the toolbox `box`: 2 zero-width (U+200B)",
        "warning: hidden characters in `box/s`: 1 bidirectional (U+202E)",
    ]


def test_settings_that_change_a_program_are_shown_before_trust(tmp_path: Path) -> None:
    """`LD_PRELOAD` or another folder make of a harmless command something else; other values may be secrets."""
    env = {"LD_PRELOAD": "/tmp/evil.so", "API_KEY": "sk-very-secret"}
    server = {"command": "ls", "cwd": "/srv/elsewhere", "env": env, "inheritEnv": ["AWS_*"]}
    write_config(tmp_path, {"box": {"s": server, "plain": {"command": "ls"}}})
    done = run("trust", cwd=tmp_path)
    assert done.status == 0
    shown = [line.strip() for line in done.stdout.splitlines()[1:]]
    assert shown[1:4] == [
        "in the folder /srv/elsewhere",
        "with the variables LD_PRELOAD=/tmp/evil.so (which can load other code), API_KEY",
        "and of yours AWS_*",
    ]
    assert shown[4].split() == ["box/plain", "ls"] and len(shown) == 5
    assert "sk-very-secret" not in done.stdout


def test_hidden_characters_in_variables_and_folders_are_told_too(tmp_path: Path) -> None:
    server = {"command": "x", "cwd": "/a\u200b", "env": {"A": "b\u202ec"}}
    write_config(tmp_path, {"box": {"s": server}})
    done = run("trust", cwd=tmp_path)
    assert "hidden characters in `box/s`: " in done.stderr and "U+200B" in done.stderr and "U+202E" in done.stderr
