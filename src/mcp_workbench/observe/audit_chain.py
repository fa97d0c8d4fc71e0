"""Reading the audit's files, and checking that nothing was cut, edited, inserted or removed.

Whoever can write both the files and `FILE.head` can write another history, with hashes that fit. What the last line's
hash was at some moment, kept elsewhere, shows that too: `expected`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO, Final, NamedTuple

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.observe.audit_file import HEAD, HEAD_BYTES, ChainHead, line_hash, rotated_files

# Longer than any line of ours; what is longer is not one.
LONGEST_LINE: Final = 1 << 20
# A file that somebody else has written is described well enough by so many.
MOST_FINDINGS: Final = 100

_read_head: Final = Decoder(ChainHead).decode


class _Link(Struct):
    seq: int
    prev: str
    kind: str = ""
    event: str = ""
    reason: str = ""
    lost: int = 0


_read_link: Final = Decoder(_Link).decode


class ChainReport(NamedTuple):
    """What was found. `findings`: what must not be so; `notes`: what cannot be known, or was said at the time."""

    findings: list[str]
    notes: list[str]
    lines: int
    first: int
    last: int
    hash: str


class OpenedFiles:
    """All files of an audit, the oldest first, as they are at one moment."""

    def __init__(self, path: str) -> None:
        """Raises OSError where there is none that can be read."""
        self.head: ChainHead | None = None
        self.is_head_damaged = False
        # Name, file, and the size it had when nobody was writing to it: what comes later is not in the head either.
        self.files: list[tuple[str, BinaryIO, int]] = []
        self._stack = ExitStack()
        head = self._open_head(path)
        try:
            for each in (*rotated_files(path), path):
                if each != path or os.path.exists(each) or not self.files:
                    file = self._stack.enter_context(open(each, "rb"))  # noqa: SIM115
                    self.files.append((each, file, os.fstat(file.fileno()).st_size))
        except BaseException:
            self._stack.close()
            raise
        finally:
            if head is not None:
                os.close(head)

    def _open_head(self, path: str) -> int | None:
        """Locked, so that nothing is rotated while files are opened."""
        try:
            head = os.open(path + HEAD, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        fcntl.flock(head, fcntl.LOCK_SH)
        try:
            self.head = _read_head(os.pread(head, HEAD_BYTES, 0))
        except (DecodeError, ValidationError):
            self.is_head_damaged = True
        return head

    @property
    def has_head(self) -> bool:
        """Whether a workbench wrote these files itself, and not the system's log for it."""
        return self.head is not None or self.is_head_damaged

    def lines(self) -> Iterator[tuple[str, int, bytes]]:
        """File, number in it, and the line with its end."""
        for name, file, left in self.files:
            number = 0
            while line := file.readline(min(LONGEST_LINE, left)):
                number += 1
                left -= len(line)
                yield name, number, line

    def close(self) -> None:
        self._stack.close()


class _ChainChecker:
    def __init__(self, *, has_head: bool) -> None:
        self._has_head = has_head
        self.findings: list[str] = []
        self.notes: list[str] = []
        self.lines = self.first = self.last = self.lost = 0
        self.hash = ""

    def find(self, text: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(text)
        elif len(self.findings) == MOST_FINDINGS:
            self.findings.append(f"more than {MOST_FINDINGS} findings; the rest is not listed")

    def take(self, name: str, number: int, line: bytes) -> None:
        where = f"{name}:{number}"
        text = line.removesuffix(b"\n")
        if not self._has_head:
            # Of syslog, whatever stands before the line itself.
            text = text[max(text.find(b"{"), 0) :]
        try:
            link = _read_link(text)
        except (DecodeError, ValidationError):
            link = None
        if link is None or link.seq < 1:
            what = "is not complete" if text and line == text else "was not written by the workbench"
            self.find(f"{where} {what}")
            return
        self.lines += 1
        self._place(where, link, begins_file=number == 1)
        self.last, self.hash = link.seq, line_hash(text)
        self.lost += link.lost
        if link.kind == "audit" and link.event == "file":
            self.notes.append(f"line {link.seq} says: {link.reason}")
        if link.lost:
            self.notes.append(f"line {link.seq} says that {link.lost} lines before it could not be written")

    def _place(self, where: str, link: _Link, *, begins_file: bool) -> None:
        if not self.first:
            self.first = link.seq
        elif link.seq == self.last + 1:
            if link.prev != self.hash:
                self.find(f"line {self.last} was changed after line {link.seq} was written ({where})")
        elif link.seq > self.last:
            gap = (
                f"line {self.last + 1} is"
                if link.seq == self.last + 2
                else f"lines {self.last + 1} to {link.seq - 1} are"
            )
            self.find(f"{gap} missing before {where}")
        elif link.seq == 1 and not link.prev and (begins_file or not self._has_head):
            # With a head, a workbench goes on in the file that it finds: it begins anew only in a new one.
            self.notes.append(f"another chain begins at {where}")
        else:
            self.find(f"{where} has number {link.seq} after number {self.last}: lines were repeated or moved")


def verify(path: str, expected: tuple[int, str] | None = None) -> ChainReport:
    """Check the file at `path`, and those that were put aside. `expected`: the number and hash of a line, as they were
    told at an earlier time. Raises OSError where nothing can be read."""
    opened = OpenedFiles(path)
    checker = _ChainChecker(has_head=opened.has_head)
    seen = at_head = ""
    try:
        for name, number, line in opened.lines():
            checker.take(name, number, line)
            if opened.head is not None and checker.last == opened.head.seq:
                at_head = checker.hash
            if expected is not None and checker.last == expected[0]:
                seen = checker.hash
    finally:
        opened.close()
    _check_ends(checker, opened, path, at_head)
    if expected is not None and seen != expected[1]:
        checker.find(
            f"line {expected[0]} is not the one that was expected: {'it was changed' if seen else 'it is missing'}"
        )
    return ChainReport(checker.findings, checker.notes, checker.lines, checker.first, checker.last, checker.hash)


def _check_ends(checker: _ChainChecker, opened: OpenedFiles, path: str, at_head: str) -> None:
    """`at_head`: the hash of the line that the head names, as it is in the file."""
    head = opened.head
    if head is None:
        if opened.is_head_damaged:
            checker.find(f"`{path}{HEAD}` was damaged")
        text = f"without `{path}{HEAD}` it cannot be known whether lines were removed at the beginning or the end"
        checker.notes.append(text)
        return
    if checker.first > head.oldest:
        checker.find(f"lines {head.oldest} to {checker.first - 1} are missing at the beginning")
    elif head.oldest > 1:
        checker.notes.append(f"lines before {head.oldest} were deleted by rotation; of those nothing can be known")
    if checker.last < head.seq:
        checker.find(f"lines {checker.last + 1} to {head.seq} are missing at the end")
        return
    if head.seq and at_head != head.hash:
        checker.find(f"line {head.seq}, the last one, was changed after it was written")
    if checker.last > head.seq:
        # After a crash too, until a workbench opens the file again and says so in a line.
        checker.find(f"after line {head.seq}, the last one by `{path}{HEAD}`, lines up to {checker.last} were added")
