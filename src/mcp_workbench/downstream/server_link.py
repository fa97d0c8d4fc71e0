"""The boundary between a connection and how its server is reached: a process, or an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mcp_workbench.transport.link import AnswerReceiver, Link

if TYPE_CHECKING:
    from mcp_workbench.downstream.connection import Connection


class ServerLink(Link, Protocol):
    """A link that ends what it is connected to."""

    async def stop(self) -> None:
        """End it. Bounded."""

    def stderr_lines(self, count: int) -> list[str]:
        """The lines that tell most of what the server wrote for people, where the transport carries such."""

    @property
    def unread_bytes(self) -> int:
        """What the server has certainly not read of what it was sent; 0 where that cannot be told."""


class LinkOpener(Protocol):
    """How a connection reaches its server: starts a process, or opens an address."""

    async def __call__(self, connection: Connection, receiver: AnswerReceiver) -> ServerLink:
        """Raises `DownstreamError`."""
