from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_workbench.app import page_lock, use_memory
from mcp_workbench.engine.own_files import lock, replace_whole
from mcp_workbench.seeing.page.shown_workbench import Unavailable
from mcp_workbench.team.lock.definition_store import DefinitionStore


def full_disk(source: str, target: str) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("before")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        known = replace_whole(str(path), b"after", is_durable=True)
    finally:
        os.umask(before)
    assert path.read_text() == "after" and known.st_size == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.parametrize(("mode", "expected"), [(0o644, 0o644), (0o600, 0o600), (None, 0o600)])
def test_a_file_for_others_too_keeps_its_mode(tmp_path: Path, mode: int | None, expected: int) -> None:
    path = tmp_path / "workbench.lock"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    replace_whole(str(path), b"x", keeps_mode=True)
    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_refusal_before_the_rename_changes_nothing_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "workbench.lock"
    path.write_text("before")

    def refuse() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        replace_whole(str(path), b"after", check=refuse)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["workbench.lock"]


def test_no_writer_leaves_a_draft_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", full_disk)
    DefinitionStore(str(tmp_path / "definitions")).keep([Raw(b'{"name":"a"}')])
    use_memory.add(str(tmp_path / "use.json"), [(("read",), "box/files/read")], [])
    with pytest.raises(Unavailable, match="No space left"):
        page_lock._write(str(tmp_path / "workbench.lock"), None, b"{}")
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["use.json.lock"]


def test_a_lock_is_held_by_one_and_waited_for_no_longer_than_that(tmp_path: Path) -> None:
    path = str(tmp_path / "a.lock")
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        lock(first, 0)
        with pytest.raises(BlockingIOError):
            lock(second, 0.01)
        os.close(first)
        lock(second, 0)
    finally:
        os.close(second)
