"""Access with a signed identity instead of a sign-in at the server: the JWT bearer grant (RFC 7523, section 2.1).

The identity is a workload's, presented as it is, or a user's at the company's identity provider. The latter is first
exchanged there for an assertion that is good at one authorization server (RFC 8693, *Identity Assertion JWT
Authorization Grant*), so the company decides who may use which server. *Enterprise-Managed Authorization*, in order:
discovery, token exchange, token request. Pure.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.signin import token_requests
from mcp_workbench.signin.assertion import Credentials
from mcp_workbench.signin.client_registration import NONE, OAuthClient, configured, method_with_secret
from mcp_workbench.signin.discovery import Discovery, server_metadata
from mcp_workbench.signin.dpop import choose as choose_key
from mcp_workbench.signin.flow import Grant, SignInRequest, bound_discovery, granted, select_scopes
from mcp_workbench.signin.flow_io import Requests, SignInFailed, origin_of
from mcp_workbench.signin.token_requests import GrantOver

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


class IdentityRefused(SignInFailed):
    """The identity provider no longer accepts the identity."""


def jwt_bearer(attempt: SignInRequest, identity: str) -> Requests[Grant]:
    """Present an identity, exchanged first if there is an identity provider. A refusal is final: neither this grant nor
    another one is tried again."""
    discovery = yield from bound_discovery(attempt)
    server, profile = discovery.server, discovery.profile
    if not profile.client_id:
        raise SignInFailed("`jwt_bearer` needs a client", hint="set `clientId` in `oauth` of this server")
    client = configured(server, profile)
    scopes = select_scopes(attempt, discovery)
    if profile.identity_provider is not None:
        identity = yield from _exchange(discovery, profile.identity_provider, identity, scopes)
    key = yield from choose_key(discovery, attempt.challenge, attempt.url)
    asked = {
        "grant_type": JWT_BEARER,
        "assertion": identity,
        "scope": " ".join(scopes),
        "resource": discovery.resource,
    }
    given = yield from token_requests.ask(server.token_endpoint, client, profile.credentials, asked, key)
    return granted(discovery, client, given, scopes, key)


def _exchange(discovery: Discovery, provider: str, identity: str, scopes: tuple[str, ...]) -> Requests[str]:
    """The assertion of the identity provider for this authorization server and this resource alone."""
    profile = discovery.profile
    metadata, _ = yield from server_metadata(provider, None, profile, is_guessed=False)
    if not profile.identity_client_id:
        raise SignInFailed(
            "`identityProvider` needs a client there", hint="set `identityClientId` in `oauth` of this server"
        )
    secret = profile.identity_client_secret
    method = method_with_secret(metadata.token_endpoint_auth_methods_supported) if secret else NONE
    client = OAuthClient(issuer=provider, id=profile.identity_client_id, auth_method=method)
    asked = {
        "grant_type": TOKEN_EXCHANGE_GRANT,
        "requested_token_type": ID_JAG,
        "audience": discovery.server.issuer,
        "resource": discovery.resource,
        "scope": " ".join(scopes),
        "subject_token": identity,
        "subject_token_type": ID_TOKEN,
    }
    answer = yield token_requests.request(metadata.token_endpoint, client, Credentials(secret), asked)
    where = origin_of(metadata.token_endpoint)
    try:
        given = token_requests.read(answer, where)
    except GrantOver as error:
        raise IdentityRefused(
            f"{error.message}, asked for access to {discovery.server.identifier}",
            hint="sign in again; if that does not help, ask whoever runs the identity provider for access",
        ) from None
    if answer.fields().get("issued_token_type") != ID_JAG:
        raise SignInFailed(
            f"{where} does not issue assertions for other authorization servers (ID-JAG)",
            hint="ask whoever runs the identity provider to allow cross-app access",
        )
    return given.access_token
