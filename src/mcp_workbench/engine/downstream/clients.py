"""The clients of a connection: which use it, their calls in progress, and which of them its server can ask.

Owns who uses the connection, which decides whether a question that belongs to no call can be put to a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from mcp_workbench.engine.downstream.sharing import SHARED, Caller
from mcp_workbench.engine.jsonrpc.pending import REMIND_INTERVAL, Exchange
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    # Traffic owns clients, which respond through it; only the type is needed here.
    from mcp_workbench.engine.downstream.traffic import Traffic


class ClientPeer(Protocol):
    """The receiver of a server's requests and notifications: a call in progress, or a client."""

    caller: Caller

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """A request from the server, to be answered through `traffic.answer`. False if it cannot be answered here."""

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        """The server cancelled one of its own requests."""

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """A notification from the server that belongs to no single call."""


class ForwardedCall(ClientPeer, Protocol):
    """The part of a client's request that this package needs. Read here, never modified."""

    @property
    def client(self) -> ClientPeer:
        """The client that sent the request."""

    @property
    def progress_token(self) -> Raw | None:
        """The client's token for progress notifications, if it wants any."""

    @property
    def log_level(self) -> str | None:
        """The log level that the client set for this request, if any."""

    def can_be_asked(self, method: str) -> bool:
        """Whether a question of the server can belong to this request."""

    def note_question(self, is_open: bool) -> None:
        """A question to its user is open from now on, or one of them is not any more."""

    def send_again(self) -> None:
        """The server certainly did not accept the request: send it again when the server is back."""

    def on_result(self, result: Raw) -> None: ...

    def on_error(self, error: Raw) -> None: ...

    def on_failure(self, error: WorkbenchError) -> None:
        """There will be no response."""

    def on_progress(self, params: Raw) -> None:
        """The server reported progress."""

    def keep_waiting(self) -> None:
        """The server has sent nothing about it for a while."""


class ForwardedExchange(Exchange):
    """One sending of a client's request. Responses, questions and notifications of the server go to the call."""

    call: ForwardedCall

    @property
    def client(self) -> ClientPeer:
        """The client that sent the request. It may change if the client reconnects."""
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
        # Progress of the server moves the deadline, from which the time since the last sign of life follows.
        if self.call.progress_token is not None and now - (self.deadline - self.timeout) >= REMIND_INTERVAL:
            self.call.keep_waiting()


class ConnectionClients:
    """The clients of one connection. Those without a session appear with each request and never disconnect."""

    __slots__ = (
        "_holders",
        "_passing_are_many",
        "_sessions",
        "had_others",
        "holder",
        "last",
        "passing",
        "passing_hold",
        "reserved_for",
        "untold",
    )

    def __init__(self) -> None:
        # An insertion-ordered set.
        self._sessions: dict[ClientPeer, None] = {}
        # The client without a session that the server is started for, if no other client may use it meanwhile.
        self.reserved_for: ClientPeer | None = None
        # The client with a session that used the connection last.
        self.last: ClientPeer | None = None
        # The client without a session that used it last.
        self.passing: ClientPeer | None = None
        self._passing_are_many = False
        # Whether a client has left: the server may still work on what it began.
        self.had_others = False
        # The clients with a session that have opened or used the server; it keeps running for them.
        self._holders: dict[ClientPeer, None] = {}
        # Whether clients without a session have.
        self.passing_hold = False
        # The client that used the server last, unless another has joined since.
        self.holder: ClientPeer | None = None
        # Those for whom the server was stopped although they had it open, and who have not been told; None stands for
        # the clients without a session.
        self.untold: dict[ClientPeer | None, None] = {}

    def hold(self, client: ClientPeer, number: int) -> None:
        """This client has opened or uses the server. `number` is that of its caller: a connection that was made for a
        single call (negative) is not used by the next one."""
        if number == SHARED and client not in self._sessions:
            # A request without a session, as nearly all are over HTTP: what `join` does about it.
            if client is not self.passing:
                self._passing_are_many = self.passing is not None
                self.passing = client
            self.holder = client
            self.passing_hold = True
            return
        self.join(client, number > SHARED)
        self.holder = client
        if client in self._sessions:
            self._holders[client] = None

    def adopt(self, others: ConnectionClients) -> None:
        """The clients that have the server open over another connection use this one from now on."""
        self._sessions.update(others._holders)
        self._holders.update(others._holders)
        self.passing_hold = self.passing_hold or others.passing_hold

    @property
    def is_held(self) -> bool:
        """Whether a connected client with a session has opened or used the server."""
        return bool(self._holders)

    def lose(self, *, passing: bool) -> None:
        """The server is stopped although it is held: tell those who hold it, and clients without a session if
        `passing`."""
        for client in (*self._holders, *((None,) if passing else ())):
            self.untold[client] = None

    def take_loss(self, client: ClientPeer) -> bool:
        """Whether this client has to be told that the server was stopped. It is told once."""
        key = client if client in self._sessions else None
        return key in self.untold and self.untold.pop(key) is None

    def join(self, client: ClientPeer, has_session: bool) -> None:
        """This client uses the connection, if only to list what the server offers."""
        self.holder = None
        if has_session or client in self._sessions:
            self.last = client
            self._sessions[client] = None
            if client is self.passing:
                # It sent requests before its handshake: still the same client.
                self.passing = None
        elif client is not self.passing:
            self._passing_are_many = self.passing is not None
            self.passing = client

    def leave(self, client: ClientPeer) -> bool:
        """Remove a client. Returns whether it had the server open."""
        if client in self._sessions:
            del self._sessions[client]
            self.had_others = True
        self.untold.pop(client, None)
        if self.holder is client:
            self.holder = None
        if self.last is client:
            self.last = next(reversed(self._sessions), None)
        return self._holders.pop(client, self) is None

    def only(self) -> ClientPeer | None:
        """The only client; None if there are, or may be, several."""
        found = [*self._sessions, *([] if self.passing is None else [self.passing])]
        return found[0] if len(found) == 1 and not self._passing_are_many else None

    def alone(self) -> ClientPeer | None:
        """The only client, if no other has used the connection since the server started."""
        return None if self.had_others else self.only()

    def sessions(self) -> list[ClientPeer]:
        """The clients with a session, in the order in which they connected."""
        return list(self._sessions)

    def first(self) -> ClientPeer | None:
        """The client with a session that connected first."""
        return next(iter(self._sessions), None)

    def __len__(self) -> int:
        return len(self._sessions) + (self.passing is not None) + self._passing_are_many
