"""The token endpoint: exchanging codes, refresh tokens and client credentials, and interpreting its responses. Pure.

Owns client authentication, what counts as a token, and which errors are permanent.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from msgspec import Struct

from mcp_workbench.signin.assertion import ASSERTION_TYPE, Credentials, sign
from mcp_workbench.signin.client_registration import BASIC, NONE, POST, PRIVATE_KEY, OAuthClient
from mcp_workbench.signin.dpop import DPOP_SCHEME, ProofKey, post
from mcp_workbench.signin.flow_io import (
    NotNow,
    OAuthRequest,
    OAuthResponse,
    Requests,
    SignInFailed,
    origin_of,
    post_form,
)

# A longer lifetime is nonsense; such a token is used for as long as the server accepts it.
MAX_TOKEN_LIFETIME: Final = 10 * 366 * 86400.0
# Errors that end a grant, although RFC 6749, section 5.2, defines only `invalid_grant` for this: Atlassian
# (`unauthorized_client`), older better-auth (`invalid_request`), and servers that renamed their resource. In the RFC,
# the others mean that the request is malformed. But a refresh repeats a request that worked before, so it would be
# refused again: only a new sign-in helps.
_GRANT_IS_OVER: Final = frozenset(
    (
        "invalid_grant",
        "unauthorized_client",
        "invalid_target",
        "invalid_request",
        "invalid_scope",
        "access_denied",
        "refresh_token_not_found",
        "bad_refresh_token",
        "refresh_token_already_used",
        # Slack's, sent with status 200.
        "invalid_refresh_token",
        "token_expired",
        "token_revoked",
    )
)


class Tokens(Struct, frozen=True, kw_only=True):
    """The tokens that an authorization server issued."""

    access_token: str
    refresh_token: str | None = None
    # Seconds from now; None if missing or nonsensical.
    expires_in: float | None = None
    # The same for the refresh token: not in any standard, but sent by several servers.
    refresh_expires_in: float | None = None
    # None: as requested.
    scopes: tuple[str, ...] | None = None
    id_token: str | None = None
    # Bound to the key of the proof that was sent with the request.
    is_bound: bool = False


class GrantOver(SignInFailed):
    """The grant has ended: only the user can renew it."""


class ClientUnknown(SignInFailed):
    """The authorization server does not know our client, or no longer does."""


def request(
    endpoint: str, client: OAuthClient, credentials: Credentials, fields: Mapping[str, str | None]
) -> OAuthRequest:
    """A request to the token endpoint, or one with the same authentication, as this client."""
    form = {name: value for name, value in fields.items() if value}
    headers: dict[str, str] = {}
    secret = client.secret if client.is_registered else credentials.secret
    match client.auth_method:
        case method if method == BASIC and secret is not None:
            # No credentials in the body as well: servers refuse two methods at once (RFC 6749, section 2.3).
            pair = f"{quote_plus(client.id)}:{quote_plus(secret)}".encode()
            headers["authorization"] = "Basic " + base64.b64encode(pair).decode()
        case method if method in (BASIC, POST) and secret is None:
            raise SignInFailed(
                f"the client `{client.id}` needs a secret, and the configuration has none",
                hint="set `clientSecret` in `oauth` of this server",
            )
        case method if method == PRIVATE_KEY:
            form["client_id"] = client.id
            form["client_assertion_type"] = ASSERTION_TYPE
            form["client_assertion"] = sign(credentials, client.id, client.issuer, time.time())
        case _:
            form["client_id"] = client.id
            if client.auth_method != NONE and secret is not None:
                form["client_secret"] = secret
    return post_form(endpoint, form, headers, named_by=client.issuer)


def ask(
    endpoint: str,
    client: OAuthClient,
    credentials: Credentials,
    fields: Mapping[str, str | None],
    key: ProofKey | None = None,
) -> Requests[Tokens]:
    """Send a request, with proof if there is a key, and read the tokens. Raises `GrantOver`, `ClientUnknown`, `NotNow`,
    `SignInFailed`."""
    answer = yield from post(lambda: request(endpoint, client, credentials, fields), key)
    return read(answer, origin_of(endpoint))


def read(answer: OAuthResponse, where: str) -> Tokens:
    """Read the tokens in a response. Any 2xx status is a success, unless there is no usable token."""
    fields = answer.fields()
    error = fields.get("error") or fields.get("error_code")
    if answer.status == 0 or answer.status >= 500 or answer.status in (408, 425, 429):
        raise NotNow(
            f"{where} did not answer the request for a token ({_said(answer, fields)})", hint="try again later"
        )
    if answer.is_good and (tokens := _tokens(fields)) is not None:
        return tokens
    said = _said(answer, fields)
    if error in ("invalid_client", "unrecognized_client", "invalid_client_id"):
        raise ClientUnknown(
            f"{where} does not know the workbench's client ({said})", hint="sign in again to register again"
        )
    if error in _GRANT_IS_OVER:
        raise GrantOver(f"{where} refused ({said})", hint="sign in again")
    raise SignInFailed(f"{where} issued no token ({said})", hint="try to sign in again")


def _tokens(fields: dict[str, Any]) -> Tokens | None:
    found = fields
    if not isinstance(fields.get("access_token"), str) and isinstance(fields.get("authed_user"), dict):
        # Slack nests the user's token.
        found = fields["authed_user"]
    access = found.get("access_token")
    if fields.get("ok") is False or not isinstance(access, str) or not access.strip():
        return None
    user = fields.get("authed_user")
    if not found.get("scope") and isinstance(user, dict) and user.get("access_token") == access:
        found = {**found, "scope": user.get("scope")}
    refresh, scope, id_token = found.get("refresh_token"), found.get("scope"), found.get("id_token")
    return Tokens(
        access_token=access.strip(),
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        expires_in=_life(found.get("expires_in")),
        # Keycloak sends 0 for a token that never expires.
        refresh_expires_in=_life(found.get("refresh_token_expires_in", found.get("refresh_expires_in"))) or None,
        scopes=tuple(scope.replace(",", " ").split()) if isinstance(scope, str) and scope.strip() else None,
        id_token=id_token if isinstance(id_token, str) else None,
        is_bound=str(found.get("token_type", "")).lower() == DPOP_SCHEME,
    )


def _life(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        return None
    return seconds if 0 <= seconds <= MAX_TOKEN_LIFETIME else None


def _said(answer: OAuthResponse, fields: dict[str, Any]) -> str:
    if answer.status == 0:
        return answer.body.decode(errors="replace")[:200]
    parts = [str(fields[name]) for name in ("error", "error_code", "error_description") if fields.get(name)]
    text = " ".join(": ".join(parts).split())[:200]
    return text or f"status {answer.status}"
