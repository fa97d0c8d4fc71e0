"""The boundary between code that moves messages and code that understands them."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Envelope, Malformed, Part
from mcp_workbench.errors import DownstreamError

# The reason with which a link closes if its server no longer knows our session. It is not a crash; and every request
# not answered or failed by then was certainly not accepted, so it may be sent again in a new session.
SESSION_LOST: Final = "the server no longer knows our session"


class Receiver(Protocol):
    """Receives what arrives on a link."""

    def on_message(self, line: bytes) -> None:
        """One message arrived, as it was written."""

    def on_oversized(self, remains: Oversized) -> None:
        """A message was longer than the limit and has been dropped."""

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        """The request with this id will not be answered, although the link stays open."""

    def on_closed(self, reason: str) -> None:
        """The link is closed; nothing more will arrive. Called once."""


@runtime_checkable
class ReadReceiver(Protocol):
    """A receiver that accepts large messages already parsed."""

    def on_read_message(self, line: bytes, message: Envelope | Malformed) -> None:
        """One message arrived, with its envelope or why it cannot be parsed."""


@runtime_checkable
class ExaminingReceiver(Protocol):
    """A receiver that looks through every message."""

    def examine(self, line: bytes) -> None:
        """A large message will arrive: the next one, as this very object. Called in a thread."""


class AnswerReceiver(Receiver, Protocol):
    """A receiver that accepts answers already parsed by the link, so that none is parsed twice."""

    def on_related_message(self, line: bytes, about: bytes) -> None:
        """A message that is not an answer arrived on the stream of our request with the id `about`."""

    def on_answer(self, line: bytes, message: Envelope) -> None:
        """An answer arrived; `line` is how it was written."""

    def on_read_message(self, line: bytes, message: Envelope | Malformed, about: bytes | None = None) -> None:
        """A large message that is not an answer to us arrived, with its envelope or why it cannot be parsed. For
        `about` see above."""


class Link(Protocol):
    """A connection to a peer that carries messages."""

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        """Send one message, given in parts. Never blocks, never raises: a link that has failed notifies its receiver.

        `about` is the id of the peer's request that the message belongs to, unless it is the answer itself: over HTTP
        such messages are sent on the stream of that request.

        Parts let a large payload go from the buffer it was read into to the descriptor without being copied.
        """

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not been written to the peer yet."""


@runtime_checkable
class UrlLink(Protocol):
    """A link to a server at an address."""

    @property
    def is_sse(self) -> bool:
        """Whether the server turned out to use the older HTTP+SSE transport."""


@runtime_checkable
class CallLink(Protocol):
    """A link that needs details of a tool call, which are passed so that it need not parse the message."""

    def send_call(self, message: bytes, id: int, tool: str, version: str | None) -> None:
        """Send a `tools/call`. `version` is the revision in its `_meta`; None in the legacy era."""
