"""The public keys of one identity provider: fetched with the first token, and again when a token names an unknown one.

Keys rotate, so an unknown `kid` is a reason to fetch them; but anyone can make one up, so they are fetched at most once
in half a minute. While the provider cannot be reached, known keys remain valid for a day. Owns when keys are fetched
and which of them may be tried; `joserfc` is imported with the first key.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mcp_workbench.engine.config.auth_settings import IssuerConfig
from mcp_workbench.signin.discovery import server_metadata_urls
from mcp_workbench.signin.flow_io import OAuthResponse, SignInFailed, checked_url, get
from mcp_workbench.team.identity.credentials import Fetch, StartTask

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger(__name__)

# The first request of a user waits for it.
KEY_FETCH_TIMEOUT: Final = 5.0
# Older keys are fetched again in the background, so that withdrawn ones are noticed.
KEY_REFRESH_INTERVAL: Final = 600.0
# Keys that the provider has not confirmed for this long are no longer used, and no token is accepted.
KEY_LIFETIME: Final = 86_400.0
# Between two fetches, whatever tokens contain: a flood of made-up `kid`s must not become a flood of requests.
MIN_KEY_FETCH_INTERVAL: Final = 30.0
# The same while there are no keys at all, so that users are let in soon after the provider is back.
JWKS_RETRY_INTERVAL: Final = 5.0
# Providers have two to ten.
MAX_PROVIDER_KEYS: Final = 100
# RSA keys larger than 8192 bits make each check a denial of service; those smaller than 2048 are broken.
RSA_BITS: Final = (2048, 8192)
# For a token without `kid`, up to this many matching keys are tried.
MAX_KEYS_TRIED: Final = 8
MAX_KID_LENGTH: Final = 512

_KEY_FAMILIES: Final = {"RS": ("RSA", None), "PS": ("RSA", None), "Ed": ("OKP", "Ed25519")}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class IssuerKeys:
    """The known keys of one provider."""

    def __init__(
        self,
        settings: IssuerConfig,
        fetch: Fetch,
        start_task: StartTask,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._start_task = start_task
        self._now = now
        self._keys: list[Key] = []
        self._thumbprints: frozenset[str] = frozenset()
        # When keys were last fetched successfully, and when they were last requested.
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._under_way: asyncio.Future[None] | None = None
        self.problem = ""
        # Called when a known key has been withdrawn.
        self.on_withdrawn: list[Callable[[], None]] = []

    @property
    def are_known(self) -> bool:
        """Whether there are keys that have not become too old."""
        return self._fetched_at is not None and self._now() - self._fetched_at < KEY_LIFETIME

    @property
    def believed_until(self) -> float:
        """Until when a token that was just verified need not be verified again. Without this, a token that is used all
        day would never notice that its key was withdrawn, and would never cause keys to be fetched."""
        if self._fetched_at is None:
            return self._now()
        # While they cannot be fetched, as often as that is tried.
        again = max(self._fetched_at + KEY_REFRESH_INTERVAL, self._now() + MIN_KEY_FETCH_INTERVAL)
        return min(again, self._fetched_at + KEY_LIFETIME)

    def candidates(self, kid: object, algorithm: str) -> list[Key]:
        """The keys that may have signed a token with this header."""
        if not self.are_known:
            return []
        if self._fetched_at is not None and self._now() - self._fetched_at >= KEY_REFRESH_INTERVAL:
            self.look_again()
        kind, curve = _KEY_FAMILIES.get(algorithm[:2], ("EC", _CURVES.get(algorithm)))
        return [
            key
            for key in self._keys
            if (kid is None or key.kid == kid)
            and key.key_type == kind
            and (curve is None or key.get("crv") == curve)
            and key.get("alg") in (None, algorithm, "EdDSA" if kind == "OKP" else algorithm)
        ][:MAX_KEYS_TRIED]

    def look_again(self) -> asyncio.Future[None] | None:
        """Fetch the keys, once for all callers; None if that was tried a moment ago."""
        if self._under_way is not None:
            return self._under_way
        pause = MIN_KEY_FETCH_INTERVAL if self.are_known and self._keys else JWKS_RETRY_INTERVAL
        if self._asked_at is not None and self._now() - self._asked_at < pause:
            return None
        self._asked_at = self._now()
        self._under_way = asyncio.get_running_loop().create_future()
        _ = self._start_task(self._load(self._under_way))
        return self._under_way

    async def _load(self, done: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(KEY_FETCH_TIMEOUT):
                document = await self._document()
            self._take(document)
            self.problem = ""
        except (SignInFailed, TimeoutError) as error:
            self.problem = str(error) or f"it did not answer within {KEY_FETCH_TIMEOUT:g} s"
            log.warning(
                "the keys of the identity provider `%s` cannot be fetched: %s", self._settings.issuer, self.problem
            )
        finally:
            self._under_way = None
            if not done.done():
                done.set_result(None)

    async def _document(self) -> dict[str, Any]:
        url, named_by = self._settings.jwks, None
        if not url:
            url, named_by = await self._discovered(), self._settings.issuer
        where = checked_url(url, "`jwks_uri` of the identity provider", named_by=named_by)
        answer = await self._fetch(get(where, named_by=named_by))
        document = answer.fields() if answer.is_good else {}
        if not isinstance(document.get("keys"), list):
            raise SignInFailed(_why(answer) or f"`{url}` is not a set of keys")
        return document

    async def _discovered(self) -> str:
        """The `jwks_uri` in the issuer's metadata, which must name this issuer (RFC 8414, 3.3)."""
        metadata = await fetch_metadata(self._settings.issuer, self._fetch)
        found = metadata.get("jwks_uri")
        if not isinstance(found, str):
            raise SignInFailed("its metadata names no `jwks_uri`")
        return found

    def _take(self, document: dict[str, Any]) -> None:
        keys = [key for each in document["keys"][:MAX_PROVIDER_KEYS] if (key := read_key(each)) is not None]
        if not keys:
            if not all(isinstance(each, dict) and isinstance(each.get("kty"), str) for each in document["keys"]):
                raise SignInFailed("its keys cannot be read")
            # An empty set is valid (RFC 7517, 5), and means that the earlier keys are withdrawn.
            log.warning(
                "the identity provider `%s` has no key that can be used: none of its tokens is accepted",
                self._settings.issuer,
            )
        thumbprints = frozenset(key.thumbprint() for key in keys)
        withdrawn = not self._thumbprints <= thumbprints
        self._keys, self._thumbprints, self._fetched_at = keys, thumbprints, self._now()
        if withdrawn:
            for use in self.on_withdrawn:
                use()


