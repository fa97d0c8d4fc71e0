"""Opaque tokens: their issuer is asked about them (RFC 7662).

Each question costs a request, and anyone can make up tokens: so there is one question at a time for a token, a limit on
all of them, and both answers are cached for a while. Owns what is asked; `claims` judges the answer.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final
from urllib.parse import quote_plus

from mcp_workbench.engine.config.auth_settings import IssuerConfig
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse, SignInFailed, checked_url, post_form
from mcp_workbench.team.identity.claims import judge
from mcp_workbench.team.identity.credentials import (
    UNREACHABLE,
    Fetch,
    Pending,
    PresentingPeer,
    StartTask,
    TokenRejection,
    TokenVerdict,
    Verified,
)
from mcp_workbench.team.identity.jwks import KEY_FETCH_TIMEOUT

log = logging.getLogger(__name__)

# A revoked token is accepted for this long at most.
INTROSPECTION_CACHE_LIFETIME: Final = 60.0
# Questions in progress at one provider; requests beyond that are asked to try again.
MAX_INTROSPECTIONS_IN_PROGRESS: Final = 32
# The share of one peer: a peer that floods us with made-up tokens must not block all others.
MAX_REQUESTS_PER_PEER: Final = 4
# How long the tokens of a peer that has failed too often wait before the provider is asked: as long as its responses.
SLOWED_PEER_DELAY: Final = 1.0
# How often the log reports that it does not answer.
FAILURE_LOG_INTERVAL: Final = 60.0

BUSY: Final = TokenRejection("too many tokens are being checked; try again", UNREACHABLE)
NOBODY: Final = PresentingPeer()
UNKNOWN_TOKEN: Final = TokenRejection("the identity provider does not know this token, or no longer accepts it")


class Introspection:
    def __init__(
        self,
        settings: IssuerConfig,
        audience: tuple[str, ...],
        fetch: Fetch,
        start_task: StartTask,
        now: Callable[[], float] = time.time,
        age: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._audience = audience
        self._fetch = fetch
        self._start_task = start_task
        self._now = now
        self._age = age
        # By the digest of the token.
        self._under_way: dict[bytes, Pending] = {}
        # By peer, the number of its tokens that are being checked, or wait for that.
        self._of_peers: Counter[str] = Counter()
        self._asked = 0
        self._logged_at: float | None = None

    def verify(self, token: str, digest: bytes, sender: PresentingPeer = NOBODY) -> TokenRejection | Pending:
        """The provider's verdict on this token, once it has answered."""
        asked = self._under_way.get(digest)
        if asked is not None:
            return asked
        if self._asked >= MAX_INTROSPECTIONS_IN_PROGRESS or (
            sender.peer and self._of_peers[sender.peer] >= MAX_REQUESTS_PER_PEER
        ):
            return BUSY
        found = self._under_way[digest] = asyncio.get_running_loop().create_future()
        self._of_peers[sender.peer] += 1
        # While a slowed peer waits, it does not count towards the limit for all peers.
        self._asked += not sender.is_slowed
        _ = self._start_task(self._settle(token, digest, found, sender))
        return found

    async def _settle(self, token: str, digest: bytes, found: Pending, sender: PresentingPeer) -> None:
        is_asked = not sender.is_slowed
        verdict: TokenVerdict = BUSY
        try:
            if sender.is_slowed:
                await asyncio.sleep(SLOWED_PEER_DELAY)
                is_asked = self._asked < MAX_INTROSPECTIONS_IN_PROGRESS
                self._asked += is_asked
            if is_asked:
                verdict = await self._ask(token)
        finally:
            self._asked -= is_asked
            self._of_peers[sender.peer] -= 1
            if not self._of_peers[sender.peer]:
                del self._of_peers[sender.peer]
            del self._under_way[digest]
            if not found.done():
                found.set_result(verdict)

    async def _ask(self, token: str) -> TokenVerdict:
        verdict: TokenVerdict = TokenRejection(
            "the identity provider cannot be reached to check this token", UNREACHABLE
        )
        try:
            async with asyncio.timeout(KEY_FETCH_TIMEOUT):
                verdict = self._judge(await self._fetch(self._request(token)))
        except (SignInFailed, TimeoutError) as error:
            self._complain(str(error) or f"no answer within {KEY_FETCH_TIMEOUT:g} s")
        return verdict

    def _request(self, token: str) -> OAuthRequest:
        settings = self.settings
        pair = f"{quote_plus(settings.client_id or '')}:{quote_plus(settings.client_secret or '')}".encode()
        headers = {"authorization": "Basic " + base64.b64encode(pair).decode()}
        url = checked_url(settings.introspection, "`introspection`")
        return post_form(url, {"token": token, "token_type_hint": "access_token"}, headers)

    def _judge(self, answer: OAuthResponse) -> TokenVerdict:
        if not answer.is_good:
            said = answer.body.decode(errors="replace")[:200] if answer.status == 0 else f"status {answer.status}"
            raise SignInFailed(said)
        claims = answer.fields()
        if claims.get("active") is not True:
            return UNKNOWN_TOKEN
        # The provider vouches for its own tokens; an answer that names another issuer is rejected.
        claims.setdefault("iss", self.settings.issuer)
        now = self._now()
        # Some answers do not state when a token expires: then it is checked again soon.
        claims.setdefault("exp", now + INTROSPECTION_CACHE_LIFETIME)
        verdict = judge(claims, self.settings, self._audience, now)
        if isinstance(verdict, TokenRejection):
            return verdict
        # By both clocks: the wall clock may be set back, the monotonic one may stop while the machine sleeps.
        ends = min(verdict.expires, now + INTROSPECTION_CACHE_LIFETIME)
        return Verified(verdict.identity, ends, verdict.issuer, self._age() + INTROSPECTION_CACHE_LIFETIME)

    def _complain(self, why: str) -> None:
        now = self._age()
        if self._logged_at is None or now - self._logged_at >= FAILURE_LOG_INTERVAL:
            self._logged_at = now
            log.warning("a token cannot be checked with the identity provider `%s`: %s", self.settings.issuer, why)
