"""Copies bytes between the client and the workbench until one of them disconnects.

Owns the loop, and what is known about the client in case the workbench dies: which requests are in progress, and the
state with which another workbench takes the client over. Does not know how a workbench is found.
"""

from __future__ import annotations

import _socket
import os
import select
from time import monotonic

from mcp_workbench.sharing.front.handing_over import Handover
from mcp_workbench.sharing.front.line_protocol import (
    BYE,
    COME_AGAIN,
    CONTROL,
    LASTING,
    NOTE,
    PING_LINE,
    RESUME,
    SERVE_ALONE,
)
from mcp_workbench.sharing.front.tracking import MAX_UNEXAMINED_BYTES, Tracking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# If requests are in progress and nothing has arrived for this long, the workbench is sent a ping, and has as long again
# to answer. It answers within milliseconds, whatever its servers do.
SILENCE_TIMEOUT: Final = 10.0
# How long the workbench may take for its last answers after the client has disconnected: a little more than its own
# limit.
LAST_ANSWERS_TIMEOUT: Final = 5.0
# How long a client may take to finish a line that has become useless, before this process serves it alone. It is in the
# middle of writing it.
REST_OF_LINE_TIMEOUT: Final = 5.0
# How the copying ended.
CLIENT_GONE: Final = "the client is gone"
DIED: Final = "the shared workbench died"
HANGS: Final = "the shared workbench does not answer"
STOPPED: Final = "the shared workbench was stopped"
RESTARTS: Final = "the shared workbench restarts"
GOODBYES: Final = {SERVE_ALONE: STOPPED, COME_AGAIN: RESTARTS}
# Copied data is examined when this many pieces have accumulated, or when there is nothing else to do.
MAX_UNEXAMINED_PIECES: Final = 64
_IN: Final = select.POLLIN
_OUT: Final = select.POLLOUT
_FAILED_ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"%b; this request was under way, and whether it was '
    b'carried out is not known. It is not repeated; new requests are served"}}\n'
)
_NOT_AWAITED: Final = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b,"reason":"%b"}}\n'
# As in `engine.transport.pipes`: reads grow while the peer keeps them full.
SMALL_READ: Final = 64 * 1024
LARGE_READ: Final = 256 * 1024
# An unfinished line is held back up to this length, so that a peer that dies in the middle of it leaves no partial
# message. Longer ones are passed on as they arrive: they need not fit into memory.
MAX_HELD_LINE_BYTES: Final = LARGE_READ


