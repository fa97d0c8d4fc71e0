"""The sign-in, from a challenge to tokens, without I/O: one file to read beside the specification.

`sign_in` is a generator. It yields an `OAuthRequest` and is sent its `OAuthResponse`; it yields one
`AuthorizationRequest` and is sent what arrived at the callback; it returns a `Grant`. *Authorization*, 2025-11-25 and
2026-07-28, in order: discovery, client identity, scope selection, authorization request with PKCE, state and resource,
validation of the response with `iss`, token request. `refresh`, `device_code`, `client_credentials` and `revoke` are
the other grants.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Generator, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin import token_requests
from mcp_workbench.signin.assertion import Credentials
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.client_registration import DEVICE_GRANT, OAuthClient, choose, configured
from mcp_workbench.signin.discovery import Discovery, discover
from mcp_workbench.signin.dpop import ProofKey, post
from mcp_workbench.signin.dpop import choose as choose_key
from mcp_workbench.signin.flow_io import (
    AuthorizationRequest,
    DeviceCodeWait,
    OAuthRequest,
    OAuthResponse,
    Registered,
    Requests,
    SignInFailed,
    origin_of,
)
from mcp_workbench.signin.token_requests import Tokens

T = TypeVar("T")
OFFLINE_SCOPE: Final = "offline_access"
# RFC 8628: poll every five seconds by default, and five seconds slower after each `slow_down`.
DEVICE_PAUSE: Final = 5.0
MAX_DEVICE_POLL_INTERVAL: Final = 60.0
# No server accepts a device code after this time.
DEVICE_CODE_TIMEOUT: Final = 1800.0


class SignInRequest(Struct, frozen=True, kw_only=True):
    url: str
    challenge: Challenge = Challenge()
    settings: OAuthConfig | None = None
    # None without a callback (device code, client credentials).
    redirect_uri: str | None = None
    # Scopes granted or requested before: a step-up requests them again.
    earlier_scopes: tuple[str, ...] = ()
    # Previous registrations, by issuer.
    clients: Mapping[str, OAuthClient] = {}
    # The authorization server that the configured credentials were sent to before; None if they are new.
    bound_issuer: str | None = None
    now: float = 0.0


class Grant(Struct, frozen=True, kw_only=True):
    discovery: Discovery
    client: OAuthClient
    tokens: Tokens
    # The scopes requested; the tokens name those granted, if they differ.
    scopes: tuple[str, ...] = ()
    # The private key that the tokens are bound to, as a JWK; "" for bearer tokens.
    dpop_key: str = ""


# Everything that a sign-in may ask for.
Steps = Generator[
    OAuthRequest | AuthorizationRequest | DeviceCodeWait | Registered, OAuthResponse | Mapping[str, str] | None, T
]


def sign_in(attempt: SignInRequest) -> Steps[Grant]:
    """The authorization code grant with PKCE."""
    discovery = yield from bound_discovery(attempt)
    server = discovery.server
    if server.authorization_endpoint is None or attempt.redirect_uri is None:
        raise SignInFailed(
            f"{server.identifier} has no sign-in page", hint="use a device code, or a token in `headers`"
        )
    client = yield from prepare(attempt, discovery)
    scopes = select_scopes(attempt, discovery)
    key = yield from choose_key(discovery, attempt.challenge, attempt.url)
    verifier, challenge = pkce()
    state = os.urandom(24).hex()
    fields = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": attempt.redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        discovery.profile.scope_param: discovery.profile.scope_separator.join(scopes),
        "resource": discovery.resource,
        "dpop_jkt": None if key is None else key.thumbprint,
        # OpenID Connect allows servers to ignore `offline_access` without it.
        "prompt": "consent" if OFFLINE_SCOPE in scopes else None,
        **discovery.profile.extra_authorize_params,
    }
    returned = yield AuthorizationRequest(
        with_query(server.authorization_endpoint, fields), attempt.redirect_uri, state
    )
    assert isinstance(returned, Mapping)
    code = check_response(returned, state, discovery)
    asked = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": verifier,
        "resource": discovery.resource,
    }
    given = yield from token_requests.ask(server.token_endpoint, client, discovery.profile.credentials, asked, key)
    return granted(discovery, client, given, scopes, key)


def granted(
    discovery: Discovery, client: OAuthClient, tokens: Tokens, scopes: tuple[str, ...], key: ProofKey | None
) -> Grant:
    """RFC 9449, section 5: an authorization server may give a bearer token all the same, which is not always enough."""
    is_bound = key is not None and tokens.is_bound
    if key is not None and not is_bound and (discovery.requires_dpop or discovery.profile.dpop == "always"):
        raise SignInFailed(
            f"{origin_of(discovery.server.identifier)} issued a token that is not bound to a key (DPoP)",
            hint="tell its operator; unless the server insists, `dpop` in `oauth` can be `never`",
        )
    written = key.written if key is not None and is_bound else ""
    return Grant(discovery=discovery, client=client, tokens=tokens, scopes=scopes, dpop_key=written)


def bound_discovery(attempt: SignInRequest) -> Requests[Discovery]:
    """*Authorization Server Binding*: configured credentials are for one authorization server. Otherwise an MCP server
    could have the secret sent to another one, unnoticed."""
    discovery = yield from discover(attempt.url, attempt.challenge, attempt.settings)
    profile, now = discovery.profile, discovery.server.identifier
    is_secret = profile.client_id is not None or profile.initial_access_token is not None
    if is_secret and attempt.bound_issuer not in (None, now) and profile.issuer is None:
        raise SignInFailed(
            f"{origin_of(attempt.url)} now names another authorization server, `{now[:200]}`; the credentials in "
            f"`oauth` were for `{attempt.bound_issuer}` and are not sent there",
            hint="if that is right, configure the client that you have there, and set `issuer` in `oauth` of this "
            "server",
        )
    return discovery


def prepare(attempt: SignInRequest, discovery: Discovery) -> Steps[OAuthClient]:
    """Choose or register our client at this authorization server, ignoring those of other issuers."""
    earlier = attempt.clients.get(discovery.server.identifier)
    client: OAuthClient = yield from choose(discovery, attempt.redirect_uri, earlier, attempt.now, attempt.url)
    if client.is_registered and client != earlier:
        yield Registered(client)
    return client


def select_scopes(attempt: SignInRequest, discovery: Discovery) -> tuple[str, ...]:
    """*Scope Selection Strategy*: the scopes in the challenge, else all that the resource supports, else none; a
    step-up adds those requested before. `offline_access` only if the authorization server supports it."""
    profile = discovery.profile
    if profile.scopes is not None:
        asked = [*profile.scopes, *attempt.earlier_scopes, *attempt.challenge.scope]
        return tuple(dict.fromkeys(asked))
    asked = list(attempt.challenge.scope or discovery.resource_scopes or ())
    asked = [*attempt.earlier_scopes, *asked] if attempt.earlier_scopes else asked
    offered = OFFLINE_SCOPE in discovery.server.scopes_supported
    if profile.offline_access == "always" or (profile.offline_access == "auto" and offered):
        asked.append(OFFLINE_SCOPE)
    elif profile.offline_access == "never" or discovery.server.scopes_supported:
        asked = [scope for scope in asked if scope != OFFLINE_SCOPE]
    return tuple(dict.fromkeys(asked))


def check_response(returned: Mapping[str, str], state: str, discovery: Discovery) -> str:
    """*Authorization Response Validation*: return the code after verifying state and issuer. Until then, not even an
    error is trusted."""
    if not hmac.compare_digest(returned.get("state", "").encode(), state.encode()):
        raise SignInFailed("the callback does not belong to this sign-in (`state`)", hint="start again")
    server, issuer = discovery.server, returned.get("iss")
    # RFC 9207: simple string comparison, for error responses as well.
    if issuer is None and server.sends_iss:
        raise SignInFailed(
            f"the callback lacks `iss`, which {server.identifier} says that it sends",
            hint="do not continue: a different server may have answered",
        )
    if issuer is not None and issuer != server.issuer:
        raise SignInFailed(
            f"the callback comes from another authorization server, `{issuer[:200]}`",
            hint="do not continue: a different server may have answered",
        )
    if "error" in returned:
        said = ": ".join(filter(None, (returned["error"], returned.get("error_description"))))
        raise SignInFailed(f"{origin_of(server.identifier)} refused the sign-in ({said[:300]})", hint="start again")
    code = returned.get("code")
    if not code:
        raise SignInFailed("the callback contains no code", hint="start again; paste the whole address")
    return code


def refresh(grant: RefreshGrant, credentials: Credentials) -> Requests[Tokens]:
    """Exchange a refresh token for new tokens, at the endpoint and as the client it was issued to."""
    fields = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "resource": grant.resource}
    key = ProofKey(grant.dpop_key) if grant.dpop_key else None
    return (yield from token_requests.ask(grant.token_endpoint, grant.client, credentials, fields, key))


class RefreshGrant(Struct, frozen=True):
    """What a refresh needs, all recorded at sign-in, so that nothing has to be discovered again."""

    token_endpoint: str
    client: OAuthClient
    refresh_token: str
    resource: str | None
    dpop_key: str = ""


def client_credentials(attempt: SignInRequest) -> Requests[Grant]:
    """The client credentials grant, for machines: the client acts for itself, without a user."""
    discovery = yield from bound_discovery(attempt)
    if not discovery.profile.client_id:
        raise SignInFailed(
            "`client_credentials` needs a client",
            hint="set `clientId`, and `clientSecret` or `privateKey`, in `oauth` of this server",
        )
    client = configured(discovery.server, discovery.profile)
    scopes = select_scopes(attempt, discovery)
    key = yield from choose_key(discovery, attempt.challenge, attempt.url)
    asked = {"grant_type": "client_credentials", "scope": " ".join(scopes), "resource": discovery.resource}
    endpoint, credentials = discovery.server.token_endpoint, discovery.profile.credentials
    given = yield from token_requests.ask(endpoint, client, credentials, asked, key)
    return granted(discovery, client, given, scopes, key)


def device_code(attempt: SignInRequest) -> Steps[Grant]:
    """The device code grant (RFC 8628): the user enters a code on another device."""
    discovery = yield from bound_discovery(attempt)
    server = discovery.server
    if server.device_authorization_endpoint is None:
        raise SignInFailed(
            f"{server.identifier} does not support device codes", hint="use `login --no-browser` and paste the callback"
        )
    client = yield from prepare(attempt, discovery)
    scopes = select_scopes(attempt, discovery)
    fields = {"scope": " ".join(scopes), "resource": discovery.resource}
    begun = yield token_requests.request(
        server.device_authorization_endpoint, client, discovery.profile.credentials, fields
    )
    assert isinstance(begun, OAuthResponse)
    given = begun.fields()
    device, code, page = given.get("device_code"), given.get("user_code"), given.get("verification_uri")
    if not begun.is_good or not all(isinstance(each, str) and each for each in (device, code, page)):
        raise SignInFailed(f"{origin_of(server.identifier)} issued no device code (status {begun.status})")
    limit = min(_seconds(given.get("expires_in"), DEVICE_CODE_TIMEOUT), DEVICE_CODE_TIMEOUT)
    pause, waited = min(_seconds(given.get("interval"), DEVICE_PAUSE), limit), 0.0
    asked = {"grant_type": DEVICE_GRANT, "device_code": device, "resource": discovery.resource}
    credentials = discovery.profile.credentials
    key = yield from choose_key(discovery, attempt.challenge, attempt.url)
    page = given.get("verification_uri_complete") or page
    while waited < limit:
        yield DeviceCodeWait(pause, str(page) if not waited else "", str(code))
        waited += pause
        answer = yield from post(lambda: token_requests.request(server.token_endpoint, client, credentials, asked), key)
        error = answer.fields().get("error")
        if error == "slow_down":
            pause = min(pause + DEVICE_PAUSE, MAX_DEVICE_POLL_INTERVAL)
        elif error != "authorization_pending":
            found = token_requests.read(answer, origin_of(server.token_endpoint))
            return granted(discovery, client, found, scopes, key)
    raise SignInFailed("the code was not entered in time", hint="start again")


def revoke(endpoint: str, client: OAuthClient, credentials: Credentials, token: str) -> OAuthRequest:
    """Revoke a token (RFC 7009). With a refresh token, most servers revoke the whole grant."""
    return token_requests.request(endpoint, client, credentials, {"token": token})


def pkce() -> tuple[str, str]:
    """A verifier and its S256 challenge."""
    verifier = _urlsafe(os.urandom(32))
    return verifier, _urlsafe(hashlib.sha256(verifier.encode()).digest())


def with_query(url: str, fields: Mapping[str, str | None]) -> str:
    """Add these fields to the query of an address."""
    parts = urlsplit(url)
    query = [
        *parse_qsl(parts.query, keep_blank_values=True),
        *((name, value) for name, value in fields.items() if value),
    ]
    return urlunsplit(parts._replace(query=urlencode(query)))


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default
