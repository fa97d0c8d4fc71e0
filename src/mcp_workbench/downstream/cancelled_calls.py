"""Calls that were cancelled or timed out, and that the server may still be working on.

Whoever cancels a call, or waits for it no longer, is told nothing more of it. But the server need not have stopped, and
what it asks next on a line that clients share may belong to that call: then it is nobody else's question.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from mcp_workbench.downstream.clients import ClientPeer, ForwardedExchange
from mcp_workbench.jsonrpc.pending import Exchange

# Servers do not answer what was cancelled, so nothing says when they are done with it; most stop at once.
CANCELLED_SECONDS: Final = 60.0
# The oldest is forgotten first.
MOST_CANCELLED: Final = 1000


class CancelledCalls:
    """Those of one connection."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        # By the id that went to the server: whose it was, and until when it counts.
        self._calls: dict[int, tuple[ClientPeer, float]] = {}

    def add(self, exchange: Exchange, now: float) -> None:
        """Nobody waits for this one any more. Requests of our own are nobody's."""
        if not isinstance(exchange, ForwardedExchange):
            return
        if len(self._calls) >= MOST_CANCELLED:
            del self._calls[next(iter(self._calls))]
        self._calls[exchange.wire_id] = exchange.client, now + CANCELLED_SECONDS

    def answered(self, id: Raw | bytes) -> None:
        """The server is done with it after all."""
        if self._calls and bytes(id).isdigit():
            self._calls.pop(int(bytes(id)), None)

    def is_anothers(self, client: ClientPeer | None, now: float) -> bool:
        """Whether one of them was a call of somebody else than this client."""
        while self._calls:
            oldest, (_, until) = next(iter(self._calls.items()))
            if until > now:
                break
            del self._calls[oldest]
        return any(whose is not client for whose, _ in self._calls.values())
