"""The headers for a server with a sign-in: an access token that is refreshed in time, once for all callers.

There is one source for each principal and server, shared by all connections. The store is authoritative, because
another process may have refreshed, signed in or signed out. Room for a new token is reserved before it is requested,
and the token is stored before it is used, or as soon as that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from msgspec.structs import replace

from mcp_workbench.engine.config.redact import Redactor, secrets_fetched
from mcp_workbench.engine.transport.http.client.headers import CredentialRefusal, ProvenHeaders
from mcp_workbench.engine.transport.http.client.http_client import HttpClient
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import flow
from mcp_workbench.signin.back_off import BackOff
from mcp_workbench.signin.challenge import parse
from mcp_workbench.signin.dpop import ProofKey, TokenProof
from mcp_workbench.signin.flow import Grant, RefreshGrant, SignInRequest
from mcp_workbench.signin.flow_io import NotNow, SignInFailed, origin_of
from mcp_workbench.signin.flow_runner import TOKEN_REQUEST_TIMEOUT, run
from mcp_workbench.signin.grant_end import DAY, ends_at, note
from mcp_workbench.signin.profiles import profile_for
from mcp_workbench.signin.refresh_turn import RefreshTurn
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.store import Contents, SignInRecord, TokenStore, WantedSignIn, lock_name
from mcp_workbench.signin.store_location import StoreUnusable
from mcp_workbench.signin.token_requests import ClientUnknown, GrantOver, Tokens

if TYPE_CHECKING:
    from mcp_workbench.signin.shared_sign_ins import SharedSignIns, SharedTurn

log = logging.getLogger(__name__)

# Refresh a token after this fraction of its life: early enough to allow for clock skew and a short outage of the
# authorization server, late enough not to refresh needlessly.
REFRESH_AT: Final = 0.8
# After a temporary failure to refresh, keep using the old token for this long before the next attempt.
REFRESH_RETRY_INTERVAL: Final = 30.0
# Another process may be refreshing: time for its request, and for reading and writing the store.
REFRESH_LOCK_TIMEOUT: Final = TOKEN_REQUEST_TIMEOUT + 15.0
# At shutdown, for a refresh that has been sent: time for the response, and for storing it.
REFRESH_SETTLE_TIMEOUT: Final = TOKEN_REQUEST_TIMEOUT + 2.0
# A token that is refused this soon after it was issued would be refused again, and refreshing it would only loop. Later
# than that, the server has accepted it in the meantime, so another refresh is worth trying.
NEW_TOKEN_GRACE: Final = 60.0
# Signing out, or in as someone else, applies to all running workbenches: while calls are made, each checks this often
# whether the store has changed, at the cost of a stat.
STORE_CHECK_INTERVAL: Final = 10.0


class SignedInHeaders:
    """The `HeaderSource` of a server to which the user signs in: adds the access token, and refreshes it."""

    def __init__(
        self,
        target: SignInTarget,
        base: Mapping[str, str],
        store: TokenStore,
        client: Callable[[], HttpClient],
        redactor: Redactor,
        back_off: BackOff,
        source_of: Callable[[SignInTarget, Mapping[str, str]], SignedInHeaders],
        shared: SharedSignIns | None = None,
    ) -> None:
        """`shared`: with other instances; None if there are none."""
        self.target = target
        self._shared = shared
        self._back_off = back_off
        # Of the identity provider, where the user signs in there.
        self._source_of = source_of
        self._redactor = redactor
        self._base = base
        self._store = store
        self._client = client
        self._headers: Mapping[str, str] = base
        # The token in these headers; None until the store has been read.
        self._token: str | None = None
        # Until when the headers are used without checking anything, and when the token is due for a refresh.
        self._good_until = -math.inf
        self._refresh_at = -math.inf
        # The stamp of the store that these headers were made from.
        self._stamp: tuple[int, int, int] | None = None
        # The record that these headers come from, and whether its approaching expiry was logged.
        self._record: SignInRecord | None = None
        self._key: ProofKey | None = None
        self._is_warned = False
        # A token obtained because the previous one was refused, and until when no further one is requested.
        self._last_chance = ("", -math.inf)
        self._task: asyncio.Task[None] | None = None
        # The refresh request may have reached the authorization server.
        self._is_sent = False
        # Owns the entries in the redactor: tokens are redacted as long as requests may carry them.
        self.owner = object()
        finalize(self, redactor.release, self.owner).atexit = False

    @property
    def ends_at(self) -> float | None:
        """When the user has to sign in again; None if that is unknown."""
        return None if self._record is None else ends_at(self._record)

    def note(self) -> str:
        """The warning that the sign-in is about to expire; "" while there is time."""
        return "" if self._record is None else note(self._record, self.target.command, time.time())

    def headers(self) -> Mapping[str, str] | None:
        return self._headers if time.time() < self._good_until else None

    async def fetch(self) -> Mapping[str, str]:
        now = time.time()
        if self._stamp is not None and now < self._refresh_at and self._stamp == self._store.stamp():
            self._good_until = min(self._refresh_at, now + STORE_CHECK_INTERVAL)
        else:
            await self._once(self._renew(None))
        return self._headers

    async def refused(self, refusal: CredentialRefusal) -> bool:
        if refusal.sent is not self._headers and refusal.sent is not self._base:
            return True
        if refusal.wants_nonce and isinstance(refusal.sent, ProvenHeaders):
            # The nonce came with the refusal, and the next proof has it.
            return True
        await self._store.unlock()
        record = self.target.find(self._store.read())
        sent = refusal.sent.get("authorization", "")
        if record is not None and record.access_token and not record.ended and sent != _authorization(record):
            # The user signed in again, or another process refreshed the token.
            self._adopt(record)
            return True
        if refusal.status == 403:
            return await self._step_up(refusal, record)
        if self._is_machine() or (record is not None and record.refresh_token and not record.ended):
            token, until = self._last_chance
            if self._token is not None and self._token == token and time.time() < until:
                await self._want(refusal.challenge, record)
                raise self._needed("does not accept the token that it has just given")
            before = self._token
            await self._once(self._renew(before or ""))
            if self._token == before:
                # The renewal we joined only read the store and did not know about the refusal.
                await self._once(self._renew(before or ""))
            self._last_chance = (self._token or "", time.time() + NEW_TOKEN_GRACE)
            return True
        await self._want(refusal.challenge, record)
        raise self._needed("wants you to sign in") if record is None else self._needed_again(record)

    async def settle(self) -> None:
        """Wait until no refresh is in progress. A sent refresh may have invalidated the old token, so its response is
        awaited; one that has not been sent is cancelled."""
        if self._task is None or self._task.done():
            return
        if not self._is_sent:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=REFRESH_SETTLE_TIMEOUT)

    def forget(self) -> None:
        """Read the store again before the next request."""
        self._good_until, self._stamp = -math.inf, None

    async def _once(self, work: Awaitable[None]) -> None:
        """Share one refresh among all waiting callers. It runs in its own task, so that a cancelled caller does not
        cancel it."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(work)
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        elif asyncio.iscoroutine(work):
            work.close()
        await asyncio.shield(self._task)

    async def _renew(self, refused: str | None) -> None:
        """Get a token other than the refused one, from the store or by a refresh."""
        store, target = self._store, self.target
        await store.unlock()
        # Taken before reading, so that a write in between is noticed at the next check.
        self._stamp = store.stamp()
        record = target.find(store.read())
        if _serves(record, refused) or (record is None and not self._is_machine()):
            self._adopt(record)
            return
        try:
            async with (
                store.refreshing(lock_name(target.principal, target.server), REFRESH_LOCK_TIMEOUT) as turn,
                self._shared_turn() as shared,
            ):
                # Another process, or instance, may have refreshed while we waited for the turn.
                record = target.find(store.read())
                self._adopt(record if _serves(record, refused) else await self._new_token(record, turn, shared))
        except (SignInFailed, StoreUnusable) as error:
            # No response, a proxy's error page or a full disk does not mean that the grant has ended.
            if refused is not None or record is None or _is_over(record):
                raise
            log.warning("%s; still using the old token", error.message)
            self._adopt(record)
            self._good_until = min(time.time() + REFRESH_RETRY_INTERVAL, record.expires_at or math.inf)

    def _shared_turn(self) -> contextlib.AbstractAsyncContextManager[SharedTurn | None]:
        if self._shared is None or self._is_machine():
            return contextlib.nullcontext()
        return self._shared.refreshing(self.target.principal, self.target.server, REFRESH_LOCK_TIMEOUT)

    async def _new_token(
        self, record: SignInRecord | None, turn: RefreshTurn, shared: SharedTurn | None
    ) -> SignInRecord:
        """Ask the authorization server, unless it has just failed."""
        issuer = origin_of(self.target.url) if record is None else record.issuer
        pause = self._back_off.pause(issuer, self.target.key, time.time())
        if pause is not None:
            seconds, why = pause
            raise NotNow(f"{why}; the next attempt is in {math.ceil(seconds)} s", hint="try again later")
        try:
            if self._is_machine():
                return await self._machine_token(None if record is None else record.issuer)
            assert record is not None
            return await self._refreshed(record, turn, shared)
        except SignInFailed as error:
            self._back_off.failed(issuer, self.target.key, time.time(), error.message)
            raise
        finally:
            self._is_sent = False

    async def _machine_token(self, issuer: str | None) -> SignInRecord:
        target = self.target
        attempt = SignInRequest(url=target.url, settings=target.settings, bound_issuer=issuer, now=time.time())
        if profile_for(target.url, target.settings).grant == "jwt_bearer":
            grant = await self._identified(attempt)
        else:
            grant = await run(flow.client_credentials(attempt), self._client(), environ=target.environ)
        self._back_off.answered(issuer or origin_of(target.url))
        record = record_of(target, grant)
        try:
            await keep(self._store, target, record)
        except StoreUnusable as error:
            # Nothing is lost with it: a machine can always get another one.
            log.warning("%s; the new token is used all the same", error.message)
        return record

    async def _identified(self, attempt: SignInRequest) -> Grant:
        """Access with an identity, fetched now because it may be valid for minutes only."""
        from mcp_workbench.signin.identity_grant import IdentityRefused, jwt_bearer

        target, source = self.target, None
        if target.provider is not None:
            source = self._source_of(target.provider, {})
            identity = await source.identity_token()
        elif target.fetch_identity is not None:
            identity = await target.fetch_identity()
        else:
            identity = (target.settings and target.settings.identity_token) or ""
        if not identity:
            raise SignInFailed(
                "`jwt_bearer` needs an identity",
                hint="set `identityProvider` or `identityToken` in `oauth` of this server",
            )
        self._redactor.replace(self.owner, secrets_fetched(identity))
        try:
            return await run(jwt_bearer(attempt, identity), self._client(), environ=target.environ)
        except IdentityRefused as error:
            if source is None:
                raise
            raise source._needed(f"wants you to sign in again: {error.message}") from None

    async def identity_token(self) -> str:
        """Of an identity provider: the ID token of whoever signed in. Raises `SignInNeeded`."""
        await self.fetch()
        if self._record is None or not self._record.id_token:
            raise self._needed("wants you to sign in")
        return self._record.id_token

    async def _refreshed(
        self, record: SignInRecord, turn: RefreshTurn, shared: SharedTurn | None = None
    ) -> SignInRecord:
        target, now = self.target, time.time()
        self._conceal(record)
        if record.refresh_token is None or record.ended:
            raise self._needed_again(record)
        grant = RefreshGrant(
            record.token_endpoint, record.client, record.refresh_token, record.resource, record.dpop_key
        )
        credentials = profile_for(target.url, target.settings, record.issuer).credentials
        forgets_client = False
        try:
            if turn.was_exchanged(record.refresh_token):
                raise GrantOver("the last token could not be stored before the workbench that had it ended")
            if shared is not None and shared.is_lost:
                raise GrantOver("an instance that refreshed it ended before it could store the new token")
            self._store.reserve(turn, record.refresh_token)
            if shared is not None:
                await shared.send()
            self._is_sent = True
            tokens = await run(flow.refresh(grant, credentials), self._client(), environ=target.environ)
            renewed = with_tokens(record, tokens, now)
        except (GrantOver, ClientUnknown) as error:
            renewed, forgets_client = replace(record, ended=error.message), isinstance(error, ClientUnknown)
        except SignInFailed:
            # There is no telling whether it was exchanged. If it was not, another attempt is all that is needed.
            turn.settle()
            if shared is not None:
                shared.fail()
            raise
        self._back_off.answered(record.issuer)
        if renewed.ended or renewed.refresh_token != record.refresh_token:
            turn.answered()
        else:
            turn.settle()
        if shared is not None:
            # First: if we are killed after it, the other instances have the new token.
            await self._share(renewed, shared, is_reusable=renewed.refresh_token == record.refresh_token)
        contents = await self._store.renew(renewed, record, turn, forgets_client=forgets_client)
        found = target.find(contents)
        if found is None:
            raise self._needed("wants you to sign in: you have signed out meanwhile")
        if found.ended:
            raise self._needed_again(found)
        return found

    async def _share(self, renewed: SignInRecord, shared: SharedTurn, *, is_reusable: bool) -> None:
        assert self._shared is not None
        place = renewed.principal, renewed.server
        others = (each for each in self._store.read().records if each.key != renewed.key)
        records = [*(each for each in others if (each.principal, each.server) == place), renewed]
        await shared.store(records, is_reusable=is_reusable and not renewed.ended)
        self._shared.known(records)

    async def _step_up(self, refusal: CredentialRefusal, record: SignInRecord | None) -> bool:
        """*Step-Up Authorization Flow*: request missing scopes, unless they were requested before and not granted."""
        wanted = parse(refusal.challenge).scope
        if record is None or not wanted or set(wanted) <= {*record.asked, *record.scopes}:
            return False
        await self._want(refusal.challenge, record)
        raise self._needed(f"wants you to allow more ({' '.join(wanted)})")

    async def _want(self, challenge: str, record: SignInRecord | None) -> None:
        scopes = () if record is None else tuple(dict.fromkeys((*record.asked, *record.scopes)))
        wanted = WantedSignIn(
            principal=self.target.principal, server=self.target.server, challenge=challenge, scopes=scopes
        )
        await self._store.change(lambda contents: contents.want(wanted))

    def _conceal(self, record: SignInRecord) -> None:
        """Redact the tokens, because servers quote what they were sent."""
        secrets = (record.access_token, record.refresh_token, record.client.secret, record.id_token)
        hidden = [each for secret in secrets if secret for each in secrets_fetched(secret)]
        self._redactor.replace(self.owner, hidden)

    def _adopt(self, record: SignInRecord | None) -> None:
        if record is not None:
            self._conceal(record)
        if record is None or not record.access_token or record.ended:
            # Not signed in: send none, and let the server say whether a sign-in is required.
            self._token, self._headers, self._good_until = None, self._base, math.inf
            self._record = None
            return
        self._record = record
        if not self._is_warned and (text := self.note()):
            self._is_warned = True
            log.warning("%s: %s", origin_of(self.target.url), text)
        if record.access_token != self._token:
            self._token = record.access_token
            self._headers = {**self._base, "authorization": _authorization(record)}
            if record.dpop_key:
                self._headers = ProvenHeaders(self._headers, TokenProof(self._proof_key(record), record.access_token))
        self._refresh_at = due_at(record)
        self._good_until = min(self._refresh_at, time.time() + STORE_CHECK_INTERVAL)

    def _proof_key(self, record: SignInRecord) -> ProofKey:
        """The key of this sign-in, with the nonce that the server gave last."""
        if self._key is None or self._key.written != record.dpop_key:
            self._key = ProofKey(record.dpop_key)
        return self._key

    def _is_machine(self) -> bool:
        return profile_for(self.target.url, self.target.settings).grant != "authorization_code"

    def _needed_again(self, record: SignInRecord) -> SignInNeeded:
        return self._needed("wants you to sign in again" + (f": {record.ended}" if record.ended else ""))

    def _needed(self, what: str) -> SignInNeeded:
        return SignInNeeded(
            f"{origin_of(self.target.url)} {what}",
            hint=f"run `{self.target.command}`, or put a token into `headers` of this server",
        )


