"""Reading and writing file descriptors on the event loop, in batches.

asyncio's own pipe transports cost a task switch and a write call for each message. Here everything from one read is
handled at once, and everything written in response leaves in one write per descriptor.

Owns buffers, batching and back-pressure. Knows nothing about processes, and about lines only whether a long one is
arriving. POSIX only: on Windows the event loop cannot watch descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.allocator import KEPT_BYTES, keep_freed_memory, trim_soon
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW, WriteBatch
from mcp_workbench.errors import shortage

log = logging.getLogger(__name__)

OnData = asyncio.Future[None] | None

# glibc serves up to 128 KiB from its heap and maps larger blocks anew each time, with page faults. So reads start below
# that and grow only while they are filled by a single message, which means that a large one is arriving. A flood of
# small ones is read in small pieces: each piece is handled in one iteration of the loop, while other clients wait.
SMALL_READ: Final = 64 * 1024
LARGE_READ: Final = 256 * 1024
# Linux accepts at most 1,024 buffers in one call.
MAX_WRITE_BUFFERS: Final = 1024

# A pipe holds 64 KiB by default; a message of a megabyte then costs sixteen switches between two processes. All pipes
# of an unprivileged user together may hold 64 MiB, so this is only moderately larger.
PIPE_BYTES: Final = LARGE_READ
# How much is written to one descriptor in one iteration of the loop, however fast the peer reads: at least a full pipe.
MAX_WRITTEN_AT_ONCE: Final = PIPE_BYTES


def widen(fd: int) -> None:
    """Enlarge the buffer of a pipe, if the system supports it (Linux) and the descriptor is a pipe."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def describe(error: Exception) -> str:
    """The reason why a descriptor cannot be used, for error messages."""
    return shortage(error) or (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


class PipeReader:
    """Calls back with the data of a descriptor, then once with its end. Owns and closes the descriptor.

    The end is reported with the error that caused it, or None. Every error is an end: the event loop calls again as
    long as there is something to read, so a persistent error would recur in each iteration. If `on_data` returns a
    future, nothing is read until it is done.
    """

    __slots__ = (
        "_batch",
        "_closed",
        "_ended",
        "_fd",
        "_in_a_row",
        "_loop",
        "_on_data",
        "_pollable",
        "_size",
        "is_busy",
        "paused",
    )

    def __init__(
        self, batch: WriteBatch, fd: int, on_data: Callable[[bytes], OnData], ended: Callable[[Exception | None], None]
    ) -> None:
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._on_data = on_data
        self._ended = ended
        self._size = SMALL_READ
        # Bytes received since reads became large.
        self._in_a_row = 0
        self._closed = False
        self._pollable = True
        # Whether data is being handled in a thread.
        self.is_busy = False
        self.paused = True
        self.resume()

    def resume(self) -> None:
        if self._closed or not self.paused:
            return
        self.paused = False
        if not self.is_busy:
            self._watch()

    def _watch(self) -> None:
        try:
            self._loop.add_reader(self._fd, self._ready)
        except PermissionError:
            # A regular file cannot be watched, and need not be: reading it never blocks.
            self._pollable = False
            self._loop.call_soon(self._ready_again)
        except (OSError, ValueError, MemoryError) as error:
            self.paused = True
            self._loop.call_soon(self._end, error)

    def pause(self) -> None:
        """Make the peer wait: the pipe fills up, and it stops writing."""
        if self._closed or self.paused:
            return
        self.paused = True
        if self._pollable and not self.is_busy:
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Stop reading and close the descriptor. `ended` is not called."""
        if self._closed:
            return
        self.pause()
        self._closed = True
        if self._size != SMALL_READ:
            # In the middle of a large message, which is not needed any more.
            trim_soon(self._loop)
        os.close(self._fd)

    def _ready_again(self) -> None:
        if not self._closed and not self.paused and not self.is_busy:
            self._ready()
            self._loop.call_soon(self._ready_again)

    def _ready(self) -> None:
        try:
            data = os.read(self._fd, self._size)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, MemoryError) as error:
            self._end(error)
            return
        if not data:
            self._end(None)
            return
        if self._size == SMALL_READ:
            # A read full of small messages is enough for one iteration of the loop: others are waiting.
            if len(data) == SMALL_READ and b"\n" not in data:
                self._size = LARGE_READ
                keep_freed_memory()
        else:
            self._in_a_row += len(data)
            if self._in_a_row > KEPT_BYTES:
                # Now, and again after more megabytes: we cannot tell which read is the last of a message.
                trim_soon(self._loop)
                self._in_a_row = 0
            if len(data) < SMALL_READ or data.find(b"\n", 0, SMALL_READ) >= 0:
                self._size = SMALL_READ
                self._in_a_row = 0
        try:
            batch = self._batch
            batch.is_held = True
            try:
                handled = self._on_data(data)
            finally:
                batch.release()
            if handled is not None and not self._closed:
                self.wait_for(handled)
        except Exception as error:
            # It is no longer known where the next message begins.
            if shortage(error) is None:
                log.exception("incoming data could not be handled; please report this")
            self._end(error)

    def wait_for(self, handled: asyncio.Future[None]) -> None:
        """Read nothing more until this is done; if it fails, end."""
        if self._pollable and not self.paused:
            self._loop.remove_reader(self._fd)
        self.is_busy = True
        handled.add_done_callback(self._on_handled)

    def _on_handled(self, handled: asyncio.Future[None]) -> None:
        self.is_busy = False
        error = handled.exception()
        if error is not None:
            self._end(error if isinstance(error, Exception) else None)
        elif not self._closed and not self.paused:
            self._watch()

    def _end(self, error: Exception | None) -> None:
        if not self._closed:
            self.close()
            self._ended(error)


class PipeWriter:
    """Writes to a descriptor without ever blocking. Owns and closes it."""

    __slots__ = (
        "_batch",
        "_closed",
        "_failed",
        "_fd",
        "_loop",
        "_on_drained",
        "_parts",
        "_queued",
        "_waiting",
        "_was_interrupted",
        "_was_large",
        "lost_bytes",
        "unsent_bytes",
        "waiting_since",
    )

    def __init__(
        self,
        batch: WriteBatch,
        fd: int,
        failed: Callable[[Exception], None],
        on_drained: Callable[[], object] | None = None,
    ) -> None:
        """`on_drained`: called when a queue that had to wait for the peer is empty again."""
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._failed = failed
        self._on_drained = on_drained
        self._parts: list[Part] = []
        self._queued = False
        self._waiting = False
        # Whether more was queued for the peer than `KEPT_BYTES`.
        self._was_large = False
        # Whether the queue is written in more than one iteration of the loop.
        self._was_interrupted = False
        self._closed = False
        self.unsent_bytes = 0
        # What was unsent when the peer turned out to be gone.
        self.lost_bytes = 0
        # When the peer last accepted data, while more is queued for it.
        self.waiting_since = 0.0
        os.set_blocking(fd, False)

    def write(self, *parts: Part) -> None:
        """Queue parts; they are written together with the rest of the batch."""
        self.write_line(parts, b"")

    def write_line(self, parts: tuple[Part, ...], end: bytes = b"\n") -> None:
        """Queue a message, given in parts, and the newline that ends it."""
        if self._closed:
            return
        size = len(end)
        for part in parts:
            size += len(part)
        queued, batch = self._parts, self._batch
        if batch.is_sole and not queued and size <= JOIN_BELOW:
            batch.is_sole = False
            data = b"".join((*parts, end))
            try:
                sent = os.write(self._fd, data)
            except (OSError, MemoryError):
                # It is tried again with the batch, where the reason is found and nobody is in the middle of sending.
                sent = 0
            if sent == size:
                return
            parts, end, size = (memoryview(data)[sent:],), b"", size - sent
        queued += parts
        queued.append(end)
        self.unsent_bytes += size
        if not self._queued and not self._waiting:
            self._queued = True
            batch.add(self)
        elif self._waiting and self.unsent_bytes > KEPT_BYTES:
            self._was_large = True

    def flush(self) -> None:
        self._queued = False
        before = self.unsent_bytes
        while self._parts and not self._closed and not self._waiting:
            unsent = self.unsent_bytes
            if before - unsent > MAX_WRITTEN_AT_ONCE:
                # The peer reads as fast as we write. Others come first; not with the batch, which each read flushes.
                self._queued = self._was_interrupted = True
                self._loop.call_soon(self.flush)
                return
            try:
                if unsent <= JOIN_BELOW:
                    data = b"".join(self._parts)
                    sent = os.write(self._fd, data)
                    self.unsent_bytes = unsent - sent
                    self._parts = [memoryview(data)[sent:]] if sent < unsent else []
                else:
                    self._write_some()
            except BlockingIOError:
                self._wait()
            except (OSError, MemoryError) as error:
                self._fail(error)
        if self._was_interrupted and not self._waiting:
            self._was_interrupted = False
            if not self._closed and self._on_drained is not None:
                self._on_drained()

    @property
    def unread_bytes(self) -> int:
        """Bytes that the peer has certainly not read: on Linux including those left in the pipe."""
        if self._closed:
            return self.lost_bytes
        # Needed only when a server has died at its start.
        import termios

        count = bytearray(4)
        try:
            fcntl.ioctl(self._fd, termios.FIONREAD, count)
        except OSError:
            return self.unsent_bytes
        return self.unsent_bytes + int.from_bytes(count, sys.byteorder)

    def take_back(self, count: int) -> None:
        """Undo the last `write`, of this many parts, before anything else is written or flushed."""
        for part in self._parts[-count:]:
            self.unsent_bytes -= len(part)
        del self._parts[-count:]

    def stalled_seconds(self) -> float:
        """For how long the peer has accepted nothing of what is queued for it."""
        if self._waiting:
            # It may have made room since we last tried.
            self._writable()
        return self._loop.time() - self.waiting_since if self._waiting else 0.0

    def _wait(self) -> None:
        self._waiting = True
        self._was_interrupted = False
        self.waiting_since = self._loop.time()
        self._was_large = self._was_large or self.unsent_bytes > KEPT_BYTES
        try:
            self._loop.add_writer(self._fd, self._writable)
        except (OSError, ValueError, MemoryError) as error:
            self._waiting = False
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.lost_bytes = self.unsent_bytes
        self.close()
        self._failed(error)

    def _write_some(self) -> None:
        """Write as much as the peer takes of parts that are not joined."""
        parts = self._parts
        sent = os.writev(self._fd, parts[:MAX_WRITE_BUFFERS])
        self.unsent_bytes -= sent
        done = 0
        for part in parts:
            if sent < len(part):
                break
            sent -= len(part)
            done += 1
        del parts[:done]
        if sent:
            # A view, so that a large message which is written in pieces is not copied for each of them.
            parts[0] = memoryview(parts[0])[sent:]

    def _writable(self) -> None:
        before, since = self.unsent_bytes, self.waiting_since
        self._loop.remove_writer(self._fd)
        self._waiting = False
        self.flush()
        if self._parts:
            if self.unsent_bytes == before:
                self.waiting_since = since
            return
        if self._was_large:
            self._was_large = False
            trim_soon(self._loop)
        if self._on_drained is not None:
            self._on_drained()

    def close(self) -> None:
        """Close the descriptor; unsent data is dropped."""
        if self._closed:
            return
        self._closed = True
        self._parts.clear()
        self.unsent_bytes = 0
        if self._was_large:
            trim_soon(self._loop)
        if self._waiting:
            self._loop.remove_writer(self._fd)
        os.close(self._fd)