# One direction of the copying: from one descriptor to another, in whole lines if they are short.
# Owns the data in between, which is bounded: while some waits, nothing more is read. Does not know what is at either
# end.
class Lane:
    """Bytes from `source` to `target`. Both may change when a connection is replaced."""

    __slots__ = (
        "_size",
        "_whole",
        "begun",
        "held",
        "is_mid_line",
        "read_ahead",
        "source",
        "target",
        "waiting",
        "was_mid_line",
    )

    def __init__(self, source: int, target: int, whole: bytes | None = None) -> None:
        """Lines that start with `whole` are held back until complete, however long: the source can be trusted."""
        self.source = source
        self.target = target
        self._whole = whole
        # The beginning of an unfinished line, of which nothing has been written.
        self.held = b""
        # The piece being written, from its beginning, if it did not fit, and how much of it was written.
        self.waiting = b""
        self.begun = 0
        # Whether the target has seen the beginning of an unfinished line.
        self.is_mid_line = False
        # The same before the last piece: whether that piece starts in the middle of a line.
        self.was_mid_line = False
        # Data already read from the source; the next `read` returns it.
        self.read_ahead: bytes | None = None
        self._size = SMALL_READ

    def read(self) -> bytes | None:
        """Return the data that may be passed on; None at the end. Raises `OSError`."""
        data, self.read_ahead = self.read_ahead, None
        if data is None:
            data = os.read(self.source, self._size)
        if not data:
            return None
        self.was_mid_line = self.is_mid_line
        self._size = LARGE_READ if len(data) >= SMALL_READ else SMALL_READ
        if data[-1:] == b"\n" and not self.held:
            self.is_mid_line = False
            return data
        return self._cut(data)

    def _cut(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        if end:
            ready, self.held = self.held + data[:end], data[end:]
            self.is_mid_line = False
        else:
            ready, self.held = b"", self.held + data
        if self.is_mid_line or (len(self.held) > MAX_HELD_LINE_BYTES and self.held[:1] != self._whole):
            ready, self.held = ready + self.held, b""
            self.is_mid_line = True
        return ready

    def write(self, data: bytes) -> bool:
        """Write what `read` returned; False if some of it has to wait for the target. Raises `OSError`."""
        try:
            written = os.write(self.target, data)
        except BlockingIOError:
            written = 0
        if written == len(data):
            return True
        self.keep(data, written)
        return False

    def keep(self, data: bytes, written: int) -> None:
        """Keep what could not be written, to wait for the target."""
        self.waiting, self.begun = data, written

    def write_waiting(self) -> bool:
        """Continue writing. Returns whether nothing waits any longer. Raises `OSError`."""
        try:
            self.begun += os.write(self.target, memoryview(self.waiting)[self.begun :])
        except BlockingIOError:
            return False
        if self.begun < len(self.waiting):
            return False
        self.waiting, self.begun = b"", 0
        return True


class Copying:
    """The client on its two descriptors, and the current workbench."""

    def __init__(self, client_in: int = 0, client_out: int = 1) -> None:
        self.tracking = Tracking()
        # The state with which another workbench takes this client over; empty until there is any.
        self.resume = b""
        self.is_client_done = False
        self._down = Lane(client_in, -1)
        self._up = Lane(-1, client_out, CONTROL)
        self._poll = select.poll()
        self._polled: dict[int, int] = {}
        # The workbench reads no more; what it wrote before must still be read.
        self._is_write_closed = False
        self._is_pinged = False
        # Skip the rest of a line whose beginning was lost with a workbench.
        self._skips_line = False
        # Why that line is useless.
        self._lost_to = DIED
        # What to send to the client between two lines of the workbench.
        self._pending_errors = b""
        # When the workbench last showed that it is alive, or nothing was expected of it.
        self._last_seen = 0.0
        self._goodbye: str | None = None
        # Readable after a signal: a wait is then restarted, and would not notice what the signal changed.
        self.signalled = -1
        self._was_blocking = os.get_blocking(client_out)

    def handover(self) -> Handover:
        """Return the client for the process that serves it next. Nothing is copied after this."""
        down, up = self._down, self._up
        if self._skips_line:
            down.waiting += self._read_past_line()
        return Handover(self.resume, down.waiting + down.held, up.waiting[up.begun :] + self._pending_errors)

    def _read_past_line(self) -> bytes:
        """Read to the end of the skipped line, which may have its id last. Returns what follows it."""
        self._poll.register(self._down.source, _IN)
        deadline = monotonic() + REST_OF_LINE_TIMEOUT
        try:
            while not self.is_client_done and self._poll.poll(max(0.0, deadline - monotonic()) * 1000):
                try:
                    data = self._down.read()
                except BlockingIOError:
                    continue
                if data is None:
                    break
                data = self._skip(data)
                if not self._skips_line:
                    return data
        except OSError:
            # The next to serve it will fail in the same way, and report it.
            pass
        finally:
            self._poll.unregister(self._down.source)
        self._fail_unfinished()
        return b""

    def begin_to_end(self) -> None:
        """Read no more from the client, but still deliver answers. Also called by signal handlers."""
        if not self.is_client_done:
            self.is_client_done = True
            self._close_our_half()

    def run(self, workbench: int) -> str:
        """Copy until one side disconnects. Returns how it ended. Closes the descriptor of the workbench."""
        down, up = self._down, self._up
        down.target = up.source = workbench
        self._goodbye, self._is_write_closed, self._is_pinged = None, False, False
        self._last_seen = monotonic()
        os.set_blocking(workbench, False)
        os.set_blocking(up.target, False)
        try:
            if down.waiting:
                self._on_workbench_writable()
            if self.is_client_done:
                self._close_our_half()
            return self._loop()
        finally:
            if self.signalled >= 0:
                self._forget_signals()
            for descriptor in list(self._polled):
                self._watch(descriptor, 0)
            down.target = up.source = -1
            os.close(workbench)
            os.set_blocking(up.target, self._was_blocking)

    def _loop(self) -> str:
        down, up, tracking = self._down, self._up, self.tracking
        client, workbench = down.source, up.source
        passed, wait = tracking.passed, self._poll.poll
        # What is polled while neither side has to wait.
        usual = {client: _IN, workbench: _IN}
        if self.signalled >= 0:
            self._poll.register(self.signalled, _IN)
        self._watch_what_matters()
        while True:
            if self.is_client_done:
                events = wait(LAST_ANSWERS_TIMEOUT * 1000)
                if not events:
                    return CLIENT_GONE
            elif self._polled == usual and self._is_between_lines:
                events = self._copy_whole_lines()
            elif passed or tracking.is_awaited:
                events = wait(max(0.0, self._last_seen + SILENCE_TIMEOUT - monotonic()) * 1000)
            else:
                events = wait()
                self._last_seen = monotonic()
            end = None
            for descriptor, event in events:
                if event == _IN:
                    if descriptor == client:
                        self._on_client_readable()
                    elif descriptor == workbench:
                        end = self._on_workbench_readable() or end
                    else:
                        os.read(descriptor, 64)
                elif descriptor == client and not event & _OUT:
                    self._on_client_readable()
                elif descriptor == workbench:
                    if event & _OUT:
                        self._on_workbench_writable()
                    if event & ~_OUT:
                        end = self._on_workbench_readable() or end
                else:
                    end = self._on_client_writable() or end
            if end is not None:
                return end
            # Also while the client keeps sending.
            if not self.is_client_done and monotonic() - self._last_seen >= SILENCE_TIMEOUT and not self._is_there():
                return HANGS
            if len(passed) > MAX_UNEXAMINED_PIECES:
                tracking.catch_up()
            self._watch_what_matters()

    @property
    def _is_between_lines(self) -> bool:
        """Whether everything read has been written, up to the end of a line, and neither side is about to
        disconnect."""
        down, up = self._down, self._up
        is_mid_line = down.is_mid_line or down.was_mid_line or up.is_mid_line or self._skips_line
        is_late = down.waiting or down.held or up.waiting or up.held or self._pending_errors or self._is_pinged
        return not (is_mid_line or is_late or self._is_write_closed or self._goodbye is not None)

    def _copy_whole_lines(self) -> list[tuple[int, int]]:
        """Copy while there are only whole messages that the receiver accepts at once. Returns the events that the
        general loop has to handle.

        This is the cost of a call: do as little as possible between two waits, and least of all before a write. The
        process that our write has just woken may have to wait for us.
        """
        down, up, tracking = self._down, self._up, self.tracking
        workbench, client_out = up.source, up.target
        passed = tracking.passed
        read, write, wait, now = os.read, os.write, self._poll.poll, monotonic
        left = (self._last_seen + SILENCE_TIMEOUT - now()) * 1000 if passed or tracking.is_awaited else None
        while (left is None or left > 0) and not self.is_client_done:
            events = wait(left)
            if left is None:
                self._last_seen = now()
            elif not events:
                break
            for descriptor, event in events:
                is_answer = descriptor == workbench
                if event != _IN or not (is_answer or descriptor == down.source):
                    return [(descriptor, event)]
                try:
                    data = read(descriptor, SMALL_READ)
                except OSError:
                    # It will fail again, or is the end of the stream.
                    return [(descriptor, event)]
                if data[-1:] != b"\n" or (is_answer and CONTROL in data):
                    (up if is_answer else down).read_ahead = data
                    return [(descriptor, event)]
                try:
                    written = write(client_out if is_answer else workbench, data)
                except OSError:
                    written = 0
                if is_answer:
                    passed.append((False, data))
                    self._last_seen = now()
                if written != len(data):
                    (up if is_answer else down).keep(data, written)
                    return []
                if not is_answer:
                    passed.append((True, data))
                if len(data) > MAX_UNEXAMINED_BYTES or len(passed) > MAX_UNEXAMINED_PIECES:
                    tracking.catch_up()
            left = (self._last_seen + SILENCE_TIMEOUT - now()) * 1000
        return []

    def _forget_signals(self) -> None:
        try:
            self._poll.unregister(self.signalled)
        except KeyError:
            pass

    # ── from the client to the workbench ──

    def _on_client_readable(self) -> None:
        down = self._down
        try:
            data = down.read()
        except BlockingIOError:
            return
        except OSError:
            data = None
        if data is None:
            # An unfinished last line counts as a message.
            if down.held:
                self._send(down.held)
                down.held = b""
            self.begin_to_end()
            return
        if self._skips_line:
            data = self._skip(data)
        if data:
            self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            if self._down.write(data):
                self.tracking.sent(data)
        except OSError:
            self._down.waiting, self._down.begun = data, 0
            self._is_write_closed = True

    def _on_workbench_writable(self) -> None:
        down = self._down
        data = down.waiting
        # It has read something, which made room.
        self._last_seen, self._is_pinged = monotonic(), False
        try:
            if down.write_waiting():
                self.tracking.sent(data)
                if self.is_client_done:
                    self._close_our_half()
                self._pause_before_the_end()
        except OSError:
            self._is_write_closed = True

    def _pause_before_the_end(self) -> None:
        """The workbench is about to end: what the client sends from now on is for the next one."""
        if self._goodbye is not None and not self._down.is_mid_line:
            self._close_our_half()

    def _close_our_half(self) -> None:
        """Close our half of the connection: the workbench finishes what is in progress, and closes the other half."""
        if self._down.target >= 0 and not self._down.waiting:
            half_close(self._down.target)

    # ── from the workbench to the client ──

    def _on_workbench_readable(self) -> str | None:
        up = self._up
        if up.waiting:
            # Its end is reported even if not polled for; what it wrote before has to wait.
            return None
        try:
            data = up.read()
        except BlockingIOError:
            return None
        except OSError:
            data = None
        if data is None:
            return CLIENT_GONE if self.is_client_done else self._goodbye or DIED
        self._last_seen, self._is_pinged = monotonic(), False
        if CONTROL in data:
            data = self._take_control_lines(data)
        if not data:
            return None
        try:
            up.write(data)
        except OSError:
            return CLIENT_GONE
        self.tracking.received(data)
        return None

    def _on_client_writable(self) -> str | None:
        try:
            self._up.write_waiting()
        except OSError:
            return CLIENT_GONE
        return None

    def _take_control_lines(self, data: bytes) -> bytes:
        """Handle the lines that are for us. Returns the data without them."""
        kept = []
        for line in _lines(data):
            if line[:1] != CONTROL:
                kept.append(line)
                continue
            verb, _, rest = line[1:-1].partition(b" ")
            if verb == RESUME:
                self.resume = rest
            elif verb == LASTING:
                self.tracking.lasting.add(rest)
            elif verb == BYE:
                self._goodbye = GOODBYES.get(line[1:-1], STOPPED)
                # It might not read what it is sent from now on.
                self._pause_before_the_end()
            elif verb == NOTE:
                try:
                    os.write(2, b"mcp-workbench: " + rest + b"\n")
                except OSError:
                    # stderr is no longer read.
                    pass
        return b"".join(kept)

    # ── after the workbench is gone ──

    def fail_requests(self, reason: str) -> None:
        """Fail all requests to the workbench, which is gone. What it was not sent yet waits for the next one."""
        down, up = self._down, self._up
        if down.waiting == PING_LINE:
            # It was only for that workbench.
            down.waiting, down.begun = b"", 0
        if down.waiting:
            # Of a partial write, whole lines may have been read.
            end = down.waiting.rfind(b"\n", 0, down.begun) + 1
            if down.waiting[down.begun : down.begun + 1] == b"\n":
                # All but the line break was written, and the last line of a connection counts as a message.
                end = down.begun + 1
            self.tracking.sent(down.waiting[:end])
            down.waiting, down.begun = down.waiting[end:], 0
            # What is left starts with a line that is sent whole to the next workbench, unless this one got its
            # beginning.
            loses_line = down.was_mid_line and not end
            down.was_mid_line = loses_line
        else:
            loses_line = down.is_mid_line
        failed, asked = self.tracking.clear()
        text = reason.encode()
        # End a line whose beginning the client has seen; it is useless, and its request fails below.
        messages = [b"\n"] if up.is_mid_line else []
        messages += [_FAILED_ANSWER % (id, text) for id in failed]
        messages += [_NOT_AWAITED % (id, text) for id in asked]
        up.held, up.is_mid_line = b"", False
        if loses_line and not self._skips_line:
            self._skips_line, self._lost_to = True, reason
            if down.waiting:
                down.waiting = self._skip(down.waiting)
        up.waiting += b"".join(messages) + self._pending_errors
        self._pending_errors = b""
        if up.waiting:
            os.set_blocking(up.target, False)
            self._on_client_writable()

    def _skip(self, data: bytes) -> bytes:
        """Leave out the rest of a line that has become useless."""
        end = data.find(b"\n")
        self.tracking.add_to_unfinished(data if end < 0 else data[:end])
        if end < 0:
            return b""
        self._skips_line = self._down.was_mid_line = False
        self._fail_unfinished()
        return data[end + 1 :]

    def _fail_unfinished(self) -> None:
        text = self._lost_to.encode()
        self._pending_errors += b"".join(_FAILED_ANSWER % (id, text) for id in self.tracking.take_unfinished())

    # ── waiting ──

    def _is_there(self) -> bool:
        """Ping the workbench after a silence, or conclude that it is dead."""
        down = self._down
        self._last_seen = monotonic()
        if self._is_pinged:
            # While the client does not read, neither do we.
            return bool(self._up.waiting)
        self.tracking.catch_up()
        if not self.tracking.is_awaited:
            return True
        # In the middle of a line we cannot ping, but a live workbench reads the rest of it, or reports that others go
        # first.
        if not self._up.waiting and (down.waiting or not down.is_mid_line):
            self._is_pinged = True
            if not down.waiting and self._goodbye is None:
                self._send(PING_LINE)
        return True

    def _watch_what_matters(self) -> None:
        down, up = self._down, self._up
        if self._pending_errors and not up.is_mid_line:
            up.waiting += self._pending_errors
            self._pending_errors = b""
        is_pausing = self._goodbye is not None and not down.is_mid_line
        self._watch(
            down.source, 0 if self.is_client_done or down.waiting or self._is_write_closed or is_pausing else _IN
        )
        wanted = 0 if up.waiting else _IN
        self._watch(up.source, wanted | _OUT if down.waiting and not self._is_write_closed else wanted)
        if up.target != down.source:
            self._watch(up.target, _OUT if up.waiting else 0)

    def _watch(self, descriptor: int, wanted: int) -> None:
        watched = self._polled.get(descriptor, 0)
        if watched == wanted:
            return
        if wanted:
            self._poll.register(descriptor, wanted)
            self._polled[descriptor] = wanted
        else:
            self._poll.unregister(descriptor)
            del self._polled[descriptor]


def half_close(descriptor: int) -> None:
    """Close our half of the connection; the other direction stays open."""
    connection = _socket.socket(fileno=descriptor)
    try:
        connection.shutdown(_socket.SHUT_WR)
    except OSError:
        pass
    finally:
        connection.detach()


def _lines(data: bytes) -> list[bytes]:
    """Return the lines with their ends; `splitlines` would also split at Unicode line breaks."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
