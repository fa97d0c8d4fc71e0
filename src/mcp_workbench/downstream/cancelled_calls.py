"""Calls that were cancelled or timed out but that the server may still be working on.

Their clients hear no more of them. But the server may not have stopped, and what it asks next on a shared connection
may belong to such a call: then no other client may be asked.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from mcp_workbench.downstream.clients import ClientPeer, ForwardedExchange
from mcp_workbench.jsonrpc.pending import Exchange

# Servers do not answer cancelled requests, so we do not know when they have finished; most stop at once.
CANCELLED_SECONDS: Final = 60.0
# Beyond this, the oldest are dropped.
MOST_CANCELLED: Final = 1000


class CancelledCalls:
    """The cancelled calls of one connection."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        # By the id sent to the server: the client, and until when it counts.
        self._calls: dict[int, tuple[ClientPeer, float]] = {}

    def add(self, exchange: Exchange, now: float) -> None:
        """Record a cancelled call. Our own requests belong to no client and are ignored."""
        if not isinstance(exchange, ForwardedExchange):
            return
        if len(self._calls) >= MOST_CANCELLED:
            del self._calls[next(iter(self._calls))]
        self._calls[exchange.wire_id] = exchange.client, now + CANCELLED_SECONDS

    def answered(self, id: Raw | bytes) -> None:
        """The server has answered a cancelled call after all."""
        if self._calls and bytes(id).isdigit():
            self._calls.pop(int(bytes(id)), None)

    def is_anothers(self, client: ClientPeer | None, now: float) -> bool:
        """Whether any of them was a call of another client."""
        while self._calls:
            oldest, (_, until) = next(iter(self._calls.items()))
            if until > now:
                break
            del self._calls[oldest]
        return any(whose is not client for whose, _ in self._calls.values())
