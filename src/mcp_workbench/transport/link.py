"""The boundary between those who move messages and those who understand them."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from mcp_workbench.errors import DownstreamError
from mcp_workbench.jsonrpc.framing import Oversized
from mcp_workbench.jsonrpc.messages import Envelope, Malformed, Part

# With this reason a link ends whose server does not know our session any more. Nobody crashed; and every request that
# has not been answered or failed by then was certainly not accepted, so it may be sent again in a new session.
SESSION_LOST: Final = "the server no longer knows our session"


class Receiver(Protocol):
    """Whoever is told what arrives on a link."""

    def on_message(self, line: bytes) -> None:
        """One message arrived, as it was written."""

    def on_oversized(self, remains: Oversized) -> None:
        """A message was longer than the limit and has been dropped."""

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        """The request with this id got no answer and will get none, though the link as a whole lives on."""

    def on_closed(self, reason: str) -> None:
        """The link is gone; nothing more will arrive. Called once."""


@runtime_checkable
class ReadReceiver(Protocol):
    """A receiver that takes messages which have been read already, where that takes long."""

    def on_read_message(self, line: bytes, message: Envelope | Malformed) -> None:
        """One message arrived; what reading it found, or why it cannot be read."""


class AnswerReceiver(Receiver, Protocol):
    """A receiver that takes answers which the link has read already: none is read twice."""

    def on_related_message(self, line: bytes, about: bytes) -> None:
        """A message that is no answer arrived on the stream of our request with the id `about`."""

    def on_answer(self, line: bytes, message: Envelope) -> None:
        """An answer arrived; `line` is how it was written."""

    def on_read_message(self, line: bytes, message: Envelope | Malformed, about: bytes | None = None) -> None:
        """Something large arrived that is no answer to a request of ours; what reading it found, or why it cannot be
        read. `about` is as above."""


class Link(Protocol):
    """One message-wise connection to a peer."""

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        """Send one message, given in parts. Never blocks, never raises: a link that has failed tells its receiver.

        `about` is the id of the peer's request that the message belongs to, where it is not the answer itself: over
        HTTP such messages travel on the stream of that request.

        Parts let a large payload travel from the buffer it was read into to the descriptor without being copied.
        """

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken yet."""


@runtime_checkable
class UrlLink(Protocol):
    """A link to a server at an address."""

    @property
    def is_sse(self) -> bool:
        """Whether the server turned out to speak the older HTTP+SSE transport."""


@runtime_checkable
class CallLink(Protocol):
    """A link that does more with a tool call than to carry it, and is told what it would have to read out of it."""

    def send_call(self, message: bytes, id: int, tool: str, version: str | None) -> None:
        """Send a `tools/call`. `version` is the revision that it is stamped with; None in the legacy era."""
