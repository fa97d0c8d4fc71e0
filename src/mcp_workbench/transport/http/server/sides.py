"""The boundary to those who understand messages: what the endpoint asks of a session, and how it gets one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from mcp_workbench.transport.link import Link, Receiver


class ServedSession(Receiver, Protocol):
    """One client, as the endpoint sees it."""

    @property
    def calls(self) -> Collection[bytes]:
        """The ids of the requests under way, as JSON."""


class MakeSession(Protocol):
    """Makes the session for a client, or for one request of a modern client."""

    def __call__(self, link: Link, principal: str, closed: Callable[[str], None]) -> ServedSession:
        """`closed` is for the session to end itself; it is told of the end by `on_closed`, once, either way."""


def cancellation(id: bytes, reason: bytes) -> bytes:
    """What a session is told when the client of a request has gone."""
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b,"reason":"%b"}}' % (
        id,
        reason,
    )
