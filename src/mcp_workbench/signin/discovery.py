"""Find the authorization server that an MCP server trusts, and read its metadata.

2025-11-25 and 2026-07-28, *Authorization Server Discovery*: protected resource metadata (RFC 9728) from the address in
the challenge, else at the path, else at the root; then authorization server metadata (RFC 8414, OpenID Connect
Discovery) in the order given there, with its `issuer` verified. Without protected resource metadata, the rules of
2025-03-26 apply: the server's own origin is the authorization server, with default endpoints if it publishes no
metadata either. Pure.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.flow_io import (
    NotNow,
    OAuthResponse,
    Requests,
    SignInFailed,
    checked_url,
    get,
    origin_of,
    words,
)
from mcp_workbench.signin.profiles import Profile, profile_for


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """The parts of an authorization server's metadata that we use."""

    # The issuer named in the metadata, which `iss` in responses is compared with.
    issuer: str
    # The issuer we asked for, which credentials are bound to. Equal to `issuer` unless a profile waives that check.
    identifier: str
    authorization_endpoint: str | None = None
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    # Empty where the metadata does not list them.
    scopes_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    takes_client_metadata_url: bool = False
    # It publishes no metadata: the endpoints are the defaults of 2025-03-26.
    is_guessed: bool = False
    sends_iss: bool = False
    dpop_signing_alg_values_supported: tuple[str, ...] = ()


class Discovery(Struct, frozen=True, kw_only=True):
    """Everything that is known before the user sees a page."""

    server: AuthorizationServer
    # RFC 8707; None where the parameter is not sent.
    resource: str | None
    # `scopes_supported` of the resource; None where it lists none.
    resource_scopes: tuple[str, ...] | None = None
    # RFC 9728, `dpop_bound_access_tokens_required`.
    requires_dpop: bool = False
    profile: Profile
    warnings: tuple[str, ...] = ()


def discover(url: str, challenge: Challenge, settings: OAuthConfig | None) -> Requests[Discovery]:
    """Find the authorization server of an MCP server, from its address and its challenge."""
    # Every call will send the token to this address.
    checked_url(url, "`url` of this server")
    document = yield from _resource_metadata(url, challenge)
    own = profile_for(url, settings)
    if document is None:
        # 2025-03-26: the authorization base URL is the server's address without its path.
        issuer, is_guessed = own.issuer or origin_of(url), own.issuer is None
    else:
        issuer, is_guessed = own.issuer or words(document["authorization_servers"])[0], False
    profile = profile_for(url, settings, issuer)
    named_by = None if own.issuer or origin_of(issuer) == origin_of(url) else url
    checked_url(issuer, "the authorization server", named_by=named_by)
    resource = _resource(url, document, profile)
    server, warnings = yield from server_metadata(issuer, named_by, profile, is_guessed=is_guessed)
    supported = None if document is None else document.get("scopes_supported")
    return Discovery(
        server=server,
        resource=resource,
        resource_scopes=words(supported) if isinstance(supported, list) else None,
        requires_dpop=document is not None and document.get("dpop_bound_access_tokens_required") is True,
        profile=profile,
        warnings=warnings,
    )


def resource_metadata_urls(url: str, challenge: Challenge) -> list[str]:
    """The addresses at which to look for protected resource metadata, in order."""
    parts = urlsplit(url)
    root = "/.well-known/oauth-protected-resource"
    places = [
        urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], place, query, ""))
        for place, query in (
            (root + parts.path.rstrip("/"), parts.query),
            (root, ""),
        )
    ]
    named = [challenge.resource_metadata] if challenge.resource_metadata else []
    return list(dict.fromkeys([*named, *places]))


