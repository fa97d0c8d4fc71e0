"""`install --project`: the files of a project, which may have been written by others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_install import SERVER, names_in, shell, variables, write
from tests.cli.commands.test_install import claude as claude
from tests.cli.commands.test_install import home as home
from tests.cli.in_process import command
from tests.cli.shell import under


def test_the_file_of_a_project_is_edited_although_claude_code_has_a_command(home: Path, claude: Path) -> None:
    own = claude.read_text()
    before = '{"mcpServers": {\n "time": {"command": "uvx", "args": ["mcp-server-time"]},\n "mine": {"command": "m"}}}'
    path = write(home, ".mcp.json", before)
    config = write(home, "workbench-config.json", json.dumps({"mcpServers": {"time": SERVER}}))
    named = ("claude-code", "--project", "--config", config)
    assert shell(home, "install", *named, "--replace").status == 0
    assert names_in(path) == {"mine", "workbench"}
    assert shell(home, "undo", "claude-code").status == 0 and path.read_text() == before
    assert shell(home, "install", *named).status == 0 and names_in(path) == {"time", "mine", "workbench"}
    assert shell(home, "uninstall", "claude-code", "--project").status == 0
    assert path.read_text() == before and claude.read_text() == own


def test_a_link_in_a_project_is_not_followed_out_of_it(home: Path) -> None:
    theirs = write(home, "theirs.json", "{}")
    project = home / "project"
    write(project, "workbench-config.json", json.dumps({"mcpServers": {"time": SERVER}}))
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").symlink_to(theirs)
    assert command(pytest.MonkeyPatch(), "trust", env=variables(home), cwd=project).status == 0
    done = command(pytest.MonkeyPatch(), "install", "--project", "cursor", env=variables(home), cwd=project)
    assert done.status == 2 and f"is a link to `{under(home, theirs)}`, outside of this project" in done.stderr
    assert theirs.read_text() == "{}"
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").symlink_to(theirs)
    done = shell(home, "install", "cursor")
    assert done.status == 0 and f"is a link to `{under(home, theirs)}`, which is changed" in done.stderr
