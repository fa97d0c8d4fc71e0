"""The link to a client behind a front end: as over stdio, with occasional lines for the front end itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.transport.lines import LineFeed
from mcp_workbench.engine.transport.link import Receiver
from mcp_workbench.engine.transport.pipes import PipeWriter
from mcp_workbench.engine.transport.stdio import PAUSE_ABOVE, DescriptorLink
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.sharing.budgets import LARGE_MESSAGE, ClientBudgets
from mcp_workbench.sharing.front.line_protocol import CONTROL, HELD, PING_LINE, PONG

_PING: Final = PING_LINE.rstrip(b"\n")


class AnnouncingWriter(PipeWriter):
    """Sends a front end the state of its client before the message that changes it: the front end must know everything
    that the client knows. Called once for all messages that are sent together."""

    __slots__ = ("is_stuck", "unannounced")

    def __init__(self, batch: WriteBatch, fd: int, failed: Callable[[Exception], None]) -> None:
        super().__init__(batch, fd, failed)
        self.unannounced: Callable[[], list[bytes]] = list
        # The waiting data begins in the middle of a message, so nothing can be put in front of it.
        self.is_stuck = False

    def flush(self) -> None:
        if self._queued:
            lines = self.unannounced()
            if lines:
                written = b"".join(CONTROL + line + b"\n" for line in lines)
                self._parts.insert(0, written)
                self.unsent_bytes += len(written)
        super().flush()
        self.is_stuck = self._waiting


class FrontEndLink(DescriptorLink):
    """Messages of one client, through its front end."""

    writer_type = AnnouncingWriter

    def __init__(
        self, batch: WriteBatch, limit: int, read_fd: int, write_fd: int, budgets: ClientBudgets | None = None
    ) -> None:
        super().__init__(batch, limit, read_fd, write_fd)
        # The budgets of all clients together; None if there is only one client.
        self._budgets = budgets
        self._is_held = False
        # The beginning of a line that is meant for us.
        self._control = b""
        # Whether a large message from this client is in transit.
        self._is_arriving = False
        self._source = self._target = "the front end"
        # Returns what the front end has to know about the client and has not been sent yet.
        self.unannounced: Callable[[], list[bytes]] = list

    def start(self, receiver: Receiver) -> None:
        super().start(receiver)
        assert isinstance(self._writer, AnnouncingWriter)
        self._announcer = self._writer
        self._announcer.unannounced = self.unannounced
        if self._budgets is not None:
            self._writer.on_drained = self._on_drained
            self._budgets.add(self)

    def close(self) -> None:
        if self._budgets is not None:
            self._budgets.discard(self)
        super().close()

    def hold(self) -> None:
        """Stop reading for now: others have large messages in transit."""
        self._is_held = True
        self._reader.pause()

    def release(self) -> None:
        self._is_held = False
        self._on_drained()

    def report_held(self) -> None:
        """Report that we are alive: a front end whose data is not read considers us dead after a while."""
        self.send_control(HELD)

    def _on_drained(self) -> None:
        if not self._is_held and self._writer.unsent_bytes <= PAUSE_ABOVE:
            self._reader.resume()

    def _most_unsent(self) -> int:
        return super()._most_unsent() if self._budgets is None else self._budgets.most_unread(self, self._limit)

    def _feeder(self, lines: LineFeed) -> Callable[[bytes], asyncio.Future[None] | None]:
        budgets = self._budgets

        def feed(data: bytes) -> asyncio.Future[None] | None:
            if self._control or CONTROL in data:
                data = self._take_control_lines(data, is_line_begun=lines.unfinished_bytes > 0)
            reading = lines.feed(data)
            if budgets is not None and (self._is_arriving or data[-1:] != b"\n"):
                unfinished, was_arriving = lines.unfinished_bytes, self._is_arriving
                self._is_arriving = unfinished > LARGE_MESSAGE
                if self._is_arriving or was_arriving:
                    budgets.on_arriving(self, unfinished)
            return reading

        return feed

    def _take_control_lines(self, data: bytes, *, is_line_begun: bool) -> bytes:
        """Handle the lines that are meant for us. Returns the data without them."""
        *lines, unfinished = (self._control + data).split(b"\n")
        self._control = b""
        kept = []
        for line in lines:
            if line == _PING and not is_line_begun:
                self.send_control(PONG)
            else:
                kept.append(line + b"\n")
            is_line_begun = False
        if unfinished and not is_line_begun and _PING.startswith(unfinished):
            # The rest will follow.
            self._control = unfinished
        else:
            kept.append(unfinished)
        return b"".join(kept)

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        writer = self._announcer
        if writer.is_stuck:
            for line in self.unannounced():
                self.send_control(line)
        # As in `DescriptorLink`, inlined because it is on the path of every call.
        writer.write(*parts, b"\n")
        if writer.unsent_bytes > PAUSE_ABOVE:
            self._on_unread(parts)

    def send_control(self, line: bytes) -> None:
        """Send a line to the front end."""
        self._writer.write(CONTROL, line, b"\n")