def server_metadata_urls(issuer: str) -> list[str]:
    """The addresses at which to look for authorization server metadata, in the order of the specification."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [f"{base}/.well-known/oauth-authorization-server", f"{base}/.well-known/openid-configuration"]
    return [
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
        f"{base}{path}/.well-known/openid-configuration",
    ]


def _resource_metadata(url: str, challenge: Challenge) -> Requests[dict[str, Any] | None]:
    for place in resource_metadata_urls(url, challenge):
        named_by = None if origin_of(place) == origin_of(url) else url
        where = checked_url(place, "`resource_metadata` of the server's challenge", named_by=named_by)
        answer = yield get(where, named_by=named_by)
        if answer.status == 0 or answer.status >= 500:
            # Falling back after a temporary failure could sign in at the wrong server.
            raise _not_now(place, answer)
        document = answer.fields() if answer.is_good else {}
        if words(document.get("authorization_servers")):
            return document
    return None


def server_metadata(
    issuer: str, named_by: str | None, profile: Profile, *, is_guessed: bool
) -> Requests[tuple[AuthorizationServer, tuple[str, ...]]]:
    for place in server_metadata_urls(issuer):
        answer = yield get(place, named_by=named_by)
        if answer.status == 0 or (answer.status >= 500 and answer.status != 502):
            raise _not_now(place, answer)
        document = answer.fields() if answer.is_good else {}
        if not document.get("token_endpoint"):
            continue
        _check_issuer(issuer, document, profile)
        warnings = _check_pkce(document, profile, is_openid="openid-configuration" in place)
        return _read(document, issuer), warnings
    if is_guessed:
        # 2025-03-26, *Fallbacks for Servers without Metadata Discovery*.
        return (
            AuthorizationServer(
                issuer=issuer,
                identifier=issuer,
                authorization_endpoint=f"{issuer}/authorize",
                token_endpoint=f"{issuer}/token",
                registration_endpoint=f"{issuer}/register",
                is_guessed=True,
            ),
            (),
        )
    raise SignInFailed(
        f"the authorization server `{issuer}` publishes no metadata that can be used",
        hint="name another one with `issuer` in `oauth` of this server, or put a token into its `headers`",
    )


def _check_issuer(issuer: str, document: dict[str, Any], profile: Profile) -> None:
    """RFC 8414, section 3.3: metadata whose issuer is not identical must not be used. `https://a` and `https://a/` are
    equivalent (RFC 3986, section 6.2.3), and many libraries add the slash."""
    said = document.get("issuer")
    if said == issuer or profile.issuer_check == "waive":
        return
    if isinstance(said, str) and not urlsplit(issuer).path.strip("/") and said.rstrip("/") == issuer.rstrip("/"):
        return
    raise SignInFailed(
        f"the metadata of the authorization server `{issuer}` names a different issuer: `{str(said)[:200]}`",
        hint="do not sign in there; if its operator vouches for it, set `issuerCheck` to `waive` in `oauth` of this "
        "server",
    )


def _check_pkce(document: dict[str, Any], profile: Profile, *, is_openid: bool) -> tuple[str, ...]:
    methods = document.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" in methods:
        return ()
    if not document.get("authorization_endpoint"):
        return ()
    if methods is None and (is_openid or profile.pkce == "assume"):
        # OpenID Connect Discovery has no such field: Entra ID and Cognito support S256 without announcing it.
        return ("the authorization server does not say that it supports PKCE; S256 is used all the same",)
    raise SignInFailed(
        "the authorization server does not support PKCE with S256, so a sign-in could be intercepted",
        hint="if its operator says that it does, set `pkce` to `assume` in `oauth` of this server",
    )


def _read(document: dict[str, Any], issuer: str) -> AuthorizationServer:
    def endpoint(name: str) -> str | None:
        value = document.get(name)
        return checked_url(value, f"`{name}` of the authorization server", named_by=issuer) if value else None

    said = document.get("issuer")
    token_endpoint = endpoint("token_endpoint")
    assert token_endpoint is not None
    return AuthorizationServer(
        # `iss` is compared with this issuer, which has itself been compared with the identifier.
        issuer=said if isinstance(said, str) else issuer,
        identifier=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=token_endpoint,
        registration_endpoint=endpoint("registration_endpoint"),
        revocation_endpoint=endpoint("revocation_endpoint"),
        device_authorization_endpoint=endpoint("device_authorization_endpoint"),
        scopes_supported=words(document.get("scopes_supported")),
        token_endpoint_auth_methods_supported=words(document.get("token_endpoint_auth_methods_supported")),
        takes_client_metadata_url=document.get("client_id_metadata_document_supported") is True,
        sends_iss=document.get("authorization_response_iss_parameter_supported") is True,
        dpop_signing_alg_values_supported=words(document.get("dpop_signing_alg_values_supported")),
    )


def _resource(url: str, document: dict[str, Any] | None, profile: Profile) -> str | None:
    """RFC 8707: request a token for this server only. A resource that the metadata names must cover its address."""
    named = None if document is None else document.get("resource")
    if isinstance(named, str) and not covers(named, url):
        raise SignInFailed(
            f"the server's metadata is for another resource, `{named[:200]}`",
            hint="check `url` of this server; a token for another resource is not asked for",
        )
    if profile.resource is not None:
        return profile.resource or None
    return named if isinstance(named, str) else canonical(url)


def covers(resource: str, url: str) -> bool:
    """Whether a resource identifier covers this address: same origin, and its path is a prefix of the address's."""
    if origin_of(resource) != origin_of(url):
        return False
    outer, inner = (urlsplit(each).path.rstrip("/") + "/" for each in (resource, url))
    return inner.startswith(outer)


def canonical(url: str) -> str:
    """The resource identifier of an address: without fragment, credentials, or the slash of an empty path. Also without
    its query (RFC 8707, section 2), which often holds an API key that the authorization server must not see."""
    parts = urlsplit(url)
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower(), path, "", ""))


def _not_now(place: str, answer: OAuthResponse) -> SignInFailed:
    why = answer.body.decode(errors="replace")[:300] if answer.status == 0 else f"status {answer.status}"
    return NotNow(f"the metadata of {origin_of(place)} cannot be read: {why}", hint="try again later")
