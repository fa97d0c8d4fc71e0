"""Headers that identify the user to a server: our assertion, or an exchanged token.

Connects `identity_assertions` and `token_exchange`, which create them, with the interface of a server's headers. Never
sends the token that the user has sent us. Imported only for a server that requires one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from mcp_workbench.engine.config.auth_settings import TokenExchangeConfig
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, HeaderSource, ProvenHeaders
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.identity_assertions import ASSERTION_LIFETIME
from mcp_workbench.team.identity.token_exchange import TokenExchanges

# A new assertion is made while the previous one is still valid: clocks differ, and a request takes a while.
ASSERTION_RENEWAL_MARGIN: Final = 60.0
# A token without an expiry is exchanged again after this long.
UNKNOWN_LIFE: Final = 300.0
# Exchanged tokens of one user for one server: one for each of the user's tokens. An agent has one, a user few agents.
MAX_EXCHANGED_TOKENS: Final = 8

Clock = Callable[[], float]


class Validity:
    """A number of seconds from now on, by both clocks: the wall clock may be set, the monotonic one may stop while the
    machine sleeps."""

    def __init__(self, now: Clock, age: Clock, seconds: float) -> None:
        self._now, self._age = now, age
        self._begins, self._ends = now(), now() + seconds
        self._old_at = age() + seconds

    @property
    def is_over(self) -> bool:
        return not self._begins <= self._now() < self._ends or self._age() >= self._old_at


class AssertedIdentity:
    """The headers of another source, plus an assertion of who the user is (`HeaderSource`)."""

    def __init__(
        self,
        inner: HeaderSource,
        header: str,
        identity: Callable[[], Identity],
        sign: Callable[[Identity, float], str],
        now: Clock = time.time,
        age: Clock = time.monotonic,
    ) -> None:
        self._inner = inner
        self._header = header
        self._identity = identity
        self._sign = sign
        self._now = now
        self._age = age
        self._given: Mapping[str, str] | None = None
        self._made: Mapping[str, str] = {}
        self._of: Identity | None = None
        self._validity: Validity | None = None

    def headers(self) -> Mapping[str, str] | None:
        given = self._inner.headers()
        return None if given is None else self._with_assertion(given)

    async def fetch(self) -> Mapping[str, str]:
        return self._with_assertion(await self._inner.fetch())

    async def refused(self, refusal: CredentialRefusal) -> bool:
        # The other source knows the headers that it returned, not those derived from them.
        given, sent = self._given, refusal.sent
        if given is not None and sent == {**given, self._header: sent.get(self._header)}:
            sent = given
        return await self._inner.refused(refusal._replace(sent=sent))

    def _with_assertion(self, given: Mapping[str, str]) -> Mapping[str, str]:
        # A user may have several tokens: a request must not get the groups of another one.
        identity = self._identity()
        if given is not self._given or identity != self._of or self._validity is None or self._validity.is_over:
            assertion = self._sign(identity, self._now())
            if isinstance(given, ProvenHeaders):
                self._made = given.with_header(self._header, assertion)
            else:
                self._made = {**given, self._header: assertion}
            self._given, self._of = given, identity
            self._validity = Validity(self._now, self._age, ASSERTION_LIFETIME - ASSERTION_RENEWAL_MARGIN)
        return self._made


class ExchangedToken:
    """A token for this server, exchanged for the one that the user sent with the request (`HeaderSource`). Another
    token of the user may grant something else, so what was exchanged for that is not used."""

    def __init__(
        self,
        exchanges: TokenExchanges,
        principal: str,
        wanted: TokenExchangeConfig,
        base: Mapping[str, str],
        now: Clock = time.time,
        age: Clock = time.monotonic,
    ) -> None:
        self._exchanges = exchanges
        self._principal = principal
        self._wanted = wanted
        self._base = base
        self._now = now
        self._age = age
        # By the user's own token.
        self._made: dict[str, tuple[Mapping[str, str], Validity]] = {}
        self._lock = asyncio.Lock()

    def headers(self) -> Mapping[str, str] | None:
        subject = self._exchanges.subjects.shown(self._principal)
        made = None if subject is None else self._made.get(subject.token)
        return None if made is None or made[1].is_over else made[0]

    async def fetch(self) -> Mapping[str, str]:
        async with self._lock:
            known = self.headers()
            return known if known is not None else await self._exchange()

    async def refused(self, refusal: CredentialRefusal) -> bool:
        async with self._lock:
            if refusal.sent is self.headers():
                # Once: if the next one is refused too, there is another reason.
                await self._exchange()
        return True

    async def _exchange(self) -> Mapping[str, str]:
        subject = self._exchanges.subjects.of(self._principal)
        tokens = await self._exchanges.token_for(subject, self._wanted)
        life = UNKNOWN_LIFE if tokens.expires_in is None else tokens.expires_in
        headers = {**self._base, "authorization": f"Bearer {tokens.access_token}"}
        self._made.pop(subject.token, None)
        if len(self._made) >= MAX_EXCHANGED_TOKENS:
            del self._made[next(iter(self._made))]
        validity = Validity(self._now, self._age, max(life - min(ASSERTION_RENEWAL_MARGIN, life / 10), 1.0))
        self._made[subject.token] = headers, validity
        return headers
