"""A file of the current folder is used only as the user trusts it; named files and the user's own need no trust."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.choose import choose
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.problems import ConfigProblems
from mcp_workbench.errors import ConfigError

NAME = "workbench-config.json"


def write(path: Path, command: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"s": {"command": command}}}))
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a project whose folder we are in."""
    path = write(tmp_path / "project" / NAME, "theirs")
    monkeypatch.chdir(path.parent)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The user's own; the place is that of `conftest.cache_folder`."""
    return write(tmp_path / "config" / "mcp-workbench" / NAME, "mine")


def commands(option: str | None = None, argument: str | None = None, **environ: str) -> tuple[str | None, str | None]:
    """Which program would be started, and what the user is warned of."""
    choice = choose(option, argument, environ)
    return choice.config.toolboxes["default"].servers["s"].command, choice.warning


@pytest.mark.requirement("config.trust")
@pytest.mark.usefixtures("project")
def test_a_file_of_the_folder_does_not_beat_the_users_own(own: Path) -> None:
    command, warning = commands()
    assert command == "mine"
    assert warning is not None
    assert (
        "is not trusted yet" in warning
        and f"using `{own}` instead" in warning
        and "mcp-workbench team trust" in warning
    )


@pytest.mark.requirement("config.trust")
def test_without_one_of_the_users_own_it_is_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match="is not trusted yet") as caught:
        commands()
    assert str(project) in str(caught.value)
    assert "mcp-workbench team trust" in (caught.value.hint or "")


@pytest.mark.requirement("config.trust")
@pytest.mark.usefixtures("own")
def test_a_trusted_file_is_used_until_it_changes(project: Path) -> None:
    trust.trust(NAME, project.read_bytes())
    assert commands() == ("theirs", None)
    assert choose(None, None, {}).config.modified_at
    write(project, "worse")
    command, warning = commands()
    assert command == "mine" and "has changed since it was trusted" in (warning or "")
    # Changed back, it is what was trusted.
    write(project, "theirs")
    assert commands() == ("theirs", None)
    assert trust.forget(NAME) and not trust.forget(NAME)
    assert commands()[0] == "mine"


def test_a_file_that_is_named_needs_no_trust(project: Path) -> None:
    assert commands(option=str(project)) == ("theirs", None)
    assert commands(argument=NAME) == ("theirs", None)
    assert commands(WORKBENCH_CONFIG=NAME) == ("theirs", None)


def test_trust_holds_for_one_path(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.trust(str(project), project.read_bytes())
    elsewhere = write(tmp_path / "elsewhere" / NAME, "theirs")
    monkeypatch.chdir(elsewhere.parent)
    with pytest.raises(ConfigError, match="is not trusted yet"):
        commands()
    # The same folder by another name is the same folder.
    (tmp_path / "link").symlink_to(project.parent)
    monkeypatch.chdir(tmp_path / "link")
    assert commands() == ("theirs", None)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("how", ["dangling", "folder", "writable"])
def test_unusable_project_file_does_not_block_the_users_own(project: Path, how: str) -> None:
    if how == "writable":
        trust.trust(NAME, project.read_bytes())
        project.chmod(0o666)
    else:
        project.unlink()
        if how == "folder":
            project.mkdir()
        else:
            project.symlink_to("nowhere")
    command, warning = commands()
    assert command == "mine" and "instead" in (warning or "")


@pytest.mark.requirement("config.trust")
def test_a_file_that_everybody_can_write_is_refused_however_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "shared.json", "x")
    path.chmod(0o646)
    with pytest.raises(ConfigProblems, match="can be written by every user") as caught:
        load(str(path), {})
    assert "chmod o-w" in str(caught.value)
    path.chmod(0o664)
    assert load(str(path), {}).toolboxes


@pytest.mark.parametrize("damage", ["text", "empty", "large", "writable", "link", "pipe"])
def test_a_record_that_is_damaged_or_not_ours_vouches_for_nothing(project: Path, damage: str, tmp_path: Path) -> None:
    trust.trust(NAME, project.read_bytes())
    folder = trust.folder()
    assert folder is not None
    (record,) = Path(folder).iterdir()
    assert record.stat().st_mode & 0o777 == 0o600 and os.stat(folder).st_mode & 0o777 == 0o700
    content = record.read_bytes()
    match damage:
        case "writable":
            record.chmod(0o666)
        case "link":
            (tmp_path / "target").write_bytes(content)
            (tmp_path / "target").chmod(0o600)
            record.unlink()
            record.symlink_to(tmp_path / "target")
        case "pipe":
            record.unlink()
            os.mkfifo(record, 0o600)
        case _:
            record.write_bytes({"text": b"yes", "empty": b"", "large": content + b" " * 100_000 + b"x"}[damage])
    with pytest.raises(ConfigError, match="is not trusted yet"):
        commands()


def test_where_nothing_can_be_remembered_it_is_reported(project: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(ConfigError, match="trust cannot be recorded in"):
        trust.trust(NAME, project.read_bytes())


@pytest.mark.requirement("config.trust")
def test_a_link_to_a_trusted_file_is_not_the_trusted_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Relative paths in it would lead to what lies beside the link.
    trust.trust(str(project), project.read_bytes())
    (tmp_path / "cloned").mkdir()
    (tmp_path / "cloned" / NAME).symlink_to(project)
    monkeypatch.chdir(tmp_path / "cloned")
    with pytest.raises(ConfigError, match="is not trusted yet"):
        commands()
