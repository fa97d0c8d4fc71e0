"""Which client we are to an authorization server: a configured one, our published metadata document, or a registration.

They are tried in the order of the specification. Credentials belong to the issuer that issued them and are never sent
to another. Pure.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mcp_workbench.signin.discovery import AuthorizationServer, Discovery
from mcp_workbench.signin.flow_io import OAuthResponse, Requests, SignInFailed, origin_of, post_json
from mcp_workbench.signin.profiles import Profile

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
NONE: Final = "none"
PRIVATE_KEY: Final = "private_key_jwt"
REGISTERED_NAME: Final = "MCP Workbench"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """A client of one authorization server."""

    issuer: str
    id: str
    # None for public clients, and for clients whose secret is in the configuration.
    secret: str | None = None
    auth_method: str = NONE
    # Empty for clients that the user has registered.
    redirect_uris: tuple[str, ...] = ()
    is_registered: bool = False
    # When the secret expires, in seconds since 1970; 0: never.
    secret_ends_at: float = 0.0
    # Whether it is registered for the device code grant too.
    takes_device_codes: bool = False


def choose(
    discovery: Discovery, redirect_uri: str | None, earlier: OAuthClient | None, now: float, url: str
) -> Requests[OAuthClient]:
    """Choose the client to sign in as. `earlier` is a previous registration with this issuer. Without a redirect
    address, the client is for the device code grant."""
    server, profile = discovery.server, discovery.profile
    if profile.client_id:
        return configured(server, profile)
    if profile.client_metadata_url and server.takes_client_metadata_url:
        return OAuthClient(issuer=server.identifier, id=profile.client_metadata_url)
    if earlier is not None and is_usable(earlier, server, redirect_uri, now):
        return earlier
    if server.registration_endpoint is None:
        raise closed(discovery, redirect_uri, url)
    return (yield from register(discovery, server.registration_endpoint, redirect_uri, url))


def configured(server: AuthorizationServer, profile: Profile) -> OAuthClient:
    """The client that the user has set up."""
    assert profile.client_id is not None
    supported = server.token_endpoint_auth_methods_supported
    method = profile.token_auth_method
    if method is None:
        if profile.private_key:
            method = PRIVATE_KEY
        else:
            method = method_with_secret(supported) if profile.client_secret else NONE
    return OAuthClient(issuer=server.identifier, id=profile.client_id, auth_method=method)


def is_usable(client: OAuthClient, server: AuthorizationServer, redirect_uri: str | None, now: float) -> bool:
    """Whether a registration can be used again: same issuer, same callback, and a secret that has not expired."""
    return (
        client.issuer == server.identifier
        and (client.takes_device_codes if redirect_uri is None else redirect_uri in client.redirect_uris)
        and not 0 < client.secret_ends_at <= now
    )


def register(discovery: Discovery, endpoint: str, redirect_uri: str | None, url: str) -> Requests[OAuthClient]:
    """Register as RFC 7591 describes, with the `application_type` that MCP 2026-07-28 adds."""
    server = discovery.server
    supported = server.token_endpoint_auth_methods_supported
    asked = discovery.profile.token_auth_method
    if asked is None:
        # A program on the user's machine cannot keep a secret, so we are a public client wherever the server allows it.
        asked = NONE if not supported or NONE in supported else method_with_secret(supported)
    # Where the server offers device codes, one registration covers both grants.
    by_code = [] if redirect_uri is None else ["authorization_code"]
    by_device = [DEVICE_GRANT] if server.device_authorization_endpoint is not None else []
    fields = {
        "client_name": REGISTERED_NAME,
        "redirect_uris": [redirect_uri] if redirect_uri else [],
        # Some servers issue a refresh token only to clients that registered for it.
        "grant_types": [*by_code, *by_device, "refresh_token"],
        "response_types": ["code"] if redirect_uri else [],
        "token_endpoint_auth_method": asked,
        "application_type": "native",
    }
    token = discovery.profile.initial_access_token
    headers = {"authorization": f"Bearer {token}"} if token else None
    answer = yield post_json(endpoint, fields, headers, named_by=server.identifier)
    given = answer.fields()
    id = given.get("client_id")
    if not answer.is_good or not isinstance(id, str) or not id:
        if answer.status >= 500 or answer.status in (0, 429):
            raise SignInFailed(
                f"{origin_of(endpoint)} could not register the workbench ({_said(answer)})", hint="try again later"
            )
        if server.is_guessed and answer.status in (404, 405):
            raise SignInFailed(
                f"{origin_of(url)} offers no sign-in", hint="if it wants a token, put it into `headers` of this server"
            )
        raise closed(discovery, redirect_uri, url, _said(answer))
    secret = given.get("client_secret")
    secret = secret if isinstance(secret, str) and secret else None
    ends = given.get("client_secret_expires_at")
    return OAuthClient(
        issuer=server.identifier,
        id=id,
        secret=secret,
        auth_method=_method_given(given.get("token_endpoint_auth_method"), secret, asked, supported),
        redirect_uris=(redirect_uri,) if redirect_uri else (),
        is_registered=True,
        takes_device_codes=bool(by_device),
        secret_ends_at=float(ends) if isinstance(ends, int | float) and secret else 0.0,
    )


def _method_given(said: object, secret: str | None, asked: str, supported: tuple[str, ...]) -> str:
    """How to authenticate. Some servers answer `none`, or nothing, but issue a secret anyway and then require it
    (Figma, Supabase)."""
    if secret is None:
        return NONE
    if isinstance(said, str) and said not in ("", NONE):
        return said
    if supported == (NONE,):
        return NONE
    return POST if not supported or POST in supported else method_with_secret(supported) if said is None else asked


def method_with_secret(supported: tuple[str, ...]) -> str:
    """The method to authenticate with a secret. RFC 8414: `client_secret_basic` where the metadata names none."""
    return next((method for method in (BASIC, POST) if method in supported), POST if NONE in supported else BASIC)


def closed(discovery: Discovery, redirect_uri: str | None, url: str, said: str = "") -> SignInFailed:
    """The error where clients cannot register themselves: which app to create, and where to put its values."""
    server, profile = discovery.server, discovery.profile
    why = f"refuses to register new clients ({said})" if said else "does not let programs register"
    app = profile.app or f"create an OAuth app for a native client at {origin_of(server.identifier)}"
    steps = [f"{app}, with the redirect address `{redirect_uri}`" if redirect_uri else app]
    steps.append("put its `clientId` (and `clientSecret`, if it has one) into `oauth` of this server")
    if redirect_uri is not None and profile.callback_port is None:
        steps.append(f"with `callbackPort` {redirect_uri.rpartition(':')[2].partition('/')[0]}")
    if profile.header_key:
        steps.append(f"or, without signing in, {profile.header_key}")
    return SignInFailed(
        f"{origin_of(server.identifier)}, where {origin_of(url)} lets people sign in, {why}", hint=", ".join(steps)
    )


def _said(answer: OAuthResponse) -> str:
    fields = answer.fields()
    text = fields.get("error_description") or fields.get("error") or fields.get("message")
    if not isinstance(text, str):
        text = "" if "html" in answer.content_type else answer.body[:200].decode(errors="replace")
    text = " ".join(text.split())[:200]
    return f"{answer.status}: {text}" if text else f"status {answer.status}"
