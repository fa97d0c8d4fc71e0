"""Verifying: whatever is done to the record afterwards is found, as far as it can be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_workbench.team.audit import audit_chain, audit_file
from mcp_workbench.team.audit.audit_chain import MAX_AUDIT_FINDINGS, OpenedFiles, verify
from mcp_workbench.team.audit.audit_file import HEAD_SUFFIX, group_hash, rotated_files
from tests.team.audit.test_audit_file import Line, chained, notice, opened, write

Lines = list[str]


def edit(lines: Lines) -> Lines:
    return [*lines[:2], lines[2].replace('"n":3', '"n":4'), *lines[3:]]


def swap(lines: Lines) -> Lines:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def rechained(lines: Lines) -> Lines:
    found: Lines = []
    for number, line in enumerate(lines, 1):
        body = b"{" + line.encode()[line.index('"n":') :]
        found.append(chained(number, group_hash(found[-1].encode()) if found else "", body).decode())
    return found


DAMAGE: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "an edited line": (edit, "line 3 was changed after line 4 was written"),
    "the last line edited": (
        lambda lines: [*lines[:-1], lines[-1].replace("x", "y")],
        "line 5, the last one, was changed after it was written",
    ),
    "a line removed": (lambda lines: [*lines[:2], *lines[3:]], "line 3 is missing"),
    "several lines removed": (lambda lines: [lines[0], *lines[3:]], "lines 2 to 3 are missing"),
    "the beginning removed": (lambda lines: lines[2:], "lines 1 to 2 are missing at the beginning"),
    "the end cut": (lambda lines: lines[:3], "lines 4 to 5 are missing at the end"),
    "everything removed": (lambda lines: [], "lines 1 to 5 are missing at the end"),
    "lines swapped": (swap, "lines were repeated or moved"),
    "a line repeated": (lambda lines: [*lines, lines[-1]], "lines were repeated or moved"),
    "a line inserted": (lambda lines: [*lines[:2], "hello", *lines[2:]], "was not written by the workbench"),
    "a made up line inserted": (
        lambda lines: [*lines[:2], '{"seq":3,"prev":"0"}', *lines[2:]],
        "line 2 was changed after line 3 was written",
    ),
    "everything rewritten and a line added": (
        lambda lines: rechained([*edit(lines), lines[0]]),
        "line 5, the last one, was changed after it was written",
    ),
    "a line added": (lambda lines: rechained([*lines, lines[0]]), "lines up to 6 were added"),
    "text before a line": (lambda lines: [*lines[:3], f"hello {lines[3]}", lines[4]], "was not written by"),
    "a line numbered 0": (lambda lines: ['{"seq":0,"prev":""}', *lines], "was not written by"),
    "a line with a negative number": (lambda lines: ['{"seq":-3,"prev":""}', *lines], "was not written by"),
    "a chain before the chain": (lambda lines: [*rechained(lines[:2]), *lines], "lines were repeated or moved"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    for number in range(1, 6):
        write(file, number)
    file.close()
    return path


def change_lines(path: Path, change: Callable[[Lines], Lines]) -> None:
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))


@pytest.mark.requirement("audit.chain")
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(path: Path, damage: str) -> None:
    change, expected = DAMAGE[damage]
    change_lines(path, change)
    assert any(expected in finding for finding in verify(str(path)).findings)


@pytest.mark.requirement("audit.chain")
@pytest.mark.parametrize("groups", [[(1, 2, 3, 4, 5)], [(1, 2), (3, 4, 5)], [(1, 2, 3), (4,), (5,)]], ids=str)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_in_lines_that_were_written_at_once(
    tmp_path: Path, groups: list[tuple[int, ...]], damage: str
) -> None:
    file = opened(tmp_path / "audit.jsonl")
    for numbers in groups:
        write(file, *numbers)
    file.close()
    report = verify(str(tmp_path / "audit.jsonl"))
    assert (report.findings, report.lines) == ([], 5)
    change_lines(tmp_path / "audit.jsonl", DAMAGE[damage][0])
    assert verify(str(tmp_path / "audit.jsonl")).findings


def test_an_edit_among_lines_that_were_written_at_once_is_narrowed_down_to_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    for numbers in ((1,), (2, 3, 4), (5, 6)):
        write(file, *numbers)
    change_lines(path, edit)
    assert verify(str(path)).findings == [f"one of lines 2 to 4 was changed after line 5 was written ({path}:5)"]


def test_the_hash_of_the_first_lines_cannot_be_left_out(path: Path) -> None:
    """Without it, nothing would tie them to those that follow."""
    change_lines(path, lambda lines: [lines[0].replace('"prev":"",', ""), *lines[1:]])
    assert "does not name the hash" in verify(str(path)).findings[0]


def test_a_file_with_a_hash_in_each_line_is_read_as_before(path: Path) -> None:
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    change_lines(path, rechained)
    report = verify(str(path))
    assert report.findings == [] and report.hash == group_hash(path.read_bytes().splitlines()[-1])


def test_half_a_line_at_the_end_is_found(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    findings = verify(str(path)).findings
    assert any("is not complete" in each for each in findings)
    assert any("lines 5 to 5 are missing at the end" in each for each in findings)


def test_lines_appended_during_verification_are_not_judged(path: Path) -> None:
    files = OpenedFiles(str(path))
    write(opened(path), 6)
    assert len(list(files.lines())) == 5
    files.close()


def test_without_a_head_verification_states_its_limits(path: Path) -> None:
    Path(f"{path}{HEAD_SUFFIX}").unlink()
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:3]))
    report = verify(str(path))
    assert report.findings == [] and "there is no telling" in report.notes[0]


@pytest.mark.parametrize("instead", ["text", "folder", "pipe"])
def test_a_damaged_head_is_found(path: Path, instead: str) -> None:
    head = Path(f"{path}{HEAD_SUFFIX}")
    if instead == "text":
        head.write_text("?")
    else:
        head.unlink()
        head.mkdir() if instead == "folder" else os.mkfifo(head)
    report = verify(str(path))
    assert report.findings == [f"`{head}` was damaged"]
    assert report.notes == [
        f"without `{head}` there is no telling whether lines were removed at the beginning or the end"
    ]
    # The lines are still those of a workbench.
    change_lines(path, lambda lines: [*lines[:3], f"hello {lines[3]}", lines[4]])
    assert f"{path}:4 was not written by the workbench" in verify(str(path)).findings


@pytest.mark.parametrize("number", [0, 1])
def test_a_chain_that_begins_again_is_noted_only_where_a_workbench_would_begin_one(path: Path, number: int) -> None:
    """The system's log has the chains of all runs; a file of ours has one."""
    other = path.read_text().splitlines()
    for name in ("syslog", "syslog.jsonl"):
        lines = [*other[:3], *other] if number == 0 else [*other, *other[2:]]
        path.with_name(name).write_text("".join(f"{line}\n" for line in lines))
    log = verify(str(path.with_name("syslog")))
    begun = f"another chain begins at {path.with_name('syslog')}:4"
    if number == 0:
        assert log.findings == [] and begun in log.notes and log.lines == 8
    else:
        repeated = f"{path.with_name('syslog')}:6 has number 3 after number 5: lines were repeated or moved"
        assert log.findings == [repeated] and begun not in log.notes
    Path(f"{path}{HEAD_SUFFIX}").rename(path.with_name(f"syslog.jsonl{HEAD_SUFFIX}"))
    assert "lines were repeated or moved" in verify(str(path.with_name("syslog.jsonl"))).findings[0]


