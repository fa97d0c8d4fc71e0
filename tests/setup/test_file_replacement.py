"""Replacing a file of somebody else: nothing is ever lost, whatever happens in between."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup import file_replacement
from mcp_workbench.setup.file_replacement import (
    ChangedAfterwards,
    back_up,
    create_file,
    make_private,
    read_file,
    replace_file,
)

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = b"old " * 5000, b"new " * 7000

# Kills itself at the n-th call that changes something on disk: before it, or in the middle of a write.
KILLED = """
import sys
from mcp_workbench.setup import file_replacement
from tests.support.killed_writes import kill_at
path, folder, number, half = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "half"
kill_at(number, halfway=half)
old = file_replacement.read_file(path)
file_replacement.back_up(path, old, folder)
file_replacement.replace_file(path, old, b"new " * 7000, folder)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_bytes(OLD)
    return path


@pytest.mark.processes
@pytest.mark.parametrize("how", ["before", "half"])
def test_killed_at_every_write_the_old_or_the_new_file_is_whole(file: Path, tmp_path: Path, how: str) -> None:
    seen = set()
    for count in range(1, 60):
        file.write_bytes(OLD)
        folder = tmp_path / f"state-{count}"
        command = [sys.executable, "-c", KILLED, str(file), str(folder), str(count), how]
        done = subprocess.run(command, cwd=ROOT, timeout=60)
        content = file.read_bytes()
        assert content in (OLD, NEW), f"killed at {count}"
        seen.add(content)
        if done.returncode == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert seen == {OLD, NEW} and count > 10


def test_links_stay_links_and_permissions_stay(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    replace_file(str(link), OLD, NEW, str(tmp_path / "state"))
    assert link.is_symlink() and file.read_bytes() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "settings.json", "state"]


def test_a_file_that_was_changed_meanwhile_is_left_alone(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="changed by another program meanwhile"):
        replace_file(str(file), b"what was read before", NEW, str(tmp_path / "state"))
    assert file.read_bytes() == OLD


def test_a_client_that_writes_right_after_us_is_noticed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_replacement, "_sync_folder", lambda path: file.write_bytes(b"the client's"))
    with pytest.raises(ChangedAfterwards, match="right after it was written"):
        replace_file(str(file), OLD, NEW, str(tmp_path / "state"))
    assert file.read_bytes() == b"the client's"


def test_read_only_files_and_those_of_others_are_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only"):
        replace_file(str(file), OLD, NEW, str(tmp_path / "state"))
    file.chmod(0o644)
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        replace_file(str(file), OLD, NEW, str(tmp_path / "state"))
    assert file.read_bytes() == OLD


def test_a_full_disk_in_the_middle_leaves_the_old_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        os.ftruncate(descriptor, 10_000)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="the disk is full; it was left unchanged"):
        replace_file(str(file), OLD, NEW, str(tmp_path / "state"))
    assert file.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []


def test_of_two_at_once_one_is_told(file: Path, tmp_path: Path) -> None:
    failed: list[str] = []

    def replace(content: bytes) -> None:
        try:
            replace_file(str(file), OLD, content, str(tmp_path / "state"))
        except ConfigError as error:
            failed.append(error.message)

    threads = [threading.Thread(target=replace, args=(bytes([65 + index]) * 1000,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 3 and all("meanwhile" in message for message in failed)
    assert len(set(file.read_bytes())) == 1


def test_a_lock_that_is_never_released_is_not_waited_for_for_ever(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_replacement, "FILE_LOCK_TIMEOUT", 0.0)
    with file_replacement.locked(str(file), str(tmp_path / "state")):
        with pytest.raises(ConfigError, match="another mcp-workbench is writing"):
            replace_file(str(file), OLD, NEW, str(tmp_path / "state"))


def test_backups_have_the_time_in_their_name_and_never_overwrite_another(file: Path, tmp_path: Path) -> None:
    kept = {back_up(str(file), content, str(tmp_path / "state")) for content in (b"1", b"2", b"3")}
    assert {Path(path).read_bytes() for path in kept} == {b"1", b"2", b"3"}
    assert all(stat.S_IMODE(os.stat(path).st_mode) == 0o600 for path in kept)


def test_folders_of_ours_are_for_their_user_alone_with_all_that_is_made_above_them(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "mcp-workbench" / "clients"
    for _ in range(2):
        make_private(str(folder))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


def test_a_path_that_is_not_a_readable_file_is_reported(tmp_path: Path) -> None:
    assert read_file(str(tmp_path / "none")) is None
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a broken link"):
        read_file(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        read_file(str(tmp_path / "pipe"))
    with pytest.raises(ConfigError, match=r"is not a file|cannot be read"):
        read_file(str(tmp_path))


def test_concurrent_writes_of_another_program_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b"old")
    sync = os.fsync

    def slow(descriptor: int) -> None:
        sync(descriptor)
        path.write_bytes(b"theirs")

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(ConfigError, match="changed by another program meanwhile; nothing was written"):
        replace_file(str(path), b"old", b"ours", str(tmp_path / "locks"))
    assert path.read_bytes() == b"theirs"
    assert [each.name for each in tmp_path.glob("mcp.json*")] == ["mcp.json"], "no draft is left"


def test_half_a_backup_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        back_up("mcp.json", b"x" * 10, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_draft_of_a_killed_process_is_removed_with_the_next_replacement(file: Path, tmp_path: Path) -> None:
    draft = tmp_path / f"{file.name}.123-0123abcd.new"
    others = [tmp_path / f"{file.name}.new", tmp_path / "other.json.123-0123abcd.new"]
    for path in (draft, *others):
        path.write_text("secret")
    replace_file(str(file), OLD, NEW, str(tmp_path / "locks"))
    assert not draft.exists() and all(path.exists() for path in others)


def test_a_disk_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "new.json"
    create_file(str(path), b"x")
    assert path.read_bytes() == b"x" and [each.name for each in tmp_path.iterdir()] == ["new.json"]
    with pytest.raises(ConfigError, match="already exists"):
        create_file(str(path), b"y")
    assert path.read_bytes() == b"x"
