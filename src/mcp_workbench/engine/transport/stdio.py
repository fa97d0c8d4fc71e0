"""The client's end: lines on two descriptors, which over stdio are our own stdin and stdout.

Owns the descriptors while we serve. Knows nothing about what messages mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Part, error_response, find_id
from mcp_workbench.engine.transport.lines import LineFeed
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.engine.transport.pipes import PipeReader, PipeWriter, describe, widen
from mcp_workbench.engine.transport.write_batch import WriteBatch

# Answers accumulate here if a client does not read. Beyond the first limit we stop reading its requests; beyond the
# second an answer is replaced by an error, and a client that reads nothing at all is considered dead.
PAUSE_ABOVE = 8 * 1024 * 1024
DROP_ABOVE = 512 * 1024 * 1024
# A live client reads something within milliseconds, unless it is stopped in a debugger.
CLIENT_READ_TIMEOUT: Final = 10.0
_MAX_LOGGED_HEAD: Final = 300


class DescriptorLink:
    """Messages from one descriptor, messages to another."""

    # The origin of the messages, for the audit.
    peer = "stdio"

    def __init__(self, batch: WriteBatch, limit: int, read_fd: int, write_fd: int) -> None:
        self._limit = limit
        self._lines: LineFeed | None = None
        self._batch = batch
        self._receiver: Receiver | None = None
        self._closed = False
        self._stall_timer: asyncio.TimerHandle | None = None
        # Why nothing more could be read, if not because the client is gone.
        self.failure: Exception | None = None
        # Whether the receiver has been notified that the client is gone.
        self._has_reported_end = False
        self._read_fd = read_fd
        self._write_fd = write_fd
        # What the two are called in reasons given to the receiver.
        self._source, self._target = "the connection", "the connection"

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._lines = LineFeed(self._limit, receiver, self._batch)
        self._writer = self._make_writer()
        self._reader = PipeReader(self._batch, self._read_fd, self._feeder(self._lines), self._ended)
        widen(self._write_fd)

    def _make_writer(self) -> PipeWriter:
        return PipeWriter(self._batch, self._write_fd, self._write_failed, self._on_drained)

    def _on_drained(self) -> None:
        """The client has read everything."""
        self._reader.resume()

    def _feeder(self, lines: LineFeed) -> Callable[[bytes], asyncio.Future[None] | None]:
        """The function that processes data that was read."""
        return lines.feed

    def _most_unsent(self) -> int:
        """How much may be queued for the client. Called only when it is a lot."""
        return DROP_ABOVE

    def send_bytes(self, data: bytes) -> None:
        """Send data that a previous owner of the connection had left to send."""
        self._writer.write(data)

    def feed(self, data: bytes) -> None:
        """Process data that a previous owner of the connection has read."""
        assert self._lines is not None
        handled = self._batch.run(self._lines.feed, data)
        if handled is not None:
            self._reader.wait_for(handled)

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        writer = self._writer
        writer.write_line(parts)
        if writer.unsent_bytes > PAUSE_ABOVE:
            self._on_unread(parts)

    def _on_unread(self, parts: tuple[Part, ...]) -> None:
        if not self._closed:
            self._reader.pause()
            if self._writer.unsent_bytes > self._most_unsent():
                self._make_it_fit(parts)

    @property
    def unsent_bytes(self) -> int:
        return self._writer.unsent_bytes

    def stop_reading(self) -> None:
        """Accept no more messages; answers are still sent."""
        self._reader.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        if self._receiver is None:
            # It was never started.
            self._give_back()
            os.close(self._read_fd)
            os.close(self._write_fd)
            return
        self._reader.close()
        # The last answers may have been queued in this very iteration of the loop.
        self._writer.flush()
        self._give_back()
        self._writer.close()

    def _give_back(self) -> None:
        """Restore the descriptors to their original state."""

    def _make_it_fit(self, parts: tuple[Part, ...]) -> None:
        """Too much is queued for the client: replace the newest answer by an error."""
        self._writer.take_back(len(parts) + 1)
        id = find_id(b"".join(parts)[:_MAX_LOGGED_HEAD])
        if id is not None:
            text = f"the client has {self._writer.unsent_bytes} bytes of responses left to read; this one does not fit"
            self._writer.write(error_response(id, INTERNAL_ERROR, text), b"\n")
        self.watch_stalled()

    def watch_stalled(self) -> None:
        """Watch for a client that reads nothing for a while, which is considered dead."""
        if self._stall_timer is None and not self._closed:
            self._stall_timer = asyncio.get_running_loop().call_later(CLIENT_READ_TIMEOUT, self._check_stalled)

    def _check_stalled(self) -> None:
        self._stall_timer = None
        if not self._closed and self._writer.stalled_seconds() >= CLIENT_READ_TIMEOUT:
            self._fail(f"the client has not read {self._writer.unsent_bytes} bytes of answers")
        elif not self._closed and self._writer.unsent_bytes > PAUSE_ABOVE:
            self._stall_timer = asyncio.get_running_loop().call_later(CLIENT_READ_TIMEOUT, self._check_stalled)

    def _ended(self, error: Exception | None) -> None:
        assert self._receiver is not None and self._lines is not None
        if error is not None:
            self.failure = error
            self._fail(f"{self._source} cannot be read: {describe(error)}")
            return
        self._lines.finish()
        self._fail(f"{self._source} was closed")

    def _write_failed(self, error: Exception) -> None:
        self._fail(f"{self._target} cannot be written: {describe(error)}")

    def _fail(self, reason: str) -> None:
        self._reader.close()
        assert self._receiver is not None
        if not self._has_reported_end:
            self._has_reported_end = True
            self._receiver.on_closed(reason)


class StdioLink(DescriptorLink):
    """Messages from stdin, messages to stdout.

    stdout belongs to the protocol: descriptor 1 is redirected to stderr while we serve, so that a stray `print` in any
    library cannot corrupt it.
    """

    def __init__(self, batch: WriteBatch, limit: int) -> None:
        super().__init__(batch, limit, os.dup(0), os.dup(1))
        self._source, self._target = "stdin", "stdout"
        self._was_blocking = os.get_blocking(1)
        os.dup2(2, 1)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):
            os.dup2(self._write_fd, 1)
            os.set_blocking(1, self._was_blocking)
