"""The boundary between a connection and how its server is reached: a process, or an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mcp_workbench.engine.transport.link import AnswerReceiver, Link

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.connection import Connection


class ServerLink(Link, Protocol):
    """A link that ends what it is connected to."""

    async def stop(self) -> None:
        """End the link, and the server if it is a program. Returns within a bound of the transport."""

    def stderr_lines(self, count: int) -> list[str]:
        """The most informative lines of the server's stderr, if the transport has one."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes sent to the server it has certainly not read; 0 if unknown."""


class LinkOpener(Protocol):
    """How a connection reaches its server: starts a process, or opens an address."""

    async def __call__(self, connection: Connection, receiver: AnswerReceiver) -> ServerLink:
        """Raises `DownstreamError`."""
