"""Where the headers of one server come from: one interface, so that nothing else can add to them.

Headers from the configuration are sent, and nothing from our own clients' requests. Each source belongs to one server
and one principal; signing in is another source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

# RFC 9449, section 9: the request was not accepted, and would be with a proof that has this server's nonce in it.
_NONCE_IS_MISSING: Final = "use_dpop_nonce"

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

    @property
    def wants_nonce(self) -> bool:
        """Whether only the nonce of the proof was missing, which the same response brings."""
        return _NONCE_IS_MISSING in self.challenge

    @property
    def kind(self) -> int:
        """Refusals of the same kind are answered with one attempt. A nonce and a token may both be out of date."""
        return 0 if self.wants_nonce else self.status


class ProvenHeaders(dict[str, str]):
    """Headers that are not complete without a proof made for each request. None of these requests has a cached head."""

    __slots__ = ("_proof",)

    def __init__(self, headers: Mapping[str, str], proof: RequestProof) -> None:
        super().__init__(headers)
        self._proof = proof

    def with_header(self, name: str, value: str) -> ProvenHeaders:
        return ProvenHeaders({**self, name: value}, self._proof)

    def proven(self, method: str, url: str) -> dict[str, str]:
        """All headers of one request. `url` has no query."""
        return {**self, **self._proof.headers(method, url)}

    def answered(self, headers: Mapping[str, str]) -> None:
        self._proof.answered(headers)


class RequestProof(Protocol):
    """Makes the proof of one request, and learns from the headers of its response."""

    def headers(self, method: str, url: str) -> Mapping[str, str]: ...

    def answered(self, headers: Mapping[str, str]) -> None: ...


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

        A request is sent again once for each kind of refusal; a second one of that kind is reported here too, but
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
