"""The audit's file on disk: any number of processes append to it, it is rotated, and a chain of hashes links its lines.

Lines that are written together are a group, and its first line contains the hash of the previous group. `FILE.head`
records which line was written last and in which file, so that truncation at the end can be detected too; processes lock
it, because the file itself is renamed. If the file was deleted, replaced, truncated or damaged, a new line reports
that, and writing continues. Knows nothing else about the content of lines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate, dropwhile
from typing import Final

from msgspec import UNSET, DecodeError, Struct, UnsetType, ValidationError
from msgspec.json import Decoder, Encoder, encode

# Other processes hold the lock for milliseconds; one that is suspended meanwhile must not block us forever.
AUDIT_LOCK_TIMEOUT: Final = 5.0
AUDIT_LOCK_POLL_INTERVAL: Final = 0.01
# The head is overwritten and always has this length, so that it can be written on a full disk.
HEAD_BYTES: Final = 512
# How much of the end of a file is read to find its last line. Our groups are shorter.
TAIL_BYTES: Final = 256 * 1024
# The maximum size of a group.
GROUP_BYTES: Final = 128 * 1024
HEAD_SUFFIX: Final = ".head"
# U+2028, U+2029 and U+0085.
_LINE_ENDS: Final = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
_ROTATED: Final = re.compile(r"\.(\d{1,20})")


class ChainedLine(Struct):
    """The position of a line in the chain. Only the first line of a group has the hash of the previous group."""

    seq: int
    prev: str | UnsetType = UNSET


class ChainHead(Struct):
    """The last line that was written."""

    seq: int = 0
    # The hash of its group.
    hash: str = ""
    # The inode of its file, and the file's size including this line.
    inode: int = 0
    size: int = 0
    # The number of the first line in the oldest file that is kept.
    oldest: int = 1
    # The number of the first line in the current file.
    first: int = 1


_read_head: Final = Decoder(ChainHead).decode
_read_line: Final = Decoder(ChainedLine).decode

_encode_lines: Final = Encoder().encode_lines

# Makes the line that reports something about the file itself.
Notice = Callable[[str], ChainedLine]


def group(seq: int, previous: str, lines: list[ChainedLine]) -> bytes:
    """Encode lines that are written together. `seq`: the number of the first.

    One hash for all of them detects edits and truncation as reliably as one for each line, in a fraction of the time.
    One call of the encoder saves time too: it ends each line with a line feed, and JSON escapes those in strings.
    A list, because the encoder of msgspec 0.22 never frees the iterator over anything else.
    """
    for number, line in enumerate(lines, seq):
        line.seq = number
    lines[0].prev = previous
    try:
        return on_one_line(_encode_lines(lines))
    finally:
        # If writing fails, a different line may be the first one next time.
        lines[0].prev = UNSET


def on_one_line(encoded: bytes) -> bytes:
    """Escape what ends a line for some programs, so that no text can look like a line of its own. In JSON, these
    characters occur in strings only."""
    if encoded.isascii():
        return encoded
    for character, escaped in _LINE_ENDS:
        encoded = encoded.replace(character, escaped)
    return encoded


def group_hash(lines: bytes | memoryview) -> str:
    """The hash that the group after these lines contains. `lines` has no line ending after the last."""
    return sha256(lines).hexdigest()


def lock_head(head: int, path: str, how: int) -> None:
    """Lock the head of the audit at `path`. Raises `TimeoutError` if other processes hold it too long."""
    end = time.monotonic() + AUDIT_LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(head, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                text = f"another process has held `{path}{HEAD_SUFFIX}` for {AUDIT_LOCK_TIMEOUT:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text) from None
            time.sleep(AUDIT_LOCK_POLL_INTERVAL)


def rotated_files(path: str) -> list[str]:
    """The rotated files, oldest first. Their names end with the number of their first line."""
    folder, name = os.path.split(path)
    found = []
    with contextlib.suppress(OSError):
        for each in os.listdir(folder or "."):
            match = _ROTATED.fullmatch(each[len(name) :]) if each.startswith(name) else None
            if match is not None:
                found.append((int(match[1]), os.path.join(folder, each)))
    return [each for _, each in sorted(found)]


class AuditFile:
    """The file, as one process writes it. Used by one thread."""

    def __init__(self, path: str, largest: int, kept: int, notice: Notice) -> None:
        self._path = path
        self._largest = largest
        self._kept = kept
        self._notice = notice
        # Both are -1 until opened.
        self._lock = -1
        self._file = -1
        self._head = ChainHead()
        # Reports from opening the file, which have not been written yet.
        self._unsaid: list[ChainedLine] = []

    def open(self) -> None:
        """Raises OSError if the file cannot be written, or its folder does not support locks."""
        try:
            with self._locked():
                self._unsaid = self._find_file()
                self._save_head()
        except OSError:
            self.close()
            raise

    def append(self, lines: Sequence[ChainedLine]) -> int:
        """Write at least the first of these lines. Returns how many were written. Raises OSError if none was."""
        with self._locked():
            notes = (*self._unsaid, *self._find_file())
            head = self._head
            data = group(head.seq + 1, head.hash, [*notes, *lines])
            if len(data) > GROUP_BYTES and len(lines) > 1:
                lines = _within(lines, GROUP_BYTES)
                data = group(head.seq + 1, head.hash, [*notes, *lines])
            self._write(data)
            head.seq, head.hash = head.seq + len(notes) + len(lines), group_hash(memoryview(data)[:-1])
            self._unsaid = []
            self._save_head()
            if head.size >= self._largest:
                self._rotate()
        return len(lines)

    def close(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(descriptor)
                os.close(descriptor)
        self._file = self._lock = -1

    # ── one process at a time ──

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock < 0 or not _is_at(self._lock, self._path + HEAD_SUFFIX):
            # Not opened yet, or deleted. A new head continues at the end of the file.
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1
            self._lock = os.open(
                self._path + HEAD_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        lock_head(self._lock, self._path, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    # ── finding the file and its last line ──

    def _find_file(self) -> list[ChainedLine]:
        """Open the right file and find its last line. Returns lines that report irregularities."""
        written = os.pread(self._lock, HEAD_BYTES, 0)
        known = self._head
        try:
            head = _read_head(written)
        except (DecodeError, ValidationError):
            # If empty, nothing was written yet, or it was deleted. What this process last wrote is just as good.
            head = known if known.seq else ChainHead()
            is_damaged = bool(written.strip() or known.seq)
        else:
            is_damaged = head.seq < known.seq
            head = known if is_damaged else head
        self._head = head
        notes = [self._notice(f"`{self._path}{HEAD_SUFFIX}` was changed by another program")] if is_damaged else []
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            if head.seq and head.inode:
                notes.append(
                    self._notice(f"`{self._path}` was deleted or moved after line {head.seq}; this is a new file")
                )
            self._begin()
            return notes
        if self._file < 0 or not _is_same(os.fstat(self._file), found):
            self._reopen(found)
        if not head.seq:
            return notes + self._adopt(found.st_size)
        if found.st_ino != head.inode:
            if found.st_size == 0:
                # This is what `logrotate` does.
                notes.append(self._notice(f"`{self._path}` was replaced after line {head.seq}; this is a new file"))
                head.inode, head.size, head.first = found.st_ino, 0, head.seq + 1
                return notes
            aside = self._set_aside()
            notes.append(self._notice(f"`{self._path}` was replaced after line {head.seq} and is now `{aside}`"))
            self._begin()
        elif found.st_size < head.size:
            text = f"`{self._path}` was cut: it had {head.size} bytes after line {head.seq}, and has {found.st_size}"
            notes.append(self._notice(text))
            self._mend(found.st_size)
        elif found.st_size > head.size:
            notes += self._adopt(found.st_size)
        return notes

    def _begin(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        self._head.inode, self._head.size, self._head.first = os.fstat(self._file).st_ino, 0, self._head.seq + 1

    def _reopen(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is not a file")
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        if os.fstat(self._file).st_mode & 0o077:
            # Its content is private.
            os.fchmod(self._file, 0o600)

    def _adopt(self, size: int) -> list[ChainedLine]:
        """Continue after the last line of a file that is longer than the head says: another workbench ended before it
        wrote the head, or another program wrote to the file."""
        head = self._head
        notes: list[ChainedLine] = []
        before, is_headless = head.seq, not head.seq
        start = max(0, size - TAIL_BYTES) if is_headless else head.size
        tail = os.pread(self._file, TAIL_BYTES, start)
        complete, _, rest = tail.rpartition(b"\n")
        lines = [line for line in complete.split(b"\n") if line]
        if is_headless and start:
            # The first line is incomplete, because reading began within it. An incomplete group cannot be hashed
            # either, so it is skipped; our groups are shorter than what is read.
            lines = list(dropwhile(lambda line: b'"prev":' not in line, lines[1:]))
        if not _follow(head, lines):
            notes.append(
                self._notice(f"what follows line {head.seq} in `{self._path}` was not written by the workbench")
            )
        if before and head.seq > before:
            # Matching hashes prove nothing: there is no key, so any program that can write here can compute them.
            text = f"lines {before + 1} to {head.seq} of `{self._path}` are not in `{self._path}{HEAD_SUFFIX}`"
            notes.append(self._notice(f"{text}: a workbench ended while it wrote them, or another program added them"))
        head.inode = os.fstat(self._file).st_ino
        if is_headless and size:
            head.first = _first_line(os.pread(self._file, TAIL_BYTES, 0)) or head.seq + 1
            head.oldest = min([head.first, *(int(each.rpartition(".")[2]) for each in rotated_files(self._path))])
            text = (
                f"`{self._path}{HEAD_SUFFIX}` was missing: there is no telling whether lines after {head.seq} are gone"
            )
            notes.append(self._notice(text))
        if rest:
            notes.append(self._notice(f"line {head.seq + 1} of `{self._path}` was not completed; it is left as it is"))
        self._mend(size)
        return notes

    def _mend(self, size: int) -> None:
        """End an incomplete last line, so that the next line does not continue it."""
        self._head.size = size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._head.size += os.write(self._file, b"\n")

    def _set_aside(self) -> str:
        aside = f"{self._path}.replaced-{self._head.seq}"
        os.rename(self._path, aside)
        return aside

    # ── writing ──

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            # A full disk may accept a part, and half a line would look like an edited one.
            if written:
                os.ftruncate(self._file, self._head.size)
            raise
        self._head.size += written

    def _save_head(self) -> None:
        text = encode(self._head)
        # Overwritten with the same length. If this fails, the end of the file is adopted next time.
        with contextlib.suppress(OSError):
            os.pwrite(self._lock, text + b" " * (HEAD_BYTES - 1 - len(text)) + b"\n", 0)

    def _rotate(self) -> None:
        """Rename the file to the number of its first line. The next line begins a new file."""
        head = self._head
        try:
            with contextlib.suppress(OSError):
                os.fsync(self._file)
            os.rename(self._path, f"{self._path}.{head.first}")
            # Without an inode, a missing file does not mean that it was deleted.
            head.inode = 0
            self._begin()
            files = rotated_files(self._path)
            for each in files[: -self._kept]:
                os.unlink(each)
            kept = files[-self._kept :]
            head.oldest = int(kept[0].rpartition(".")[2]) if kept else head.first
        except OSError:
            # The file continues to grow, and the next line tries again.
            return
        finally:
            self._save_head()


def _within(lines: Sequence[ChainedLine], most: int) -> Sequence[ChainedLine]:
    """The first lines that fit, at least one."""
    sizes = accumulate(len(encode(line)) for line in lines)
    return lines[: max(1, sum(size <= most for size in sizes))]


def _follow(head: ChainHead, lines: list[bytes]) -> bool:
    """Advance the head over lines that continue the chain. Returns whether all of them do."""
    hashed = None
    for line in lines:
        try:
            read = _read_line(line)
        except (DecodeError, ValidationError):
            return False
        if head.seq and read.seq != head.seq + 1:
            return False
        if isinstance(read.prev, str):
            if head.seq and read.prev != head.hash:
                return False
            hashed = sha256(line)
        elif hashed is not None:
            hashed.update(b"\n" + line)
        else:
            return False
        head.seq, head.hash = read.seq, hashed.hexdigest()
    return True


def _first_line(start: bytes) -> int | None:
    try:
        return _read_line(start.partition(b"\n")[0]).seq
    except (DecodeError, ValidationError):
        return None


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return _is_same(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