def test_a_chain_that_begins_with_a_file_is_noted(tmp_path: Path) -> None:
    """Its head and the file were removed, and those that had been put aside were left."""
    path = tmp_path / "audit.jsonl"
    file = opened(path, largest=100)
    for number in (1, 2):
        write(file, number)
    file.close()
    assert len(rotated_files(str(path))) == 1
    for each in (path, Path(f"{path}{HEAD_SUFFIX}")):
        each.unlink()
    write(opened(path), 3)
    report = verify(str(path))
    assert report.findings == [] and f"another chain begins at {path}:1" in report.notes
    assert (report.first, report.last) == (1, 1)


def test_what_follows_a_missing_line_is_reported_once(tmp_path: Path) -> None:
    """The hash of its group is not known any more."""
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    for numbers in ((1, 2, 3, 4), (5, 6), (7,)):
        write(file, *numbers)
    file.close()
    change_lines(path, lambda lines: [lines[0], *lines[2:]])
    assert verify(str(path)).findings == [f"line 2 is missing before {path}:2"]
    change_lines(path, lambda lines: [*lines[:4], lines[4].replace("x", "y"), *lines[5:]])
    assert verify(str(path)).findings == [
        f"line 2 is missing before {path}:2",
        f"one of lines 5 to 6 was changed after line 7 was written ({path}:6)",
    ]


