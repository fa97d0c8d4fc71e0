"""The audit's file on disk: appended to by any number of processes, rotated, and tied together by hashes.

Lines that are written at once are a group, and the first of them names the hash of the group before. `FILE.head` says
which line was written last and in which file, so that a cut at the end can be noticed too; it is also what processes
lock, because the file itself is renamed. Owns what is done when the file was deleted, replaced, cut or damaged: a new
line says so, and writing goes on. Refuses to know what lines say otherwise.
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

# Who else appends does so in milliseconds; a process that was stopped meanwhile must not hold up this one for ever.
LOCK_SECONDS: Final = 5.0
LOCK_POLL_SECONDS: Final = 0.01
# The head is written in place and always has this length: on a full disk it still can be.
HEAD_BYTES: Final = 512
# How much of the end of a file is read to find its last line, beyond which no line of ours goes.
TAIL_BYTES: Final = 256 * 1024
# What is written at once: less than that.
GROUP_BYTES: Final = 128 * 1024
HEAD: Final = ".head"
_ROTATED: Final = re.compile(r"\.(\d{1,20})")


class ChainedLine(Struct):
    """What places a line in the chain. Only the first of a group names the hash of the one before."""

    seq: int
    prev: str | UnsetType = UNSET


class ChainHead(Struct):
    """The last line that was written."""

    seq: int = 0
    # Of the group that it ends.
    hash: str = ""
    # The file that it is in: its inode, and its size with this line.
    inode: int = 0
    size: int = 0
    # The first line of the oldest file that is kept.
    oldest: int = 1
    # The first line of the file that is written to.
    first: int = 1


_read_head: Final = Decoder(ChainHead).decode
_read_line: Final = Decoder(ChainedLine).decode

_encode_lines: Final = Encoder().encode_lines

# What has to be said of the file itself.
Notice = Callable[[str], ChainedLine]


def group(seq: int, previous: str, lines: Sequence[ChainedLine]) -> bytes:
    """Lines that are written at once. `seq`: the number of the first.

    One hash for all of them: it finds an edit or a cut as surely as one for each line, for a fraction of the time. So
    does one call of the encoder, which ends each line; no line holds a line feed, because JSON escapes those of its
    strings.
    """
    for number, line in enumerate(lines, seq):
        line.seq = number
    lines[0].prev = previous
    try:
        return _encode_lines(lines)
    finally:
        # Where it is not written now, another line may come first later.
        lines[0].prev = UNSET


def group_hash(lines: bytes | memoryview) -> str:
    """What the group after these lines names. `lines` is without the end of the last."""
    return sha256(lines).hexdigest()


def lock_head(head: int, path: str, how: int) -> None:
    """Wait for others to be done with the audit at `path`. Raises `TimeoutError` where they are not in time."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(head, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                text = f"another process has held `{path}{HEAD}` for {LOCK_SECONDS:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text) from None
            time.sleep(LOCK_POLL_SECONDS)


def rotated_files(path: str) -> list[str]:
    """The files that were put aside, the oldest first. Their names end with their first line's number."""
    folder, name = os.path.split(path)
    found = []
    with contextlib.suppress(OSError):
        for each in os.listdir(folder or "."):
            match = _ROTATED.fullmatch(each[len(name) :]) if each.startswith(name) else None
            if match is not None:
                found.append((int(match[1]), os.path.join(folder, each)))
    return [each for _, each in sorted(found)]