async def fetch_metadata(issuer: str, fetch: Fetch) -> dict[str, Any]:
    """The metadata of an authorization server, checked to name this issuer. Raises `SignInFailed`."""
    problem = ""
    for url in server_metadata_urls(issuer):
        answer = await fetch(get(checked_url(url, "the address of the identity provider's metadata")))
        document = answer.fields() if answer.is_good else {}
        if document.get("issuer") == issuer:
            return document
        problem = _why(answer) or f"the metadata at `{url}` is another issuer's"
    raise SignInFailed(problem)


def read_key(written: object) -> Key | None:
    """One key of a set; None if it is not for verifying signatures, or should not be used."""
    if not isinstance(written, dict) or written.get("use", "sig") != "sig":
        return None
    operations = written.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    kid = written.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID_LENGTH):
        return None
    if written.get("kty") not in ("RSA", "EC", "OKP") or not _has_usual_size(written):
        return None
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    # Only the public members: some providers publish more than they should, and we would store it.
    public = {name: written[name] for name in ("kty", "kid", "alg", "crv", "n", "e", "x", "y") if name in written}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            key: Key = import_key(public)
            # Otherwise it would be imported when it is first used.
            _ = key.public_key
            return key
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def _has_usual_size(written: dict[str, Any]) -> bool:
    if written["kty"] != "RSA":
        parts = [written[name] for name in ("x", "y", "crv") if name in written]
        return all(isinstance(part, str) and len(part) <= MAX_KID_LENGTH for part in parts)
    modulus, exponent = written.get("n"), written.get("e")
    if not isinstance(modulus, str) or not isinstance(exponent, str) or len(exponent) > 8:
        return False
    # Six bits per character in Base64 without padding; leading bits may be zero.
    return RSA_BITS[0] - 8 <= len(modulus) * 6 <= RSA_BITS[1] + 16


def _why(answer: OAuthResponse) -> str:
    if answer.status == 0:
        return answer.body.decode(errors="replace")[:300]
    return "" if answer.is_good else f"it answered with status {answer.status}"