def test_a_record_that_is_whole_has_neither_findings_nor_notes(path: Path) -> None:
    report = verify(str(path))
    assert (report.findings, report.notes) == ([], [])
    assert (report.lines, report.first, report.last) == (5, 1, 5)
    assert verify(str(path), (report.last, report.hash)).findings == []


def test_lines_deleted_by_rotation_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path, largest=100, kept=2)
    for number in range(6):
        write(file, number)
    file.close()
    report = verify(str(path))
    assert report.first > 2 and report.findings == []
    assert report.notes == [f"lines before {report.first} were deleted by rotation; of those nothing can be known"]
    Path(rotated_files(str(path))[0]).unlink()
    later = verify(str(path))
    assert later.findings == [f"lines {report.first} to {later.first - 1} are missing at the beginning"]
    assert later.notes == []


def test_an_end_that_was_cut_is_reported_as_missing_alone(path: Path) -> None:
    change_lines(path, lambda lines: lines[:3])
    assert verify(str(path)).findings == ["lines 4 to 5 are missing at the end"]


def test_a_fully_rewritten_record_is_detected_with_a_hash_kept_elsewhere(path: Path) -> None:
    kept = verify(str(path))
    for each in (path, Path(f"{path}{HEAD_SUFFIX}")):
        each.unlink()
    file = opened(path)
    write(file, 1, 2, 3, 4, 6)
    assert verify(str(path)).findings == []
    assert verify(str(path), (kept.last, kept.hash)).findings == [
        "line 5 is not the one that was expected: it was changed"
    ]
    assert "it is missing" in verify(str(path), (9, kept.hash)).findings[0]


def test_a_file_of_something_else_has_a_bounded_report(path: Path) -> None:
    path.write_text("hello\n" * 500)
    findings = verify(str(path)).findings
    assert findings[:2] == [f"{path}:{number} was not written by the workbench" for number in (1, 2)]
    more = f"more than {MAX_AUDIT_FINDINGS} findings; the rest is not listed"
    assert findings[MAX_AUDIT_FINDINGS - 1 :] == [f"{path}:100 was not written by the workbench", more]


def test_lines_of_the_systems_log_are_read_behind_their_heads(path: Path) -> None:
    log = path.with_name("syslog")
    log.write_text("".join(f"Nov 16 host mcp-workbench[7]: {line}\n" for line in path.read_text().splitlines()))
    assert verify(str(log)).lines == 5 and verify(str(log)).findings == []


def test_verification_notes_lines_that_could_not_be_written(path: Path) -> None:
    file = opened(path)
    file.append([Line(0, kind="call", lost=7)])
    file.append([notice("the disk was full")])
    file.append([Line(0, kind="audit", event="start", reason="it began")])
    file.append([Line(0, kind="call", event="file", reason="of a tool")])
    assert verify(str(path)).notes == [
        "line 6 says that 7 lines before it could not be written",
        "line 7 says: the disk was full",
    ]


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify(str(tmp_path / "none"))


def test_a_file_that_was_put_aside_and_vanishes_while_it_is_opened_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    file = opened(path, largest=100)
    for number in range(4):
        write(file, number)
    file.close()
    listed = rotated_files(str(path))
    assert len(listed) > 2
    Path(listed[1]).unlink()
    monkeypatch.setattr(audit_chain, "rotated_files", lambda _: listed)
    with pytest.raises(FileNotFoundError):
        verify(str(path))


def test_a_writer_that_holds_the_lock_for_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "AUDIT_LOCK_TIMEOUT", 0.02)
    path = tmp_path / "audit.jsonl"
    file = opened(path)
    write(file, 1)
    with opened(path)._locked(), pytest.raises(TimeoutError, match="another process has held") as raised:
        verify(str(path))
    assert raised.value.strerror, "what the command says"
    assert verify(str(path)).lines == 1
