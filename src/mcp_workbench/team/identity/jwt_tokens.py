"""Access tokens that are JWTs: the signature of an identity provider proves their subject.

Owns the order of the checks: shape, issuer, type, algorithm, key, signature, claims. An unverified token is parsed
only to find out which key to try. `joserfc` is imported with the first token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import MsgspecError
from msgspec.json import decode

from mcp_workbench.engine.config.auth_settings import IssuerConfig
from mcp_workbench.team.identity.claims import NO_ACCESS_TOKEN, judge
from mcp_workbench.team.identity.credentials import UNREACHABLE, Pending, TokenRejection, TokenVerdict, Verified
from mcp_workbench.team.identity.jwks import MAX_KID_LENGTH, IssuerKeys

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger(__name__)

MALFORMED = TokenRejection("this token is not a well-formed JWT")
UNKNOWN_KEY = TokenRejection("this token is signed with a key that its issuer does not have")
BAD_SIGNATURE = TokenRejection("the signature of this token is wrong")
# What `typ` says of access tokens: RFC 9068, or nothing more than that it is a JWT, as with most providers.
ACCESS_TOKEN_TYPE = "at+jwt"
ACCESS_TOKEN_TYPES = (ACCESS_TOKEN_TYPE, "jwt")


class JwtIssuer:
    """One provider, and how its tokens are checked."""

    def __init__(
        self,
        settings: IssuerConfig,
        audience: tuple[str, ...],
        keys: IssuerKeys,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self._audience = audience
        self._now = now

    def verify(self, token: str, header: Mapping[str, Any]) -> TokenVerdict | Pending:
        """The caller that this token proves. Waits if its key is not known yet."""
        kind = header.get("typ", "jwt")
        # A prefix may be left out (RFC 7515, section 4.1.9).
        kind = kind.lower().removeprefix("application/") if isinstance(kind, str) else ""
        if kind not in ACCESS_TOKEN_TYPES:
            return NO_ACCESS_TOKEN
        is_typed = kind == ACCESS_TOKEN_TYPE
        algorithm, kid = header.get("alg"), header.get("kid")
        # Before a key is looked up: other algorithms are never tried, whatever keys there are (RFC 8725, 3.1).
        if not isinstance(algorithm, str) or algorithm not in self.settings.algorithms:
            return TokenRejection("the algorithm of this token is not accepted")
        if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID_LENGTH):
            return MALFORMED
        candidates = self.keys.candidates(kid, algorithm)
        if candidates:
            return self._checked(token, algorithm, candidates, is_typed=is_typed)
        looking = self.keys.look_again()
        if looking is None:
            return self._without_key()
        found: Pending = asyncio.get_running_loop().create_future()
        looking.add_done_callback(lambda _: self._settle(found, token, algorithm, kid, is_typed=is_typed))
        return found

    def _settle(self, found: Pending, token: str, algorithm: str, kid: str | None, *, is_typed: bool) -> None:
        if found.done():
            return
        try:
            candidates = self.keys.candidates(kid, algorithm)
            found.set_result(
                self._checked(token, algorithm, candidates, is_typed=is_typed) if candidates else self._without_key()
            )
        except Exception:
            # Whoever waits would wait for ever if this were left to the event loop.
            log.exception("internal error; please report it")
            found.set_result(TokenRejection("this token cannot be checked at the moment", UNREACHABLE))

    def _without_key(self) -> TokenRejection:
        # A key is known not to be the issuer's only if the issuer has been reached.
        if self.keys.are_known:
            return UNKNOWN_KEY
        return TokenRejection("the identity provider cannot be reached to check this token", UNREACHABLE)

    def _checked(self, token: str, algorithm: str, candidates: list[Key], *, is_typed: bool) -> TokenVerdict:
        from joserfc import jws
        from joserfc.errors import JoseError

        for key in candidates:
            try:
                with warnings.catch_warnings():
                    # Providers write `EdDSA`; its successor in RFC 9864 is not in use yet.
                    warnings.simplefilter("ignore")
                    signed = jws.deserialize_compact(token, key, algorithms=[algorithm])
            # `kid` is optional (RFC 7515, section 4.1.4), so any key of that kind may have signed it.
            except (JoseError, ValueError, TypeError):
                continue
            try:
                claims = decode(signed.payload)
            except (MsgspecError, RecursionError):
                return MALFORMED
            if not isinstance(claims, dict):
                return MALFORMED
            verdict = judge(claims, self.settings, self._audience, self._now(), is_typed=is_typed)
            if isinstance(verdict, TokenRejection):
                return verdict
            return Verified(verdict.identity, verdict.expires, verdict.issuer, self.keys.believed_until)
        return BAD_SIGNATURE


def peek(token: str) -> tuple[dict[str, Any], str] | None:
    """The header of a JWT and the issuer that it names, unverified; None if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        header, claims = (decode(_decoded(part)) for part in parts[:2])
    except (MsgspecError, RecursionError, binascii.Error, ValueError):
        return None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        return None
    issuer = claims.get("iss")
    return header, issuer if isinstance(issuer, str) else ""


def _decoded(part: str) -> bytes:
    # Without padding (RFC 7515, section 2), which Python requires.
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
