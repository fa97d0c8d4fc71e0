"""Calls that were cancelled or timed out but that the server may still be working on.

Their clients hear no more of them. But the server may not have stopped, and what it asks next on a shared connection
may belong to such a call: then no other client may be asked.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from mcp_workbench.engine.downstream.clients import ClientPeer, ForwardedExchange
from mcp_workbench.engine.jsonrpc.pending import Exchange

# How long a server that works on nothing else may take to finish cancelled calls, before a connection that another
# client needs is replaced. Most stop at once, but servers do not answer cancelled requests, so we do not know.
CANCELLED_SECONDS: Final = 60.0
# Beyond this, any question counts as one of another client.
MOST_CANCELLED: Final = 1000


class CancelledCalls:
    """The cancelled calls of one link. They count until the server has answered them or the link has ended."""

    __slots__ = ("_are_many", "_calls", "_latest")

    def __init__(self) -> None:
        # By the id sent to the server.
        self._calls: dict[int, ClientPeer] = {}
        self._are_many = False
        self._latest = float("-inf")

    def add(self, exchange: Exchange, now: float) -> None:
        """Record a cancelled call. Our own requests belong to no client and are ignored."""
        if not isinstance(exchange, ForwardedExchange):
            return
        self._latest = now
        if len(self._calls) < MOST_CANCELLED:
            self._calls[exchange.wire_id] = exchange.client
        else:
            self._are_many = True

    def answered(self, id: Raw | bytes) -> None:
        """The server has answered a cancelled call after all."""
        if self._calls and bytes(id).isdigit():
            self._calls.pop(int(bytes(id)), None)

    def is_anothers(self, client: ClientPeer | None) -> bool:
        """Whether any of them was a call of another client."""
        return self._are_many or any(whose is not client for whose in self._calls.values())

    def are_old(self, now: float) -> bool:
        """Whether there are any, and the server has had enough time to finish them."""
        return bool(self._calls) and now - self._latest > CANCELLED_SECONDS
