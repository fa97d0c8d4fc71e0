"""`.git/commondir`, which is there as long as a server needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.engine.sandbox.common_folders import hold_common_folders


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]\n")
    return (tmp_path / ".git" / "commondir").resolve()


def test_it_is_removed_after_the_last_one(file: Path) -> None:
    first = hold_common_folders([str(file), str(file.parent)], None)
    second = hold_common_folders([str(file)], None)
    assert first is not None and second is not None and file.read_bytes() == b".\n"
    first.abandon()
    assert file.exists(), "the other one still needs it"
    second.abandon()
    assert not file.exists()


async def test_what_one_that_was_killed_has_left_is_removed_by_the_next(file: Path) -> None:
    file.write_bytes(b".\n")
    holder = hold_common_folders([str(file)], None)
    assert holder is not None
    await holder.close()
    assert not file.exists()


@pytest.mark.parametrize("content", [b"../..\n", b"."])
def test_one_of_the_user_is_left_alone(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert hold_common_folders([str(file)], None) is None
    assert file.read_bytes() == content


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b".\n")
    file.symlink_to(tmp_path / "other")
    assert hold_common_folders([str(file)], None) is None
    assert (tmp_path / "other").exists()


def test_a_repository_whose_files_are_elsewhere_gets_none(file: Path) -> None:
    (file.parent / "config").write_text("[core]\n\tworktree = ../x\n")
    assert hold_common_folders([str(file)], None) is None
    assert not file.exists()
