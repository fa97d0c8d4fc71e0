"""The link to a client behind a front end: as over stdio, and now and then a line for the front end itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw

from mcp_workbench.errors import DownstreamError
from mcp_workbench.jsonrpc.framing import Oversized
from mcp_workbench.transport.link import Receiver
from mcp_workbench.transport.stdio import DescriptorLink
from mcp_workbench.transport.write_batch import WriteBatch

# Lines that start with this are no messages; no JSON text contains it.
CONTROL: Final = b"\x01"


class FrontEndLink(DescriptorLink):
    """Messages of one client, through its front end."""

    def __init__(self, batch: WriteBatch, limit: int, read_fd: int, write_fd: int) -> None:
        super().__init__(batch, limit, read_fd, write_fd)
        self._source = self._target = "the front end"
        # Says what has become of the client since it was asked last; asked before each message.
        self.news: Callable[[], list[bytes]] = list

    def start(self, receiver: Receiver) -> None:
        super().start(_WithoutControl(receiver, self))

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
