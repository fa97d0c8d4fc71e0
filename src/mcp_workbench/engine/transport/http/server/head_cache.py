"""Request heads that were parsed and admitted before, keyed by their bytes.

A client sends the same head with each tool call, apart from the length of the body. Parsing and checking it costs as
much as everything else done with a call, and the outcome depends only on its bytes; so it is looked up, with the length
cut out. Keys are hashed and then compared in full, so timing does not reveal how much of a guessed token was right.

Owns which heads are kept. Knows nothing about what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.transport.http.server.request_head import RequestHead

END_OF_HEAD: Final = b"\r\n\r\n"
# 512 heads of at most 2 KiB: at most 1 MiB.
MAX_CACHED_HEADS: Final = 512
MAX_CACHED_HEAD_BYTES: Final = 2048
_POST_LINE: Final = b"POST "
# As clients in the field write it. It is anchored to a line break, because only there it is a header.
_LENGTH: Final = b"\r\ncontent-length: "
_LENGTH_IN_TITLES: Final = b"\r\nContent-Length: "


class HeadCache:
    """The parsed heads of all connections; the key is the received head without the length of the body."""

    __slots__ = ("_heads", "_most", "find")

    def __init__(self, most: int = MAX_CACHED_HEADS) -> None:
        self._heads: dict[bytes, RequestHead] = {}
        self._most = most
        # Bound once: it is called for every request.
        self.find: Callable[[bytes], RequestHead | None] = self._heads.get

    def __len__(self) -> int:
        return len(self._heads)

    def keep(self, key: bytes, head: RequestHead) -> None:
        if len(self._heads) >= self._most and key not in self._heads:
            # Evict the oldest: a head in use is added again with its next request.
            del self._heads[next(iter(self._heads))]
        self._heads[key] = head


class UnsharedHeads(HeadCache):
    """Shares nothing: where authentication depends on the peer, one client's head is not valid for another."""

    __slots__ = ()

    def keep(self, key: bytes, head: RequestHead) -> None:
        """Do nothing; the head is kept by its connection only."""


class ConnectionHeadCache:
    """The cache as seen by one connection: the shared heads, and the last one of its own client.

    Legacy clients send their session id in every head, and a thousand of them would keep evicting each other.
    """

    __slots__ = ("_all", "_format", "_own", "_own_key", "address", "end")

    def __init__(self, known: HeadCache) -> None:
        self._all = known
        # The exact address of this client. Heads of others with the same bytes are not for it: the audit must name the
        # right one.
        self.address = ""
        self._own: RequestHead | None = None
        self.forget()

    def find(self, data: bytes) -> RequestHead | None:
        """The head of a request, if it is cached; `end` is then the offset of its body."""
        # Nearly always the last one again, with a body whose length has as many digits: compared and not searched.
        known = self._format % (len(data) - self.end)
        if data.startswith(known) and len(known) == self.end:
            return self._own
        key, end = divide(data)
        head = self._all.find(key) or (self._own if key == self._own_key else None)
        if head is None or head.address != self.address:
            return None
        self._remember(key, head, end)
        return head

    def learn(self, data: bytes, head: RequestHead) -> None:
        """Cache the head of an admitted request. `data` is what was read when it began."""
        key = worth_keeping(data, head)
        if key is not None:
            self._all.keep(key, head)
            self._remember(key, head, divide(data)[1])

    def _remember(self, key: bytes, head: RequestHead, end: int) -> None:
        self._own_key, self._own, self.end = key, head, end
        start = max(key.find(_LENGTH), key.find(_LENGTH_IN_TITLES)) + len(_LENGTH)
        # A template of the head, into which the length of a body is filled.
        self._format = b"%b%%d%b" % (key[:start].replace(b"%", b"%%"), key[start:].replace(b"%", b"%%"))

    def forget(self) -> None:
        # No request has this key.
        self._own_key = b" "
        self._own = None
        # Matches nothing, as no head is empty.
        self._format, self.end = b"%d", 0


def divide(data: bytes) -> tuple[bytes, int]:
    """The key of a request's head, and the offset of its body.

    The key is empty unless `data` is exactly one complete request that declares its length.
    """
    end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
    found = data.find(_LENGTH, 0, end)
    if found < 0:
        found = data.find(_LENGTH_IN_TITLES, 0, end)
        if found < 0:
            return b"", end
    start = found + len(_LENGTH)
    stop = data.find(b"\r", start, end)
    if data[start:stop] != b"%d" % (len(data) - end):
        return b"", end
    return data[:start] + data[stop:end], end


def worth_keeping(data: bytes, head: RequestHead) -> bytes | None:
    """The key of a head if it can serve other requests with the same one, else None. `data` is what was read when it
    began.

    Only if the request ends exactly with `data`: then the parser and we agree on where its head ends.
    """
    key, end = divide(data)
    if (
        not key.startswith(_POST_LINE)
        or end > MAX_CACHED_HEAD_BYTES
        or head.declared_bytes != len(data) - end
        or not head.is_plain
    ):
        return None
    return key
