"""The audit's file: appended to by any number of writers, rotated, and whole whatever is done to it meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import os
import stat
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from mcp_workbench.team.audit import audit_file
from mcp_workbench.team.audit.audit_chain import verify
from mcp_workbench.team.audit.audit_file import HEAD_SUFFIX, AuditFile, ChainedLine, group_hash, rotated_files


class Line(ChainedLine, omit_defaults=True):
    n: int = 0
    x: str = ""
    kind: str = ""
    event: str = ""
    reason: str = ""
    lost: int = 0


def notice(text: str) -> ChainedLine:
    return Line(0, kind="audit", event="file", reason=text)


def line_of(number: int, size: int = 10) -> ChainedLine:
    return Line(0, n=number, x="x" * size)


def chained(seq: int, previous: str, body: bytes) -> bytes:
    """A line as somebody else would write it who knows how."""
    return b'{"seq":%d,"prev":"%b",%b' % (seq, previous.encode(), body[1:])


# Closed when a test has ended (`conftest.py`).
opened_files: list[AuditFile] = []


def opened(path: Path, largest: int = 1 << 20, kept: int = 4) -> AuditFile:
    file = AuditFile(str(path), largest, kept, notice)
    file.open()
    opened_files.append(file)
    return file


def lines(path: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def file(path: Path) -> AuditFile:
    return opened(path)


def write(file: AuditFile, *numbers: int) -> None:
    assert file.append([line_of(number) for number in numbers]) == len(numbers)


def test_lines_are_numbered_chained_and_for_our_user_alone(path: Path, file: AuditFile) -> None:
    write(file, 1, 2)
    write(file, 3)
    assert [(line["seq"], line["n"]) for line in lines(path)] == [(1, 1), (2, 2), (3, 3)]
    assert verify(str(path)).findings == []
    for each in (path, Path(f"{path}{HEAD_SUFFIX}")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_file_that_others_can_read_is_closed_to_them(path: Path) -> None:
    path.touch(mode=0o644)
    path.chmod(0o644)
    write(opened(path), 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_chain_goes_on_after_a_restart(path: Path, file: AuditFile) -> None:
    write(file, 1)
    file.close()
    write(opened(path), 2)
    assert [line["seq"] for line in lines(path)] == [1, 2] and verify(str(path)).findings == []


def test_two_writers_share_one_chain(path: Path) -> None:
    def work(file: AuditFile, first: int) -> None:
        for number in range(100):
            write(file, first + number)

    threads = [threading.Thread(target=work, args=(opened(path, 4096, 1000), 1000 * each)) for each in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    report = verify(str(path))
    assert (report.findings, report.lines, report.last) == ([], 400, 400)


def test_a_large_file_is_put_aside_and_the_oldest_are_deleted(path: Path) -> None:
    file = opened(path, largest=4096, kept=2)
    for number in range(60):
        file.append([line_of(number, 500)])
    aside = rotated_files(str(path))
    assert len(aside) == 2 and all(stat.S_IMODE(os.stat(each).st_mode) == 0o600 for each in aside)
    report = verify(str(path))
    assert report.findings == [] and report.first > 1
    assert any("deleted by rotation" in note for note in report.notes)


def test_a_file_that_was_put_aside_and_is_gone_is_missed(path: Path) -> None:
    file = opened(path, largest=4096, kept=9)
    for number in range(30):
        file.append([line_of(number, 500)])
    os.unlink(rotated_files(str(path))[1])
    assert any("missing" in finding for finding in verify(str(path)).findings)


@pytest.mark.requirement("audit.disk")
def test_a_deleted_file_is_said_in_the_first_line_of_the_next(path: Path, file: AuditFile) -> None:
    write(file, 1, 2)
    path.unlink()
    write(file, 3)
    said, after = lines(path)
    assert said["seq"] == 3 and "was deleted or moved after line 2" in said["reason"] and after["n"] == 3
    assert verify(str(path)).findings == ["lines 1 to 2 are missing at the beginning"]


@pytest.mark.requirement("audit.disk")
def test_a_replaced_file_is_put_aside_and_reported(path: Path, file: AuditFile) -> None:
    write(file, 1)
    other = path.with_name("other")
    other.write_text("somebody else's\n")
    other.replace(path)
    write(file, 2)
    said, after = lines(path)
    assert "was replaced after line 1" in said["reason"] and after["n"] == 2
    assert Path(f"{path}.replaced-1").read_text() == "somebody else's\n"


def test_an_empty_file_in_its_place_is_used_as_logrotate_means_it(path: Path, file: AuditFile) -> None:
    write(file, 1)
    path.rename(path.with_name("moved"))
    path.touch()
    write(file, 2)
    assert "was replaced after line 1" in lines(path)[0]["reason"] and lines(path)[1]["n"] == 2


@pytest.mark.requirement("audit.disk")
def test_a_file_that_was_cut_is_reported_and_goes_on(path: Path, file: AuditFile) -> None:
    write(file, 1, 2, 3)
    os.truncate(path, path.stat().st_size - 20)
    write(file, 4)
    text = path.read_text().splitlines()
    assert "was cut" in json.loads(text[-2])["reason"] and json.loads(text[-1])["n"] == 4
    findings = verify(str(path)).findings
    assert any("is not complete" in each or "not written by" in each for each in findings)
    assert any("line 3 is missing" in each for each in findings)


def test_a_line_that_was_cut_off_by_a_crash_is_left_and_reported(path: Path, file: AuditFile) -> None:
    write(file, 1)
    with path.open("ab") as half:
        half.write(b'{"seq":2,"prev":"')
    write(opened(path), 2)
    text = path.read_text().splitlines()
    assert text[1] == '{"seq":2,"prev":"' and "not completed" in json.loads(text[2])["reason"]


def test_lines_that_were_written_before_the_head_could_be_are_taken_over(path: Path, file: AuditFile) -> None:
    write(file, 1)
    head = Path(f"{path}{HEAD_SUFFIX}").read_bytes()
    write(file, 2, 3)
    file.close()
    # As after a crash between the two writes.
    Path(f"{path}{HEAD_SUFFIX}").write_bytes(head)
    assert "lines up to 3 were added" in verify(str(path)).findings[0]
    write(opened(path), 4)
    assert [line.get("n") for line in lines(path)] == [1, 2, 3, None, 4]
    report = verify(str(path))
    assert report.findings == [] and "lines 2 to 3 of" in report.notes[0] and "another program" in report.notes[0]


def test_a_line_that_somebody_else_chained_to_the_last_one_is_reported(path: Path, file: AuditFile) -> None:
    write(file, 1)
    last = path.read_bytes().rstrip(b"\n")
    with path.open("ab") as other:
        other.write(chained(2, group_hash(last), b'{"n":"forged"}') + b"\n")
    write(file, 2)
    assert "lines 2 to 2 of" in lines(path)[2]["reason"]
    assert "another program added them" in verify(str(path)).notes[0]


def test_foreign_lines_are_reported(path: Path, file: AuditFile) -> None:
    write(file, 1)
    with path.open("a") as other:
        other.write('{"seq":2,"prev":"made up"}\n')
    write(file, 2)
    assert "was not written by the workbench" in lines(path)[2]["reason"]
    assert verify(str(path)).findings


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b'{"seq":1}'])
def test_a_head_that_is_gone_or_changed_is_reported(path: Path, file: AuditFile, content: bytes | None) -> None:
    write(file, 1, 2)
    head = Path(f"{path}{HEAD_SUFFIX}")
    head.unlink() if content is None else head.write_bytes(content)
    write(file, 3)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4]
    assert "was changed by another program" in lines(path)[2]["reason"]
    assert verify(str(path)).findings == []


def test_without_its_head_the_file_itself_says_where_it_ends(path: Path) -> None:
    file = opened(path, largest=4096)
    for number in range(12):
        file.append([line_of(number, 500)])
    file.close()
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    write(opened(path), 99)
    report = verify(str(path))
    assert report.findings == [] and report.first == 1
    assert any("was missing" in note for note in report.notes)


@pytest.mark.parametrize("removed", [0, 2])
def test_a_cut_at_the_front_is_found_after_the_head_was_lost(path: Path, removed: int) -> None:
    """A file is put aside under the number of its first line, which only the head knows without reading it."""
    file = opened(path, largest=1024)
    for number in range(5):
        file.append([line_of(number, 500)])
    file.close()
    first = lines(path)[0]["seq"]
    assert first > 1
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    file = opened(path, largest=1024)
    for number in range(3):
        file.append([line_of(number, 500)])
    file.close()
    assert all(lines(each)[0]["seq"] == int(Path(each).suffix[1:]) for each in rotated_files(str(path)))
    assert f"{path}.{first}" in rotated_files(str(path))
    assert verify(str(path)).findings == [] and verify(str(path)).first == 1
    if removed:
        cut = Path(rotated_files(str(path))[0])
        cut.write_text("".join(f"{json.dumps(line)}\n" for line in lines(cut)[removed:]))
        assert "are missing at the beginning" in " ".join(verify(str(path)).findings)


@pytest.mark.requirement("audit.disk")
def test_a_full_disk_leaves_no_half_line(path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, 1)
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 20:
            return real(descriptor, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.append([line_of(2)])
    write(file, 2)
    assert [line["n"] for line in lines(path)] == [1, 2] and verify(str(path)).findings == []


def test_a_line_that_was_to_be_the_first_of_its_group_may_be_another_of_a_later_one(
    path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, 1)
    waiting = [line_of(2), line_of(3)]

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.append(waiting)
    path.unlink()
    assert file.append(waiting) == 2
    assert ["prev" in line for line in lines(path)] == [True, False, False]
    assert "was deleted" in lines(path)[0]["reason"] and lines(path)[2]["n"] == 3


def test_a_writer_that_holds_the_lock_for_too_long_is_not_waited_for(
    path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "AUDIT_LOCK_TIMEOUT", 0.02)
    write(file, 1)
    with opened(path)._locked(), pytest.raises(TimeoutError, match="another process has held"):
        file.append([line_of(2)])
    write(file, 2)
    assert verify(str(path)).lines == 2


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_path_that_is_not_a_file_is_refused(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(OSError):
        opened(path)


def test_a_file_that_cannot_be_put_aside_grows_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path, largest=4096)

    def fail(*_: object) -> None:
        raise OSError(errno.EACCES, "denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fail)
        for number in range(12):
            file.append([line_of(number, 500)])
    assert path.stat().st_size > 4096
    write(file, 12)
    assert rotated_files(str(path)) and verify(str(path)).findings == []


def test_lines_that_were_written_at_once_are_taken_over_whole_or_in_part(path: Path, file: AuditFile) -> None:
    """As a crash leaves them: without a head that names them, the last one not completed."""
    write(file, 1)
    head = Path(f"{path}{HEAD_SUFFIX}").read_bytes()
    write(file, 2, 3, 4)
    file.close()
    Path(f"{path}{HEAD_SUFFIX}").write_bytes(head)
    path.write_bytes(path.read_bytes()[:-5])
    again = opened(path)
    write(again, 5)
    again.close()
    report = verify(str(path))
    assert [finding for finding in report.findings if "was not written by the workbench" not in finding] == []
    assert any("lines 2 to 3 of" in note for note in report.notes)
    assert lines_with(path, "n")[-1] == (6, 5)


def test_a_long_file_without_its_head_goes_on_from_its_last_lines(path: Path, file: AuditFile) -> None:
    for _ in range(4):
        file.append([line_of(number, 10_000) for number in range(10)])
    file.close()
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    write(opened(path), 1)
    report = verify(str(path))
    assert report.findings == [] and any("was missing" in note for note in report.notes)


def test_a_write_is_no_longer_than_the_read_that_finds_its_end(path: Path, file: AuditFile) -> None:
    bodies = [line_of(number, 20_000) for number in range(20)]
    written = file.append(bodies)
    assert 1 <= written < 20
    assert path.stat().st_size <= audit_file.TAIL_BYTES / 2
    assert file.append([line_of(1, 300_000)]) == 1


def lines_with(path: Path, member: str) -> list[tuple[int, Any]]:
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            read = json.loads(line)
            if member in read:
                found.append((read["seq"], read[member]))
    return found


def test_a_file_that_was_closed_leaves_no_descriptor(path: Path) -> None:
    """It is closed and opened again whenever the configuration is."""
    before = os.listdir("/proc/self/fd")
    for number in range(2):
        file = opened(path)
        write(file, number)
        file.close()
        file.close()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "foreign",
    [
        b"no JSON at all",
        b'{"seq":7,"prev":"%b"}',
        b'{"seq":2}',
        b'{"seq":2,"prev":"made up"}',
        b'{"seq":"two","prev":"%b"}',
    ],
)
def test_a_second_line_that_is_not_ours_is_reported_once(path: Path, file: AuditFile, foreign: bytes) -> None:
    write(file, 1)
    last = path.read_bytes().rstrip(b"\n")
    ours = chained(2, group_hash(last), b'{"n":2}')
    foreign = foreign.replace(b'"seq":2', b'"seq":3')
    with path.open("ab") as other:
        other.write(ours + b"\n" + foreign.replace(b"%b", group_hash(ours).encode()) + b"\n")
    write(file, 4)
    write(file, 5)
    text = path.read_bytes().splitlines()
    reasons = [json.loads(each).get("reason", "") for each in text[3:]]
    # A line without a hash continues the group before it, as far as anybody can tell.
    is_known = foreign == b'{"seq":3}'
    assert ("what follows line 2 in" in reasons[0]) is not is_known
    assert "are not in" in reasons[0 if is_known else 1] and reasons[-2:] == ["", ""]
    assert len(text) == (6 if is_known else 7)


def test_a_first_line_after_the_head_without_a_hash_is_not_ours(path: Path, file: AuditFile) -> None:
    write(file, 1)
    with path.open("ab") as other:
        other.write(b'{"seq":2}\n')
    write(file, 2)
    assert "what follows line 1 in" in lines(path)[2]["reason"] and lines(path)[3]["n"] == 2


def test_findings_of_opening_are_reported_once(path: Path, file: AuditFile) -> None:
    write(file, 1)
    file.close()
    path.unlink()
    again = opened(path)
    write(again, 2)
    write(again, 3)
    assert [line.get("n") for line in lines(path)] == [None, 2, 3] and verify(str(path)).last == 4


def test_of_two_lines_that_are_too_long_together_one_is_written(path: Path, file: AuditFile) -> None:
    long = audit_file.GROUP_BYTES * 2 // 3
    write(file, 9)
    assert file.append([line_of(1, long), line_of(2, long)]) == 1
    assert file.append([line_of(2, 2 * long), line_of(3, 1)]) == 1
    assert file.append([line_of(3, 1), line_of(4, 1)]) == 2
    assert [(line["seq"], line["n"]) for line in lines(path)] == [(1, 9), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert verify(str(path)).findings == []


def test_as_many_lines_as_fit_are_written_at_once(path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, 1)
    monkeypatch.setattr(audit_file, "GROUP_BYTES", sum(len(encode(line_of(n))) for n in range(3)))
    assert file.append([line_of(n) for n in range(9)]) == 3


def test_a_file_beside_the_working_folder_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = opened(Path("audit.jsonl"), largest=1, kept=2)
    for number in range(5):
        file.append([line_of(number)])
    assert rotated_files("audit.jsonl") == ["audit.jsonl.4", "audit.jsonl.5"]


def test_a_file_of_exactly_the_largest_size_is_rotated(path: Path, file: AuditFile) -> None:
    # The first line has no hash before it, all others are as long as the second.
    write(file, 1)
    first = path.stat().st_size
    write(file, 2)
    both = path.stat().st_size
    file.close()
    exact = opened(path, largest=both + (both - first))
    write(exact, 3)
    assert (len(rotated_files(str(path))), path.stat().st_size) == (1, 0)


def test_after_logrotate_the_next_file_has_the_number_of_its_first_line(path: Path) -> None:
    file = opened(path, largest=2000, kept=99)
    write(file, 1)
    path.rename(path.with_name("moved"))
    path.touch()
    inode = path.stat().st_ino
    write(file, 2)
    assert path.stat().st_ino == inode and not list(path.parent.glob("*.replaced-*"))
    for number in range(20):
        write(file, number)
    oldest = rotated_files(str(path))[0]
    assert (Path(oldest).suffix, lines(oldest)[0]["seq"]) == (".2", 2) and verify(str(path)).findings == []


def test_the_note_of_a_replaced_file_says_where_it_is(path: Path, file: AuditFile) -> None:
    write(file, 1)
    other = path.with_name("other")
    other.write_text("somebody else's\n")
    other.replace(path)
    write(file, 2)
    assert lines(path)[0]["reason"].endswith(f"was replaced after line 1 and is now `{path}.replaced-1`")


def test_a_rotation_that_stops_halfway_is_no_deletion(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path, largest=1)
    real = os.open

    def fail(name: str, flags: int, *more: int) -> int:
        if flags & os.O_EXCL:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(name, flags, *more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        write(file, 1)
    assert not path.exists()
    write(file, 2)
    write(file, 3)
    assert verify(str(path)).findings == [] and verify(str(path)).lines == 3


@pytest.mark.parametrize("gone", ["head", "file"])
def test_a_descriptor_that_was_closed_is_not_closed_again(
    path: Path, file: AuditFile, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, 1)
    if gone == "head":
        Path(f"{path}{HEAD_SUFFIX}").unlink()
    else:
        path.rename(path.with_name("moved"))
        path.write_text("")

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        with pytest.raises(OSError, match="Too many open files"):
            file.append([line_of(2)])
    # Its number may be another file's by now.
    other = os.open(os.devnull, os.O_RDONLY)
    file.close()
    os.close(other)
    write(opened(path), 2)


def test_closing_waits_for_the_disk(path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, 1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    file.close()
    assert path.stat().st_ino in synced


def test_a_pipe_in_its_place_is_named(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a file"):
        opened(path)


def test_while_another_writer_holds_the_lock_nothing_spins(
    path: Path, file: AuditFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = fcntl.flock

    def look(descriptor: int, how: int) -> None:
        looks.append(how)
        real(descriptor, how)

    monkeypatch.setattr(audit_file, "AUDIT_LOCK_TIMEOUT", 0.05)
    write(file, 1)
    with opened(path)._locked():
        monkeypatch.setattr(fcntl, "flock", look)
        with pytest.raises(TimeoutError):
            file.append([line_of(2)])
        monkeypatch.undo()
    assert 1 < len(looks) < 10


def test_after_its_head_was_lost_files_that_were_deleted_by_rotation_are_not_missed(path: Path) -> None:
    file = opened(path, largest=1024, kept=2)
    for number in range(13):
        file.append([line_of(number, 500)])
    file.close()
    oldest = lines(rotated_files(str(path))[0])[0]["seq"]
    assert oldest > 1
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    file = opened(path)
    file.append([line_of(99)])
    # Lines that the head did not know are no addition if there was none.
    assert [line["reason"] for line in lines(path) if "reason" in line] == [
        f"`{path}{HEAD_SUFFIX}` was missing: there is no telling whether lines after {lines(path)[-3]['seq']} are gone"
    ]
    assert (verify(str(path)).findings, verify(str(path)).first) == ([], oldest)


def test_the_head_keeps_its_length(path: Path, file: AuditFile) -> None:
    """On a full disk it can only be overwritten."""
    lengths = set()
    for number in range(3):
        write(file, number)
        lengths.add(Path(f"{path}{HEAD_SUFFIX}").stat().st_size)
    assert lengths == {audit_file.HEAD_BYTES}


def test_a_link_to_the_file_in_its_place_is_refused(path: Path, file: AuditFile) -> None:
    """Where it leads is somebody else's decision from then on."""
    write(file, 1)
    moved = path.rename(path.with_name("moved"))
    before = moved.read_bytes()
    path.symlink_to(moved)
    with pytest.raises(OSError):
        write(file, 2)
    assert moved.read_bytes() == before


def test_writing_keeps_no_memory(file: AuditFile) -> None:
    writes = 600
    file.append([line_of(0)])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(writes):
            file.append([line_of(number)])
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 24 * writes, "less than an object for each"
