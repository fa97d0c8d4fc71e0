"""Heads of requests that have been here before.

A client sends the same head with each call of a tool, but for the length of the body. Taking it apart and judging it
costs as much as everything else that is done with a call, and its outcome depends on nothing but its bytes: so it is
looked up. Found by hash and compared whole, which tells nobody how much of a guessed token was right.

Owns which heads are worth keeping. Refuses to know what they say.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.transport.http.server.arrival import Arrival

END_OF_HEAD: Final = b"\r\n\r\n"
# Lengths of bodies differ by a few bytes, so a tool takes a few places. 512 of at most 2 KiB are a bound of 1 MiB.
MOST_HEADS: Final = 512
LONGEST_HEAD: Final = 2048
# Each connection keeps its last one besides: a legacy client has its session's id in every head, and a thousand of them
# would drive each other out for ever.
OWN_HEADS: Final = 1
_METHOD: Final = b"POST "


class KnownHeads:
    """The heads that came in lately."""

    __slots__ = ("_arrivals", "_most")

    def __init__(self, most: int = MOST_HEADS) -> None:
        self._arrivals: dict[bytes, Arrival] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._arrivals)

    def find(self, head: bytes, body_bytes: int) -> Arrival | None:
        """What this head says, where the body behind it is there as a whole and nothing else is."""
        arrival = self._arrivals.get(head)
        return arrival if arrival is not None and arrival.declared_bytes == body_bytes else None

    def keep(self, head: bytes, arrival: Arrival) -> None:
        """Remember a head that is worth it."""
        if len(self._arrivals) >= self._most and head not in self._arrivals:
            # The oldest goes: a tool in use is learnt again with its next call.
            del self._arrivals[next(iter(self._arrivals))]
        self._arrivals[head] = arrival


def worth_keeping(data: bytes, arrival: Arrival) -> bytes | None:
    """The head of a request that came in, if another one with the same can be served by it. `data` is what was read
    when it began.

    Only where the request ends with what was read: then the parser and we agree on where its head does.
    """
    end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
    if (
        not data.startswith(_METHOD)
        or not len(END_OF_HEAD) <= end <= LONGEST_HEAD
        or arrival.declared_bytes != len(data) - end
        or not arrival.is_plain
    ):
        return None
    return data[:end]
