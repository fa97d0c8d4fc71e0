"""Who is in front of a connection: the clients that use it, their calls under way, and whom its server can ask.

Owns who uses the connection, which decides whether a question that belongs to no call can be put to anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from mcp_workbench.downstream.sharing import Caller
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.jsonrpc.pending import REMIND_INTERVAL, Exchange

if TYPE_CHECKING:
    # A traffic has clients, and they answer through it: only its name is needed here.
    from mcp_workbench.downstream.traffic import Traffic


class ClientPeer(Protocol):
    """Somebody in front of us whom a server can ask and tell things: a call under way, or a client as such."""

    caller: Caller

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """A request from the server, answered through `traffic.answer`. False when it cannot be answered here."""

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        """The server cancelled one of its own requests."""

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """A notification from the server that belongs to no single call."""


class ForwardedCall(ClientPeer, Protocol):
    """A client's request, as far as it concerns the server that it goes to. Read here, never written."""

    @property
    def client(self) -> ClientPeer:
        """Whose request it is."""

    @property
    def progress_token(self) -> Raw | None:
        """Under which token the client wants to be told of progress, where it does."""

    @property
    def log_level(self) -> str | None:
        """The least severe log messages that the client wants for this request, where it said so."""

    def can_be_asked(self, method: str) -> bool:
        """Whether a question of the server can belong to this request."""

    def send_again(self) -> None:
        """The server certainly did not accept it: send it once more, when the server is there again."""

    def on_result(self, result: Raw) -> None:
        """The server answered."""

    def on_error(self, error: Raw) -> None:
        """The server answered with a JSON-RPC error."""

    def on_failure(self, error: WorkbenchError) -> None:
        """No answer will come."""

    def on_progress(self, params: Raw) -> None:
        """The server reported progress on it."""

    def keep_waiting(self) -> None:
        """The server has sent nothing about it for a while."""


class ForwardedExchange(Exchange):
    """One sending of a client's request. What the server answers, asks and tells meanwhile goes to the call."""

    call: ForwardedCall

    @property
    def client(self) -> ClientPeer:
        """Whose request it is, which may change while its client is away."""
        return self.call.client

    def on_result(self, result: Raw) -> None:
        self.call.on_result(result)

    def on_error(self, error: Raw) -> None:
        self.call.on_error(error)

    def on_failure(self, error: WorkbenchError) -> None:
        self.call.on_failure(error)

    def on_progress(self, params: Raw) -> None:
        self.call.on_progress(params)

    def on_waiting(self, now: float) -> None:
        # The deadline is pushed out by what the server says.
        if self.call.progress_token is not None and now - (self.deadline - self.timeout) >= REMIND_INTERVAL:
            self.call.keep_waiting()


class ConnectionClients:
    """The clients of one connection. Those without a session appear with each request, and never disconnect."""

    __slots__ = ("_passing_are_many", "_sessions", "last", "passing", "reserved_for")

    def __init__(self) -> None:
        # An insertion-ordered set.
        self._sessions: dict[ClientPeer, None] = {}
        # The client without a session that the server is started for, where nobody else's call may come with it.
        self.reserved_for: ClientPeer | None = None
        # Of those with a session the one that used the connection last.
        self.last: ClientPeer | None = None
        # Of those without one the one that used it last.
        self.passing: ClientPeer | None = None
        self._passing_are_many = False

    def join(self, client: ClientPeer, has_session: bool) -> None:
        """This client uses the connection."""
        if has_session or client in self._sessions:
            self.last = client
            self._sessions[client] = None
            if client is self.passing:
                # It spoke before it shook hands: still one client.
                self.passing = None
        elif client is not self.passing:
            self._passing_are_many = self.passing is not None
            self.passing = client

    def leave(self, client: ClientPeer) -> None:
        """This client is gone."""
        self._sessions.pop(client, None)
        if self.last is client:
            self.last = next(reversed(self._sessions), None)

    def only(self) -> ClientPeer | None:
        """The one client that there is; None where there are several, or may be."""
        found = [*self._sessions, *([] if self.passing is None else [self.passing])]
        return found[0] if len(found) == 1 and not self._passing_are_many else None

    def sessions(self) -> list[ClientPeer]:
        """Those with a session, in the order in which they came."""
        return list(self._sessions)

    def first(self) -> ClientPeer | None:
        """Of those with a session the one that came first."""
        return next(iter(self._sessions), None)

    def __len__(self) -> int:
        return len(self._sessions) + (self.passing is not None) + self._passing_are_many