class AuditFile:
    """The file, as one process writes to it. Used by one thread."""

    def __init__(self, path: str, largest: int, kept: int, notice: Notice) -> None:
        self._path = path
        self._largest = largest
        self._kept = kept
        self._notice = notice
        # Both are -1 until opened.
        self._lock = -1
        self._file = -1
        self._head = ChainHead()
        # What was found when it was opened.
        self._unsaid: list[ChainedLine] = []

    def open(self) -> None:
        """Raises OSError where the file cannot be written, or its folder has no locks."""
        with self._locked():
            self._unsaid = self._find_file()
            self._save_head()

    def append(self, lines: Sequence[ChainedLine]) -> int:
        """Write lines of them, from the first on, at least one, and say how many. Raises OSError, and then none was
        written."""
        with self._locked():
            notes = (*self._unsaid, *self._find_file())
            head = self._head
            data = group(head.seq + 1, head.hash, (*notes, *lines))
            if len(data) > GROUP_BYTES and len(lines) > 1:
                lines = _within(lines, GROUP_BYTES)
                data = group(head.seq + 1, head.hash, (*notes, *lines))
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
        if self._lock < 0 or not _is_at(self._lock, self._path + HEAD):
            # Deleted; no other process may notice it later than we do: a new one begins where the file ends.
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1
            self._lock = os.open(
                self._path + HEAD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        lock_head(self._lock, self._path, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    # ── which file, and how it ends ──

    def _find_file(self) -> list[ChainedLine]:
        """Have the right file open, and know its last line. What has to be said of it, if anything."""
        written = os.pread(self._lock, HEAD_BYTES, 0)
        known = self._head
        try:
            head = _read_head(written)
        except (DecodeError, ValidationError):
            # Empty: nothing was written yet, or it was deleted. What we know ourselves is as good.
            head = known if known.seq else ChainHead()
            is_damaged = bool(written.strip() or known.seq)
        else:
            is_damaged = head.seq < known.seq
            head = known if is_damaged else head
        self._head = head
        notes = [self._notice(f"`{self._path}{HEAD}` was changed by another program")] if is_damaged else []
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
                # As `logrotate` does it.
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
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        self._head.inode, self._head.size, self._head.first = os.fstat(self._file).st_ino, 0, self._head.seq + 1

    def _reopen(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is no file")
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if os.fstat(self._file).st_mode & 0o077:
            # What is in it is about people.
            os.fchmod(self._file, 0o600)

    def _adopt(self, size: int) -> list[ChainedLine]:
        """Go on from the last line of a file that holds more than the head says: another of us died in between, or
        somebody has written to it."""
        head = self._head
        notes: list[ChainedLine] = []
        before, is_headless = head.seq, not head.seq
        start = max(0, size - TAIL_BYTES) if is_headless else head.size
        tail = os.pread(self._file, TAIL_BYTES, start)
        complete, _, rest = tail.rpartition(b"\n")
        lines = [line for line in complete.split(b"\n") if line]
        if is_headless and start:
            # The first is cut by where we began to read.
            # Nor can the end of a group be hashed; none of ours is longer than what is read.
            lines = list(dropwhile(lambda line: b'"prev":' not in line, lines[1:]))
        if not _follow(head, lines):
            notes.append(
                self._notice(f"what follows line {head.seq} in `{self._path}` was not written by the workbench")
            )
        if before and head.seq > before:
            # Hashes that fit prove nothing: there is no key, so anybody who can write here can make them.
            text = f"lines {before + 1} to {head.seq} of `{self._path}` are not in `{self._path}{HEAD}`"
            notes.append(self._notice(f"{text}: a workbench ended while it wrote them, or another program added them"))
        head.inode = os.fstat(self._file).st_ino
        if is_headless and size:
            head.first = _first_line(os.pread(self._file, TAIL_BYTES, 0)) or head.seq + 1
            head.oldest = min([head.first, *(int(each.rpartition(".")[2]) for each in rotated_files(self._path))])
            text = f"`{self._path}{HEAD}` was missing: whether lines after {head.seq} are gone cannot be known"
            notes.append(self._notice(text))
        if rest:
            notes.append(self._notice(f"line {head.seq + 1} of `{self._path}` was not completed; it is left as it is"))
        self._mend(size)
        return notes

    def _mend(self, size: int) -> None:
        """A line that somebody left without its end is one of its own."""
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
            # A full disk takes a part: a half line would look like an edited one.
            if written:
                os.ftruncate(self._file, self._head.size)
            raise
        self._head.size += written

    def _save_head(self) -> None:
        text = encode(self._head)
        # In place, the length as ever. Should this fail, the file itself is adopted the next time.
        with contextlib.suppress(OSError):
            os.pwrite(self._lock, text + b" " * (HEAD_BYTES - 1 - len(text)) + b"\n", 0)

    def _rotate(self) -> None:
        """Put the file aside under the number of its first line; the next line begins another."""
        head = self._head
        try:
            with contextlib.suppress(OSError):
                os.fsync(self._file)
            os.rename(self._path, f"{self._path}.{head.first}")
            # If there is no new one now, it was not deleted.
            head.inode = 0
            self._begin()
            files = rotated_files(self._path)
            for each in files[: -self._kept]:
                os.unlink(each)
            kept = files[-self._kept :]
            head.oldest = int(kept[0].rpartition(".")[2]) if kept else head.first
        except OSError:
            # It grows on, and the next line tries again.
            return
        finally:
            self._save_head()


def _within(lines: Sequence[ChainedLine], most: int) -> Sequence[ChainedLine]:
    """As many as fit, from the first, which always does."""
    sizes = accumulate(len(encode(line)) for line in lines)
    return lines[: max(1, sum(size <= most for size in sizes))]


def _follow(head: ChainHead, lines: list[bytes]) -> bool:
    """Go on from the head over lines that belong to the chain. Whether all of them do."""
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
