"""`.git/commondir` and folders of other programs, which are there as long as a server needs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.created_paths import CreatedPaths, hold_created


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]\n")
    return (tmp_path / ".git" / "commondir").resolve()


@pytest.fixture
def blocking() -> Iterator[None]:
    """Whoever opens a pipe and waits for its other end fails."""

    def waits(*_: object) -> None:
        raise AssertionError("it waits for the other end")

    before = signal.signal(signal.SIGALRM, waits)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_it_is_removed_after_the_last_one(file: Path) -> None:
    first = hold_created([str(file), str(file.parent)], [str(file)])
    second = hold_created([str(file)], [str(file)])
    assert first is not None and second is not None and file.read_bytes() == b".\n"
    first.abandon()
    assert file.exists(), "the other one still needs it"
    second.abandon()
    assert not file.exists()


async def test_leftovers_of_a_killed_run_are_removed_by_the_next(file: Path) -> None:
    file.write_bytes(b".\n")
    holder = hold_created([str(file)], [])
    assert holder is not None
    await holder.close()
    assert not file.exists()


@pytest.mark.parametrize("content", [b"../..\n", b"."])
def test_one_of_the_user_is_left_alone(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert hold_created([str(file)], [str(file)]) is None
    assert file.read_bytes() == content


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b".\n")
    file.symlink_to(tmp_path / "other")
    assert hold_created([str(file)], [str(file)]) is None
    assert (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["commondir", "hooks", ".vscode"])
def test_named_pipe_in_place_of_a_file_blocks_nothing(file: Path, name: str, blocking: None) -> None:
    pipe = file.with_name(name)
    os.mkfifo(pipe)
    assert hold_created([str(pipe)], [str(pipe)]) is None
    assert pipe.is_fifo()


def test_neither_does_a_pipe_in_place_of_the_settings_of_a_repository(file: Path, blocking: None) -> None:
    settings = file.with_name("config")
    settings.unlink()
    os.mkfifo(settings)
    assert hold_created([str(file)], [str(file)]) is None
    assert not file.exists()


def test_a_repository_whose_files_are_elsewhere_gets_none(file: Path) -> None:
    (file.parent / "config").write_text("[core]\n\tworktree = ../x\n")
    assert hold_created([str(file)], [str(file)]) is None
    assert not file.exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        os.setxattr(tmp_path, "user.test", b"")
    except (AttributeError, OSError):
        pytest.skip("folders cannot be marked here (extended attributes)")
    return tmp_path.resolve() / ".vscode"


def test_an_empty_folder_is_removed_after_the_last_one(folder: Path) -> None:
    first = hold_created([str(folder)], [str(folder)])
    # Which is there by then.
    second = hold_created([str(folder)], [])
    assert first is not None and second is not None and folder.is_dir()
    first.abandon()
    assert folder.is_dir(), "the other one still needs it"
    second.abandon()
    assert not folder.exists()


def test_a_folder_that_one_that_was_killed_has_left_is_removed_by_the_next(folder: Path) -> None:
    killed = hold_created([str(folder)], [str(folder)])
    assert isinstance(killed, CreatedPaths)
    for descriptor in killed._held.values():
        os.close(descriptor)
    holder = hold_created([str(folder)], [])
    assert holder is not None
    holder.abandon()
    assert not folder.exists()


def test_a_folder_with_something_in_it_stays(folder: Path) -> None:
    holder = hold_created([str(folder)], [str(folder)])
    assert holder is not None
    (folder / "settings.json").write_text("{}")
    holder.abandon()
    assert (folder / "settings.json").exists()


def test_an_empty_folder_of_the_user_stays(folder: Path) -> None:
    folder.mkdir()
    assert hold_created([str(folder)], [str(folder)]) is None
    assert folder.is_dir()


def test_replacement_of_a_created_folder_stays(folder: Path) -> None:
    holder = hold_created([str(folder)], [str(folder)])
    assert holder is not None
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    holder.abandon()
    assert folder.is_dir()


def test_nothing_is_created_behind_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = str(tmp_path.resolve() / "link" / ".vscode")
    assert hold_created([path], [path]) is None
    assert not (tmp_path / "real" / ".vscode").exists()
