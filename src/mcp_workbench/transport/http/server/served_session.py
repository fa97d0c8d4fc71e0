"""The boundary to sessions, which understand messages: what the endpoint asks of one, and how it gets one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Raw

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.transport.http.message_summary import MessageSummary
from mcp_workbench.transport.link import Link, ReadReceiver, Receiver


class ServedSession(Receiver, ReadReceiver, Protocol):
    """One client, as the endpoint sees it."""

    # The address of its last request.
    peer: str

    @property
    def calls(self) -> Collection[bytes]:
        """The ids of the requests under way, as JSON."""

    def on_request(self, id: bytes, method: str, params: dict[str, Raw]) -> None:
        """A request that has been read already, with an id that may be one. The params are the session's from now
        on."""

    def end(self, error: WorkbenchError) -> None:
        """Everything under way gets its answer now, which is this error."""


class MakeSession(Protocol):
    """Makes the session for a client, or for one request of a modern client."""

    def __call__(self, link: Link, principal: str) -> ServedSession:
        """It is told of its end by `on_closed`, once."""


def hand_over(session: ServedSession, message: bytes, summary: MessageSummary) -> None:
    """Let a session have a message, and not read it a second time where that can be spared."""
    if summary.id is not None and summary.method and summary.params is not None:
        session.on_request(summary.id, summary.method, summary.params)
    elif summary.envelope is not None:
        session.on_read_message(message, summary.envelope)
    else:
        session.on_message(message)


def cancellation(id: bytes, reason: bytes) -> bytes:
    """What a session is told when the client of a request has gone."""
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b,"reason":"%b"}}' % (
        id,
        reason,
    )
