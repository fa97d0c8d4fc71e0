"""Where the headers of one server come from: one interface, so that nothing else can add to them.

Headers from the configuration are sent, and nothing from our own clients' requests. Each source belongs to one server
and one principal; signing in is another source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

# Framing is decided where a message is written; a configured header that disagrees would only break it.
FRAMING_HEADERS: Final = frozenset(("connection", "content-length", "transfer-encoding", "expect", "upgrade"))


class CredentialRefusal(NamedTuple):
    """A server requires other credentials than it was sent, and did not act on the request."""

    # 401, also for a server that answers 403 if a token has expired; 403 with the error `insufficient_scope` (RFC 6750,
    # section 3.1).
    status: int
    # `WWW-Authenticate`; several are joined with a comma, as in HTTP; empty if the server sent none.
    challenge: str
    # The headers that were sent: the object that the source returned. If the source has another one by now, another
    # request has already caused a refresh, and no second one is needed.
    sent: Mapping[str, str]


class HeaderSource(Protocol):
    """The headers of every request to one server, for one principal. Names are in lower case."""

    def headers(self) -> Mapping[str, str] | None:
        """The current headers; None if they are not available yet. Called for each request, so it must be cheap.
        Returns the same object until something changes: cached request heads are valid as long as it does."""

    async def fetch(self) -> Mapping[str, str]:
        """Wait for the headers: a token is fetched or refreshed. Awaited only after `headers` returned None.

        Concurrent requests each call it, and each may be cancelled: the source ensures that there is one refresh for
        all of them, and that it is bounded. Raises `DownstreamError` if there will be none.
        """

    async def refused(self, refusal: CredentialRefusal) -> bool:
        """Handle a refusal. Return true if there are better credentials; the request is then sent once more.

        A request is sent again once for each status; a second refusal with the same status is reported here too, but
        only an exception has an effect then. May raise `DownstreamError` to tell the user what to do; if it returns
        false, the request fails with the server's own error.
        """


class UntilRefused:
    """Headers from the configuration until the server requires other credentials; from then on, another source's."""

    def __init__(self, headers: Mapping[str, str], signed_in: Callable[[Mapping[str, str]], HeaderSource]) -> None:
        self._source: HeaderSource = FixedHeaders(headers)
        self._signed_in: Callable[[Mapping[str, str]], HeaderSource] | None = signed_in
        # The source's own method, to save a call: it is used for every request.
        self.headers: Callable[[], Mapping[str, str] | None] = self._source.headers

    async def fetch(self) -> Mapping[str, str]:
        return await self._source.fetch()

    async def refused(self, refusal: CredentialRefusal) -> bool:
        if self._signed_in is not None:
            self._source, self._signed_in = self._signed_in(await self._source.fetch()), None
            self.headers = self._source.headers
        return await self._source.refused(refusal)


class FixedHeaders:
    """Headers from the configuration."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {name.lower(): value for name, value in headers.items() if name.lower() not in FRAMING_HEADERS}

    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def fetch(self) -> Mapping[str, str]:
        return self._headers

    async def refused(self, refusal: CredentialRefusal) -> bool:
        return False