def record_of(target: SignInTarget, grant: Grant) -> SignInRecord:
    """The record of a sign-in that has just been completed."""
    now, server = time.time(), grant.discovery.server
    record = SignInRecord(
        principal=target.principal,
        server=target.server,
        issuer=server.identifier,
        client=grant.client,
        token_endpoint=server.token_endpoint,
        revocation_endpoint=server.revocation_endpoint,
        resource=grant.discovery.resource,
        scopes=grant.scopes if grant.tokens.scopes is None else grant.tokens.scopes,
        asked=grant.scopes,
        signed_in_at=now,
        grant=grant.discovery.profile.grant,
        account=account_in(grant.tokens.id_token),
        dpop_key=grant.dpop_key,
        id_token=(grant.tokens.id_token or "") if target.is_provider else "",
    )
    days = grant.discovery.profile.grant_days
    record = replace(record, grant_limit_at=None if days is None else now + days * DAY)
    return with_tokens(record, grant.tokens, now)


async def keep(store: TokenStore, target: SignInTarget, record: SignInRecord) -> None:
    """Store the record of a sign-in, replacing the previous one."""

    def change(contents: Contents) -> None:
        target.remove(contents)
        contents.put(record)

    await store.change(change)


def with_tokens(record: SignInRecord, tokens: Tokens, now: float) -> SignInRecord:
    """The record with new tokens. Without a new refresh token, the old one stays valid (RFC 6749, section 6)."""
    ends = [] if tokens.expires_in is None else [now + tokens.expires_in]
    if record.id_token and tokens.id_token and (end := expiry_of(tokens.id_token)) is not None:
        ends.append(end)
    return replace(
        record,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or record.refresh_token,
        id_token=(tokens.id_token or record.id_token) if record.id_token else "",
        expires_at=min(ends, default=None),
        obtained_at=now,
        refresh_ends_at=None if tokens.refresh_expires_in is None else now + tokens.refresh_expires_in,
        scopes=record.scopes if tokens.scopes is None else tokens.scopes,
        ended="",
    )


