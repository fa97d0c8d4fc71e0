"""Where the headers of one server come from: one interface, so that nothing else can add to them.

What is in the configuration goes out, and nothing that a client of ours has sent. A source of its own stands for one
server and one principal; signing in is another source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

# How a message is framed is decided where it is written; a header that says something else would only break it.
FRAMING_HEADERS: Final = frozenset(("connection", "content-length", "transfer-encoding", "expect", "upgrade"))


class CredentialRefusal(NamedTuple):
    """A server wants other credentials than those that it was sent, and did not act on the request."""

    # 401, also of a server that says 403 of a token that has expired; 403 with the error `insufficient_scope` (RFC
    # 6750, section 3.1).
    status: int
    # `WWW-Authenticate`: several are joined with a comma, as HTTP has it; empty where the server sent none.
    challenge: str
    # What it was sent: the object that the source gave. Where the source has another one by now, a refresh that another
    # request has brought about is all that is needed.
    sent: Mapping[str, str]


class HeaderSource(Protocol):
    """The headers of every request to one server, for one principal. Names are in lower case."""

    def headers(self) -> Mapping[str, str] | None:
        """The headers as they are now; None where they have to be waited for. Asked once for each request, so it has to
        be cheap. The same object until something changes: heads that were written are kept for as long as it is."""

    async def fetch(self) -> Mapping[str, str]:
        """The headers, once they are there: a token is fetched or refreshed. Awaited only where `headers` gave None.

        Requests that wait side by side each call it, and each may be cancelled: one refresh for all of them is the
        source's to see to, and so is its bound. Raises `DownstreamError` where there will be none.
        """

    async def refused(self, refusal: CredentialRefusal) -> bool:
        """The server wants other credentials. True where there are better ones, and the request is sent once more.

        A request is sent again once for each status; a second refusal with the same status is told too, and only what
        is raised then counts. May raise `DownstreamError` to say what the user has to do; where it returns false, the
        request fails with what the server said.
        """


class UntilRefused:
    """Headers as they stand in the configuration, until the server wants other credentials: then another source's."""

    def __init__(self, headers: Mapping[str, str], signed_in: Callable[[Mapping[str, str]], HeaderSource]) -> None:
        self._source: HeaderSource = FixedHeaders(headers)
        self._signed_in: Callable[[Mapping[str, str]], HeaderSource] | None = signed_in
        # The source's own: every call asks.
        self.headers: Callable[[], Mapping[str, str] | None] = self._source.headers

    async def fetch(self) -> Mapping[str, str]:
        return await self._source.fetch()

    async def refused(self, refusal: CredentialRefusal) -> bool:
        if self._signed_in is not None:
            self._source, self._signed_in = self._signed_in(await self._source.fetch()), None
            self.headers = self._source.headers
        return await self._source.refused(refusal)


class FixedHeaders:
    """Headers as they stand in the configuration."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {name.lower(): value for name, value in headers.items() if name.lower() not in FRAMING_HEADERS}

    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def fetch(self) -> Mapping[str, str]:
        return self._headers

    async def refused(self, refusal: CredentialRefusal) -> bool:
        return False
