"""Reads the audit's files, and verifies that nothing was truncated, edited, inserted or removed.

A user who can write both the files and `FILE.head` can write a different history with matching hashes. A hash of the
last line that was stored elsewhere earlier reveals that too: `expected`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from msgspec import DecodeError, ValidationError
from msgspec.json import Decoder

from mcp_workbench.team.audit.audit_file import (
    HEAD_BYTES,
    HEAD_SUFFIX,
    ChainedLine,
    ChainHead,
    lock_head,
    rotated_files,
)

if TYPE_CHECKING:
    from hashlib import _Hash

# Our lines are always shorter than this.
MAX_AUDIT_LINE_BYTES: Final = 1 << 20
# Enough for a file that was not written by a workbench.
MAX_AUDIT_FINDINGS: Final = 100

_read_head: Final = Decoder(ChainHead).decode


class _Link(ChainedLine):
    kind: str = ""
    event: str = ""
    reason: str = ""
    lost: int = 0


_read_link: Final = Decoder(_Link).decode


class ChainReport(NamedTuple):
    """The result. `findings`: violations; `notes`: what cannot be verified, and what the audit itself recorded."""

    findings: list[str]
    notes: list[str]
    lines: int
    first: int
    last: int
    hash: str


class OpenedFiles:
    """All files of an audit, oldest first, at one point in time."""

    def __init__(self, path: str) -> None:
        """Raises OSError if no file can be read."""
        self.head: ChainHead | None = None
        self.is_head_damaged = False
        # Name, file, and the size under the lock: lines written later are not in the head either.
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
        """Open and lock the head, so that nothing is rotated while files are opened."""
        try:
            head = os.open(path + HEAD_SUFFIX, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            lock_head(head, path, fcntl.LOCK_SH)
        except OSError:
            os.close(head)
            raise
        try:
            self.head = _read_head(os.pread(head, HEAD_BYTES, 0))
        except (OSError, DecodeError, ValidationError):
            # An OSError: something else is in its place, such as a folder.
            self.is_head_damaged = True
        return head

    @property
    def has_head(self) -> bool:
        """Whether a workbench wrote these files itself, rather than the system's log."""
        return self.head is not None or self.is_head_damaged

    def lines(self) -> Iterator[tuple[str, int, bytes]]:
        """The file, the number of the line in it, and the line with its line ending."""
        for name, file, left in self.files:
            number = 0
            while line := file.readline(min(MAX_AUDIT_LINE_BYTES, left)):
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
        self.lines = self.first = self.last = 0
        # The hash of the group of the last line, and the group's first line. None if the hash is unknown.
        self._hash: _Hash | None = None
        self._begin = 0

    @property
    def hash(self) -> str:
        """The hash of the lines since the last with a `prev`. The next `prev` must be equal to it."""
        return "" if self._hash is None else self._hash.hexdigest()

    @property
    def group(self) -> str:
        """The lines that this hash covers."""
        return f"line {self.last}" if self._begin >= self.last else f"one of lines {self._begin} to {self.last}"

    def find(self, text: str) -> None:
        if len(self.findings) < MAX_AUDIT_FINDINGS:
            self.findings.append(text)
        elif len(self.findings) == MAX_AUDIT_FINDINGS:
            self.findings.append(f"more than {MAX_AUDIT_FINDINGS} findings; the rest is not listed")

    def take(self, name: str, number: int, line: bytes) -> None:
        where = f"{name}:{number}"
        text = line.removesuffix(b"\n")
        if not self._has_head:
            # Skip the prefix that syslog adds.
            text = text[max(text.find(b"{"), 0) :]
        try:
            link = _read_link(text)
        except (DecodeError, ValidationError):
            link = None
        if link is None or link.seq < 1:
            what = "is not complete" if line == text else "was not written by the workbench"
            self.find(f"{where} {what}")
            return
        self.lines += 1
        is_next = self._place(where, link, begins_file=number == 1)
        if isinstance(link.prev, str):
            self._hash, self._begin = sha256(text), link.seq
        elif self._hash is not None and is_next:
            self._hash.update(b"\n" + text)
        else:
            # The start of its group is missing, which has been reported, so the next `prev` is not compared.
            self._hash = None
        self.last = link.seq
        if link.kind == "audit" and link.event == "file":
            self.notes.append(f"line {link.seq} says: {link.reason}")
        if link.lost:
            self.notes.append(f"line {link.seq} says that {link.lost} lines before it could not be written")

    def _place(self, where: str, link: _Link, *, begins_file: bool) -> bool:
        """Check the number of a line. Returns whether it directly follows the last one."""
        if not self.first:
            self.first = link.seq
            if not isinstance(link.prev, str):
                self.find(f"{where} does not name the hash of what was before it: lines were removed or changed")
        elif link.seq == self.last + 1:
            if isinstance(link.prev, str) and self._hash is not None and link.prev != self.hash:
                self.find(f"{self.group} was changed after line {link.seq} was written ({where})")
            return True
        elif link.seq > self.last:
            gap = (
                f"line {self.last + 1} is"
                if link.seq == self.last + 2
                else f"lines {self.last + 1} to {link.seq - 1} are"
            )
            self.find(f"{gap} missing before {where}")
        elif link.seq == 1 and link.prev == "" and (begins_file or not self._has_head):
            # With a head, a workbench continues the file that it finds, and starts a chain only in a new file.
            self.notes.append(f"another chain begins at {where}")
        else:
            self.find(f"{where} has number {link.seq} after number {self.last}: lines were repeated or moved")
        return False


def verify(path: str, expected: tuple[int, str] | None = None) -> ChainReport:
    """Check the file at `path` and its rotated files. `expected`: the number and hash of a line, as reported earlier.
    Raises OSError if nothing can be read."""
    opened = OpenedFiles(path)
    checker = _ChainChecker(has_head=opened.has_head)
    seen = at_head = at_head_group = ""
    try:
        for name, number, line in opened.lines():
            checker.take(name, number, line)
            if opened.head is not None and checker.last == opened.head.seq:
                at_head, at_head_group = checker.hash, checker.group
            if expected is not None and checker.last == expected[0]:
                seen = checker.hash
    finally:
        opened.close()
    _check_ends(checker, opened, path, at_head, at_head_group)
    if expected is not None and seen != expected[1]:
        checker.find(
            f"line {expected[0]} is not the one that was expected: {'it was changed' if seen else 'it is missing'}"
        )
    return ChainReport(checker.findings, checker.notes, checker.lines, checker.first, checker.last, checker.hash)


def _check_ends(checker: _ChainChecker, opened: OpenedFiles, path: str, at_head: str, group: str) -> None:
    """`at_head`: the hash in the file at the line that the head names; `group`: the lines that it covers."""
    head = opened.head
    if head is None:
        if opened.is_head_damaged:
            checker.find(f"`{path}{HEAD_SUFFIX}` was damaged")
        text = (
            f"without `{path}{HEAD_SUFFIX}` there is no telling whether lines were removed at the beginning or the end"
        )
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
        checker.find(f"{group}, the last one, was changed after it was written")
    if checker.last > head.seq:
        # This also happens after a crash, until a workbench opens the file again and records it in a line.
        checker.find(
            f"after line {head.seq}, the last one by `{path}{HEAD_SUFFIX}`, lines up to {checker.last} were added"
        )
