"""Heads of requests that have been here before.

A client sends the same head with each call of a tool, but for the length of the body. Taking it apart and judging it
costs as much as everything else that is done with a call, and its outcome depends on nothing but its bytes: so it is
looked up, with the length cut out. Found by hash and compared whole, which tells nobody how much of a guessed token was
right.

Owns which heads are worth keeping. Refuses to know what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mcp_workbench.transport.http.server.arrival import Arrival

END_OF_HEAD: Final = b"\r\n\r\n"
# 512 of at most 2 KiB are a bound of 1 MiB.
MOST_HEADS: Final = 512
LONGEST_HEAD: Final = 2048
_METHOD: Final = b"POST "
# As clients in the field write it. At the beginning of a line: nowhere else can it be the header.
_LENGTH: Final = b"\r\ncontent-length: "
_LENGTH_IN_TITLES: Final = b"\r\nContent-Length: "
# Nobody sends a petabyte; and a number that is this short is read in no time.
MOST_DIGITS: Final = 15


class KnownHeads:
    """The heads that came in lately, without their lengths, and what each says."""

    __slots__ = ("_arrivals", "_most", "find")

    def __init__(self, most: int = MOST_HEADS) -> None:
        self._arrivals: dict[bytes, Arrival] = {}
        self._most = most
        # What a head says; None for one that is not known.
        self.find: Callable[[bytes], Arrival | None] = self._arrivals.get

    def __len__(self) -> int:
        return len(self._arrivals)

    def keep(self, head: bytes, arrival: Arrival) -> None:
        """Remember a head that is worth it."""
        if len(self._arrivals) >= self._most and head not in self._arrivals:
            # The oldest goes: a tool in use is learnt again with its next call.
            del self._arrivals[next(iter(self._arrivals))]
        self._arrivals[head] = arrival


class HeadsOfClient:
    """What one connection knows: what everybody does, and what its client sent last.

    A legacy client has its session's id in every head, and a thousand of them would drive each other out for ever.
    """

    __slots__ = ("_all", "_own", "_own_head")

    def __init__(self, known: KnownHeads) -> None:
        self._all = known
        self._own_head = b""
        self._own: Arrival | None = None

    def find(self, data: bytes) -> tuple[Arrival | None, int]:
        """What a request says whose head is known, and where its body begins."""
        head, end = divide(data)
        return self._all.find(head) or (self._own if head == self._own_head else None), end

    def learn(self, data: bytes, arrival: Arrival) -> None:
        """Keep the head of a request that came in, if it is worth it. `data` is what was read when it began."""
        head = worth_keeping(data, arrival)
        if head is not None:
            self._all.keep(head, arrival)
            self._own_head, self._own = head, arrival

    def forget(self) -> None:
        """The client is gone."""
        self._own_head, self._own = b"", None


def divide(data: bytes) -> tuple[bytes, int]:
    """The head of a request without the length of its body, and where that body begins.

    The head is empty where what was read is not one whole request, and nothing else, that says how long its body is.
    """
    end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
    found = data.find(_LENGTH, 0, end)
    if found < 0:
        found = data.find(_LENGTH_IN_TITLES, 0, end)
        if found < 0:
            return b"", end
    start = found + len(_LENGTH)
    stop = data.find(b"\r", start, end)
    length = data[start:stop]
    if not length.isdigit() or len(length) > MOST_DIGITS or int(length) != len(data) - end:
        return b"", end
    return data[:start] + data[stop:end], end


def worth_keeping(data: bytes, arrival: Arrival) -> bytes | None:
    """The head of a request that came in, without its length, if another one with the same can be served by it. `data`
    is what was read when it began.

    Only where the request ends with what was read: then the parser and we agree on where its head does.
    """
    head, end = divide(data)
    if (
        not head.startswith(_METHOD)
        or end > LONGEST_HEAD
        or arrival.declared_bytes != len(data) - end
        or not arrival.is_plain
    ):
        return None
    return head
