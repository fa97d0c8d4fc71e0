"""The link to a client behind a front end: as over stdio, and now and then a line for the front end itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from mcp_workbench.errors import DownstreamError
from mcp_workbench.jsonrpc.framing import Oversized
from mcp_workbench.shared.budgets import LARGE_MESSAGE, ClientBudgets
from mcp_workbench.transport.lines import LineFeed
from mcp_workbench.transport.link import Receiver
from mcp_workbench.transport.stdio import PAUSE_ABOVE, DescriptorLink
from mcp_workbench.transport.write_batch import WriteBatch

# Lines that start with this are no messages; no JSON text contains it.
CONTROL: Final = b"\x01"


class FrontEndLink(DescriptorLink):
    """Messages of one client, through its front end."""

    def __init__(
        self, batch: WriteBatch, limit: int, read_fd: int, write_fd: int, budgets: ClientBudgets | None = None
    ) -> None:
        super().__init__(batch, limit, read_fd, write_fd)
        # Of all clients together; None where there is one.
        self._budgets = budgets
        self._is_held = False
        self._source = self._target = "the front end"
        # Says what has become of the client since it was asked last; asked before each message.
        self.news: Callable[[], list[bytes]] = list

    def start(self, receiver: Receiver) -> None:
        super().start(_WithoutControl(receiver, self))
        if self._budgets is not None:
            self._writer.on_drained = self._on_drained
            self._budgets.add(self)

    def close(self) -> None:
        if self._budgets is not None:
            self._budgets.discard(self)
        super().close()

    def hold(self) -> None:
        """Read no further for now: others have large messages on their way."""
        self._is_held = True
        self._reader.pause()

    def release(self) -> None:
        """Read on."""
        self._is_held = False
        self._on_drained()

    def _on_drained(self) -> None:
        if not self._is_held and self._writer.unsent_bytes <= PAUSE_ABOVE:
            self._reader.resume()

    def _most_unsent(self) -> int:
        return super()._most_unsent() if self._budgets is None else self._budgets.most_unread(self, self._limit)

    def _feeder(self, lines: LineFeed) -> Callable[[bytes], asyncio.Future[None] | None]:
        budgets = self._budgets
        if budgets is None:
            return lines.feed

        def feed(data: bytes) -> asyncio.Future[None] | None:
            before = lines.unfinished_bytes
            reading = lines.feed(data)
            unfinished = lines.unfinished_bytes
            if before > LARGE_MESSAGE or unfinished > LARGE_MESSAGE:
                budgets.on_arriving(self, unfinished)
            return reading

        return feed

    def send(self, *parts: bytes | Raw | memoryview, about: bytes | None = None) -> None:
        # Before the message that tells the client: what the client knows of, the front end must know of, too.
        for line in self.news():
            self._writer.write(CONTROL, line, b"\n")
        super().send(*parts, about=about)

    def say(self, line: bytes) -> None:
        """A line for the front end."""
        self._writer.write(CONTROL, line, b"\n")


class _WithoutControl:
    """A receiver without the lines that are meant for us."""

    __slots__ = ("_link", "_receiver", "on_closed", "on_oversized", "on_request_failed")

    def __init__(self, receiver: Receiver, link: FrontEndLink) -> None:
        self._receiver = receiver
        self._link = link
        self.on_closed: Callable[[str], None] = receiver.on_closed
        self.on_oversized: Callable[[Oversized], None] = receiver.on_oversized
        self.on_request_failed: Callable[[bytes, DownstreamError], None] = receiver.on_request_failed

    def on_message(self, line: bytes) -> None:
        if line[:1] != CONTROL:
            self._receiver.on_message(line)
        elif line == b"\x01ping":
            self._link.say(b"pong")
