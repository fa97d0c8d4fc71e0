"""The boundary to sessions, which understand messages: what the endpoint needs of one, and how it gets one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Raw

from mcp_workbench.engine.transport.http.message_summary import MessageSummary
from mcp_workbench.engine.transport.link import Link, ReadReceiver, Receiver
from mcp_workbench.errors import WorkbenchError


class ServedSession(Receiver, ReadReceiver, Protocol):
    """One client, as seen by the endpoint."""

    # The address of its last request, and what authentication proved with it besides the principal.
    peer: str
    identity: object
    # Its header `traceparent`, where calls are traced.
    trace_parent: str

    @property
    def calls(self) -> Collection[bytes]:
        """The ids of the requests in progress, as JSON."""

    def on_request(self, id: bytes, method: str, params: dict[str, Raw]) -> None:
        """Handle a request that has been parsed and whose id is valid. The session owns `params` from now on."""

    def end(self, error: WorkbenchError) -> None:
        """Answer everything in progress with this error."""


class MakeSession(Protocol):
    """Makes the session for a client, or for one request of a modern client."""

    def __call__(self, link: Link, principal: str) -> ServedSession:
        """Make a session. Its end is reported through `on_closed`, once."""


class SessionUnknowable(Exception):
    """Another instance may have the session, and that cannot be found out now."""


class SessionKeeper(Protocol):
    """Leaves legacy sessions for other instances, and takes over theirs."""

    def keep(self, id: str, session: ServedSession) -> None:
        """The session may have changed. Called with every answer."""

    def drop(self, id: str, principal: str) -> None:
        """The session has ended."""

    def release(self, id: str) -> None:
        """The session ends here, and other instances may continue it."""

    async def find(self, id: str, principal: str, *, is_here: bool) -> SavedSession | None:
        """The session that another instance has begun, or began here before; None if there is none. `is_here`: it is
        served here, so that nobody has to wait for long. Raises `SessionUnknowable`."""


class SavedSession(Protocol):
    """A session of another instance."""

    # The name of the revision that it negotiated.
    revision: str
    # Whether it was last written here.
    is_own: bool

    def resume(self, link: Link) -> ServedSession:
        """Continue it on this link."""


def hand_over(session: ServedSession, message: bytes, summary: MessageSummary) -> None:
    """Hand a message to a session, without parsing it a second time if possible."""
    if summary.id is not None and summary.method and summary.params is not None:
        session.on_request(summary.id, summary.method, summary.params)
    elif summary.envelope is not None:
        session.on_read_message(message, summary.envelope)
    else:
        session.on_message(message)


def cancellation(id: bytes, reason: bytes) -> bytes:
    """The cancellation that a session gets when the client of a request has disconnected."""
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b,"reason":"%b"}}' % (
        id,
        reason,
    )
