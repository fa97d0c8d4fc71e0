"""The queue and its thread: nothing waits for the disk, and what is lost is counted."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Sequence

import pytest

from mcp_workbench.team.audit import audit_writer
from mcp_workbench.team.audit.audit_writer import AuditWriter


class Disk:
    """A destination that does as it is told."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_full = False
        self.tried = threading.Event()
        self.released = threading.Event()
        self.released.set()
        self.is_closed = False

    def append(self, bodies: Sequence[bytes]) -> int:
        self.tried.set()
        assert self.released.wait(30)
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines += bodies
        return len(bodies)

    def close(self) -> None:
        self.is_closed = True


def describe(entries: list[object], lost: int) -> list[bytes]:
    texts = [f"{entry}" for entry in entries if entry != "bad"]
    return [f"{text}{f' lost {lost}' if lost and not number else ''}".encode() for number, text in enumerate(texts)]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(audit_writer, "GATHER_DELAY", 0.0)
    monkeypatch.setattr(audit_writer, "FULL_DISK_RETRY_INTERVAL", 0.005)
    return Disk()


def test_lines_are_written_in_order(disk: Disk) -> None:
    writer = AuditWriter(disk, describe, "disk")
    for number in range(1000):
        writer.put(number)
    writer.close()
    assert disk.lines == [str(number).encode() for number in range(1000)] and disk.is_closed


def test_nothing_is_started_for_nothing(disk: Disk) -> None:
    before = threading.active_count()
    writer = AuditWriter(disk, describe, "disk")
    assert threading.active_count() == before
    writer.close()
    assert disk.is_closed


@pytest.mark.requirement("audit.bounded")
def test_lines_that_found_no_room_are_counted_in_the_next(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.released.clear()
    writer = AuditWriter(disk, describe, "disk")
    writer.put("first")
    assert disk.tried.wait(30)
    for number in range(5):
        writer.put(number, 3)
    assert len(writer.queue) == 3
    disk.released.set()
    while writer.queue:
        writer._wake.set()
    writer.put("last")
    writer.close()
    assert disk.lines == [b"first", b"0 lost 2", b"1", b"2", b"last"]


@pytest.mark.requirement("audit.disk")
def test_a_full_disk_is_reported_once_and_survived(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.is_full = True
    writer = AuditWriter(disk, describe, "disk")
    for number in range(3):
        writer.put(number)
        assert disk.tried.wait(30)
        disk.tried.clear()
    disk.is_full = False
    writer.put(3)
    writer.close()
    assert disk.lines == [b"0", b"1", b"2", b"3"]
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 1 and "No space left on device" in said[0].getMessage()
    assert "is written to `disk` again" in caplog.text


def test_unwritten_lines_at_the_end_are_reported(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.is_full = True
    writer = AuditWriter(disk, describe, "disk")
    writer.put(1)
    writer.put(2)
    writer.close()
    assert "2 lines of the audit could not be written to `disk`" in caplog.text and disk.is_closed


def test_an_end_does_not_wait_for_a_disk_that_hangs(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_writer, "AUDIT_CLOSE_TIMEOUT", 0.05)
    disk.released.clear()
    writer = AuditWriter(disk, describe, "disk")
    writer.put(1)
    writer.close()
    assert "1 lines of the audit could not be written" in caplog.text
    disk.released.set()


def test_entries_of_which_nothing_is_written_do_not_end_the_audit(disk: Disk) -> None:
    disk.released.clear()
    writer = AuditWriter(disk, describe, "disk")
    writer.put("first")
    assert disk.tried.wait(30)
    writer.put("bad", 1)
    writer.put("lost", 1)
    disk.released.set()
    while writer.queue:
        writer._wake.set()
    writer.put("last")
    writer.close()
    assert disk.lines == [b"first", b"last lost 2"]


def test_a_part_that_was_written_is_not_written_again(disk: Disk) -> None:
    class Slow(Disk):
        def append(self, bodies: Sequence[bytes]) -> int:
            return super().append(bodies[:1])

    slow = Slow()
    writer = AuditWriter(slow, describe, "disk")
    for number in range(5):
        writer.put(number)
    writer.close()
    assert slow.lines == [b"0", b"1", b"2", b"3", b"4"]


def test_lines_that_can_never_be_written_are_counted_and_the_rest_goes_on(disk: Disk) -> None:
    class Picky(Disk):
        def append(self, bodies: Sequence[bytes]) -> int:
            if b"unwritable" in bodies:
                raise ValueError("not this one")
            return super().append(bodies)

    taken = threading.Event()

    def describe_and_say(entries: list[object], lost: int) -> list[bytes]:
        if "bad" in entries:
            taken.set()
        return describe(entries, lost)

    picky = Picky()
    writer = AuditWriter(picky, describe_and_say, "disk")
    writer.put("unwritable")
    writer.put("bad")
    assert taken.wait(30)
    writer.put("last")
    writer.close()
    assert picky.lines == [b"last lost 2"]


def test_lines_of_calls_that_end_after_the_end_are_written_all_the_same(disk: Disk) -> None:
    writer = AuditWriter(disk, describe, "disk")
    writer.put("before")
    writer.close()
    writer.put("late")
    writer.put("later")
    writer.close()
    assert disk.lines == [b"before", b"late", b"later"] and disk.is_closed


def test_finishing_does_not_wait(disk: Disk) -> None:
    disk.released.clear()
    writer = AuditWriter(disk, describe, "disk")
    writer.put("before")
    assert disk.tried.wait(30)
    writer.finish()
    writer.put("late")
    assert disk.lines == [], "the disk hangs, and nobody waits for it"
    disk.released.set()
    writer.close()
    assert disk.lines == [b"before", b"late"] and disk.is_closed


def test_lines_refused_by_a_full_disk_are_written_or_counted_by_the_next_writer(disk: Disk) -> None:
    disk.is_full = True
    writer = AuditWriter(disk, describe, "disk")
    writer.put("described")
    assert disk.tried.wait(30)
    other = Disk()
    heir = AuditWriter(other, describe, "other disk")
    writer.put("queued")
    writer.finish(heir)
    writer.close()
    heir.close()
    assert other.lines in ([b"queued lost 1"], [b"described", b"queued"]) and disk.lines == []
