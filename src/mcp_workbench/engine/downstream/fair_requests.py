"""Requests in progress on a connection that several clients share, in an order that is fair to each of them.

A server processes requests in its own order, usually that of arrival. What has been sent cannot be taken back, so a
client that sends ten thousand requests would put all of them in front of the next request of every other client. Here
each client has a share of the requests in progress; those beyond it wait with us, and are sent when one of the same
client's requests has ended. A client within its share never waits.

Owns how many requests each client has in progress and what waits. Knows nothing about what the requests are.
Connections of one client have a plain `PendingRequests` and pay nothing for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw, Struct

from mcp_workbench.engine.downstream.clients import ForwardedExchange
from mcp_workbench.engine.downstream.sharing import SHARED
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.jsonrpc.pending import Exchange, PendingRequests
from mcp_workbench.engine.transport.backlog import fits, refusal
from mcp_workbench.errors import DownstreamTimeout

# Client requests in progress on one connection, divided among the clients that have any there. Fewer are enough to keep
# a server busy that processes several at once; a server that processes one at a time delays a new client by as many.
MAX_REQUESTS_IN_PROGRESS: Final = 64
# What a client may have in progress however many clients there are: agents call a handful of tools concurrently.
MIN_CLIENT_REQUESTS: Final = 8


class WaitingRequest(Struct, eq=False):
    """An encoded request, which is sent when its client's turn comes."""

    exchange: ForwardedExchange
    parts: tuple[Part, ...]
    size: int
    method: bytes
    item: str


class FairRequests(PendingRequests):
    """The table of requests in progress, and those that wait for their turn."""

    __slots__ = ("_client_of", "_due", "_is_sending", "_send", "_under_way", "_waiting", "_waiting_bytes")

    def __init__(self, send: Callable[[WaitingRequest], None]) -> None:
        super().__init__()
        self._send = send
        # How many requests each client with a session has in progress, and the client of each request.
        self._under_way: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        # By client, then by id; both in the order of arrival.
        self._waiting: dict[int, dict[int, WaitingRequest]] = {}
        self._waiting_bytes = 0
        # Clients whose turn may have come. A request may fail as soon as it is sent and make room for the next, so they
        # are served in a loop rather than by recursion.
        self._due: dict[int, None] = {}
        self._is_sending = False

    # ── what goes out ──

    def admits(self, exchange: ForwardedExchange) -> bool:
        """Whether this request of a client with a session may be sent now; if so, it counts as in progress."""
        # On the path of every call: `_has_share` and `_count` inlined.
        client = exchange.call.caller.client
        count = self._under_way.get(client, 0)
        if count >= MIN_CLIENT_REQUESTS and (
            client in self._waiting or count >= MAX_REQUESTS_IN_PROGRESS // len(self._under_way)
        ):
            return False
        self._under_way[client] = count + 1
        self._client_of[exchange.wire_id] = client
        return True

    def hold_back(self, exchange: ForwardedExchange, parts: tuple[Part, ...], method: bytes, item: str) -> None:
        """Queue a request that was not admitted until earlier ones of its client have ended."""
        size = sum(map(len, parts))
        if not fits(self._waiting_bytes + size, size):
            exchange.on_failure(refusal(self._waiting_bytes, size))
            return
        waiting = self._waiting.setdefault(exchange.call.caller.client, {})
        waiting[exchange.wire_id] = WaitingRequest(exchange, parts, size, method, item)
        self._waiting_bytes += size

    def _has_share(self, client: int) -> bool:
        under_way = self._under_way.get(client, 0)
        return under_way < MIN_CLIENT_REQUESTS or under_way < MAX_REQUESTS_IN_PROGRESS // len(self._under_way)

    def _count(self, client: int, exchange: ForwardedExchange) -> None:
        self._under_way[client] = self._under_way.get(client, 0) + 1
        self._client_of[exchange.wire_id] = client

    def _release(self, exchange: Exchange) -> None:
        client = self._client_of.pop(exchange.wire_id, SHARED)
        if client == SHARED:
            return
        left = self._under_way[client] - 1
        if left:
            self._under_way[client] = left
        else:
            del self._under_way[client]
        if self._waiting:
            # With one client fewer, the share of all others has grown.
            self._due.update(dict.fromkeys([client] if left else self._waiting))
            if not self._is_sending:
                self._send_due()

    def _send_due(self) -> None:
        self._is_sending = True
        try:
            while self._due:
                client = next(iter(self._due))
                del self._due[client]
                self._send_waiting_of(client)
        finally:
            self._is_sending = False

    def _send_waiting_of(self, client: int) -> None:
        waiting = self._waiting.get(client)
        while waiting and self._has_share(client):
            request = waiting.pop(next(iter(waiting)))
            self._waiting_bytes -= request.size
            if not waiting:
                self._waiting.pop(client, None)
            self._count(client, request.exchange)
            self._send(request)

    # ── what waits ──

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waiting(self) -> list[ForwardedExchange]:
        """What has not been sent."""
        return [each.exchange for waiting in self._waiting.values() for each in waiting.values()]

    def withdraw(self, id: int) -> bool:
        """Remove a request that has not been sent; False if it has been, or has ended."""
        for client, waiting in self._waiting.items():
            request = waiting.pop(id, None)
            if request is not None:
                self._waiting_bytes -= request.size
                if not waiting:
                    del self._waiting[client]
                return True
        return False

    def take_waiting(self) -> list[ForwardedExchange]:
        """Remove and return everything that has not been sent."""
        found = self.waiting()
        # Clear each queue too, because `_send_waiting_of` may be iterating over one.
        for waiting in self._waiting.values():
            waiting.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        return found

    def fail_late(self, now: float) -> None:
        """Fail requests that have not been sent and whose deadline has passed."""
        for exchange in self.waiting():
            if exchange.deadline <= now and self.withdraw(exchange.wire_id):
                exchange.on_failure(_never_sent(exchange.timeout))

    # ── requests in progress (`PendingRequests`) ──

    def take(self, id: Raw | bytes) -> Exchange | None:
        try:
            found = self.by_id.pop(int(bytes(id)), None)
        except ValueError:
            found = None
        if found is None:
            self.unmatched += 1
        elif self._client_of:
            self._release(found)
        return found

    def remove(self, exchange: Exchange) -> bool:
        is_found = super().remove(exchange)
        if is_found:
            self._release(exchange)
        return is_found

    def postpone(self, seconds: float) -> None:
        super().postpone(seconds)
        for waiting in self._waiting.values():
            for request in waiting.values():
                request.exchange.deadline += seconds
                request.exchange.latest += seconds

    def expired(self, now: float) -> list[Exchange]:
        late = super().expired(now)
        for exchange in late:
            self._release(exchange)
        return late

    def drain(self) -> list[Exchange]:
        waiting = self.take_waiting()
        everything = [*super().drain(), *waiting]
        self._under_way.clear()
        self._client_of.clear()
        return everything


def _never_sent(seconds: float) -> DownstreamTimeout:
    """The error for a request that waited for its turn until its deadline."""
    return DownstreamTimeout(
        f"the request was not sent: earlier requests of this client kept the server busy for {seconds:g} s",
        hint="send fewer requests to this server at once, or raise its `timeout`",
    )
