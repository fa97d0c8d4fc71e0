"""Heads of requests that have been here before.

A client sends the same head with each call of a tool, but for the length of the body. Taking it apart and judging it
costs as much as everything else that is done with a call, and its outcome depends on nothing but its bytes: so it is
looked up, with the length cut out. Found by hash and compared whole, which tells nobody how much of a guessed token was
right.

Owns which heads are worth keeping. Refuses to know what they say.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.transport.http.server.arrival import Arrival

END_OF_HEAD: Final = b"\r\n\r\n"
# 512 of at most 2 KiB are a bound of 1 MiB.
MOST_HEADS: Final = 512
LONGEST_HEAD: Final = 2048
# Each connection keeps its last one besides: a legacy client has its session's id in every head, and a thousand of them
# would drive each other out for ever.
OWN_HEADS: Final = 1
_METHOD: Final = b"POST "
# As clients in the field write it. At the beginning of a line: nowhere else can it be the header.
_LENGTH: Final = b"\r\ncontent-length: "
_LENGTH_IN_TITLES: Final = b"\r\nContent-Length: "
# Nobody sends a petabyte; and a number that is this short is read in no time.
MOST_DIGITS: Final = 15


class KnownHeads(dict[bytes, Arrival]):
    """The heads that came in lately, without their lengths, and what each says."""

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_HEADS) -> None:
        self._most = most

    def keep(self, head: bytes, arrival: Arrival) -> None:
        """Remember a head that is worth it."""
        if len(self) >= self._most and head not in self:
            # The oldest goes: a tool in use is learnt again with its next call.
            del self[next(iter(self))]
        self[head] = arrival


def divide(data: bytes) -> tuple[bytes, int]:
    """The head of a request without the length of its body, and where that body begins.

    The head is empty where what was read is not one whole request, and nothing else, that says how long its body is.
    """
    end = data.find(END_OF_HEAD) + 4
    start = data.find(_LENGTH, 0, end) + 18
    if start < 18:
        start = data.find(_LENGTH_IN_TITLES, 0, end) + 18
        if start < 18:
            return b"", end
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