def due_at(record: SignInRecord) -> float:
    """When a token should be refreshed. One that cannot be is used for as long as the server accepts it."""
    if record.expires_at is None or (record.refresh_token is None and record.grant == "authorization_code"):
        return math.inf
    return record.obtained_at + REFRESH_AT * (record.expires_at - record.obtained_at)


def account_in(id_token: str | None) -> str | None:
    """The account named by an ID token. Only shown to people, so it is not verified."""
    claims = _claims(id_token)
    found = next((claims[name] for name in ("email", "preferred_username", "name", "sub") if claims.get(name)), None)
    return found[:200] if isinstance(found, str) else None


def expiry_of(id_token: str) -> float | None:
    """When an ID token expires. Decides only when a new one is fetched, so it is not verified."""
    found = _claims(id_token).get("exp")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _claims(token: str | None) -> dict[str, Any]:
    import base64

    from msgspec import MsgspecError
    from msgspec.json import decode

    try:
        body = (token or "").split(".")[1]
        claims = decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError, MsgspecError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _serves(record: SignInRecord | None, refused: str | None) -> bool:
    """Whether the record's token can be used as it is."""
    if record is None or not record.access_token or record.ended or record.access_token == refused:
        return False
    return time.time() < due_at(record)


def _is_over(record: SignInRecord) -> bool:
    return record.expires_at is not None and time.time() >= record.expires_at


def _authorization(record: SignInRecord) -> str:
    if record.dpop_key:
        return f"DPoP {record.access_token}"
    # Always `Bearer`: some servers return `token_type` in lower case and then refuse it in that form.
    return f"Bearer {record.access_token}"
