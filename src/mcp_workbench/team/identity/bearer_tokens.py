"""Bearer tokens of every kind, and the callers they prove: the single token, named keys, JWTs, opaque ones.

A token that was checked before costs a look-up by its hash, until it expires or has to be checked again. Owns which
kind a token is, and the cache. Knows nothing about how a token reached us and how a rejection is reported.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from mcp_workbench.team.identity.credentials import (
    UNREACHABLE,
    Pending,
    PresentingPeer,
    TokenRejection,
    TokenVerdict,
    Verified,
)
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.identity.introspection import Introspection
from mcp_workbench.team.identity.jwt_tokens import JwtIssuer, peek
from mcp_workbench.team.identity.named_keys import TOKEN_PREFIX, KeysInForce
from mcp_workbench.team.identity.token_exchange import SubjectToken

T = TypeVar("T")

# Tokens of identity providers are one or two KiB, with many groups eight.
MAX_TOKEN_BYTES: Final = 16 * 1024
# Tokens known to be valid. One that is dropped is checked again.
MAX_KNOWN_TOKENS: Final = 10_000
# Tokens known to be invalid, so that trying one repeatedly causes no requests.
MAX_REJECTED_TOKENS: Final = 1000
REJECTED_TOKEN_LIFETIME: Final = 30.0

NO_TOKEN: Final = TokenRejection("a bearer token is required", "")
NOT_VALID: Final = TokenRejection("this token is not valid")
FOREIGN_TOKEN: Final = TokenRejection("this token is from another issuer")


class BearerTokens:
    """Everything that is accepted as a token at one endpoint."""

    def __init__(
        self,
        *,
        default: tuple[str, str] | None = None,
        keys: KeysInForce | None = None,
        jwts: Sequence[JwtIssuer] = (),
        opaque: Sequence[Introspection] = (),
        now: Callable[[], float] = time.time,
        age: Callable[[], float] = time.monotonic,
    ) -> None:
        # The single token, and its principal.
        self._default = None if default is None else (default[0].encode(), Identity(principal=default[1]))
        self._keys = keys
        self._jwts = {each.settings.issuer: each for each in jwts}
        self._opaque = tuple(opaque)
        self._now = now
        self._age = age
        self._known: dict[bytes, Verified] = {}
        self._rejected: dict[bytes, tuple[TokenRejection, float]] = {}
        for each in jwts:
            each.keys.on_withdrawn.append(partial(self.forget, each.settings.issuer))

    def recognise(
        self, token: str, sender: Callable[[], PresentingPeer] = PresentingPeer
    ) -> Identity | TokenRejection | asyncio.Future[Identity | TokenRejection]:
        """The caller that this token proves."""
        if len(token) > MAX_TOKEN_BYTES:
            return TokenRejection(f"this token is longer than {MAX_TOKEN_BYTES // 1024} KiB")
        own = self._own(token)
        if own is not None:
            return own
        if not self._jwts and not self._opaque:
            return NOT_VALID
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            if self._now() < known.expires and self._age() < known.believed_until:
                return known.identity
            del self._known[digest]
        rejected = self._rejected.get(digest)
        if rejected is not None and self._age() < rejected[1]:
            return rejected[0]
        verdict = self._verify(token, digest, sender)
        if not isinstance(verdict, asyncio.Future):
            return self._noted(token, digest, verdict)
        later: asyncio.Future[Identity | TokenRejection] = asyncio.get_running_loop().create_future()
        verdict.add_done_callback(lambda done: self._settle(later, token, digest, done))
        return later

    def subject(self, token: str) -> SubjectToken | None:
        """This token, for exchanging it for others; None if it is not from an identity provider."""
        known = self._known.get(hashlib.sha256(token.encode()).digest())
        return None if known is None else SubjectToken(token, known.issuer, known.expires)

    def standing(self, token: str) -> Callable[[], bool] | None:
        """Whether the key with this token is still valid, for as long as that is certain; None for other tokens, which
        are checked each time."""
        if self._keys is None or not token.startswith(TOKEN_PREFIX):
            return None
        record = self._keys.find(token)
        return None if record is None else self._keys.standing(record)

    def fetch_keys(self) -> None:
        """Fetch the keys of all identity providers before the first token arrives, so that a misspelt one is reported
        now."""
        for each in self._jwts.values():
            each.keys.look_again()

    def forget(self, issuer: str) -> None:
        """Check all tokens of this issuer again."""
        self._known = {digest: each for digest, each in self._known.items() if each.issuer != issuer}

    def _own(self, token: str) -> Identity | None:
        if self._default is not None and hmac.compare_digest(token.encode(), self._default[0]):
            return self._default[1]
        # Recognised by its prefix, so that other tokens are not hashed for it.
        is_key = self._keys is not None and token.startswith(TOKEN_PREFIX)
        record = self._keys.find(token) if is_key and self._keys is not None else None
        if record is None:
            return None
        return Identity(principal=record.name, toolboxes=record.toolboxes)

    def _verify(self, token: str, digest: bytes, sender: Callable[[], PresentingPeer]) -> TokenVerdict | Pending:
        seen = peek(token)
        if seen is not None:
            header, name = seen
            issuer = self._jwts.get(name)
            return FOREIGN_TOKEN if issuer is None else issuer.verify(token, header)
        if not self._opaque:
            return NOT_VALID
        who = sender()
        if len(self._opaque) == 1:
            return self._opaque[0].verify(token, digest, who)
        return self._first_that_knows([each.verify(token, digest, who) for each in self._opaque])

    def _first_that_knows(self, asked: Sequence[TokenRejection | Pending]) -> Pending:
        """Ask all providers, since an opaque token does not name its issuer; one has to recognise it."""
        found: Pending = asyncio.get_running_loop().create_future()
        verdicts = [each for each in asked if isinstance(each, TokenRejection)]
        waiting = [each for each in asked if not isinstance(each, TokenRejection)]

        def answered(done: Pending) -> None:
            if found.done() or done.cancelled():
                return
            verdict = done.result()
            if isinstance(verdict, Verified):
                found.set_result(verdict)
                return
            verdicts.append(verdict)
            if len(verdicts) == len(asked):
                # One that could not be asked may have known it.
                found.set_result(next((each for each in verdicts if each.error == UNREACHABLE), verdicts[0]))

        for each in waiting:
            each.add_done_callback(answered)
        if not waiting:
            found.set_result(verdicts[0])
        return found

    def _settle(
        self, later: asyncio.Future[Identity | TokenRejection], token: str, digest: bytes, done: Pending
    ) -> None:
        if later.done():
            return
        if done.cancelled():
            later.cancel()
        else:
            later.set_result(self._noted(token, digest, done.result()))

    def _noted(self, token: str, digest: bytes, verdict: TokenVerdict) -> Identity | TokenRejection:
        if isinstance(verdict, Verified):
            _keep(self._known, digest, verdict, MAX_KNOWN_TOKENS)
            return verdict.identity
        if self._opaque and verdict.error != UNREACHABLE and peek(token) is None:
            # Each check of an opaque token is a request to its provider.
            _keep(self._rejected, digest, (verdict, self._age() + REJECTED_TOKEN_LIFETIME), MAX_REJECTED_TOKENS)
        return verdict


def _keep(table: dict[bytes, T], digest: bytes, value: T, most: int) -> None:
    if len(table) >= most and digest not in table:
        del table[next(iter(table))]
    table[digest] = value
