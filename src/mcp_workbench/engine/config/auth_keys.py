"""The members of `auth` and `trustedProxy`: who may call over HTTP. Loaded only for a file that has them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_workbench.engine.config.auth_model import (
    SAFE_ALGORITHMS,
    AuthConfig,
    ForwardedIdentityConfig,
    IssuerConfig,
    ProxyConfig,
    TokenExchangeConfig,
)
from mcp_workbench.engine.config.keys import field_of
from mcp_workbench.engine.config.kinds import Files, Kind, Schema, Seconds, Text, Texts, Url
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path, quote
from mcp_workbench.engine.config.reading import Reader

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers that already have a meaning in every request.
_TAKEN_HEADERS: Final = frozenset(("host", "origin", "authorization", "content-length", "transfer-encoding", "cookie"))


class SecureUrl(Url):
    """An address that tokens and keys may be sent to: `https`, or this machine."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        parts = urlsplit(text)
        if (
            (parts.scheme.lower() != "https" and parts.hostname not in LOOPBACK)
            or parts.fragment
            or "@" in parts.netloc
        ):
            reader.problem(path, f"found {quote(text)}", "an https:// address, without a password and without `#`")
            return None
        return text


class HeaderName(Text):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().read(value, path, reader)
        if text is None:
            return None
        if not _HEADER.fullmatch(text) or text.lower() in _TAKEN_HEADERS or text.lower().startswith("mcp-"):
            reader.wrong(value, path, "the name of a header of its own, such as `X-Forwarded-User`")
            return None
        return text.lower()


class Algorithms(Texts):
    __slots__ = ()

    def item(self, value: object, path: Path, reader: Reader) -> str | None:
        text = super().item(value, path, reader)
        if text is not None and text not in SAFE_ALGORITHMS:
            reader.wrong(value, path, "one of " + ", ".join(map(quote, SAFE_ALGORITHMS)))
            return None
        return text


class Peers(Files):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> tuple[str, ...] | None:
        found = super().read(value, path, reader)
        for text in found or ():
            if not text.startswith("unix:") and not _is_network(text):
                reader.wrong(value, path, "addresses or networks such as `10.0.0.5` or `10.0.0.0/8`, or `unix:USER`")
                return None
        return found


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


ISSUER_MEMBERS: Final = Members(
    ("issuer", SecureUrl(), "The identity provider, exactly as its tokens name it in `iss`."),
    (
        "audience",
        Files("a string, or a list of strings"),
        "Who tokens must be issued for (`aud`). If unset, `publicUrl`.",
    ),
    ("publicUrl", SecureUrl(), "The address at which clients reach the MCP endpoint."),
    ("jwks", SecureUrl(), "The address of the provider's keys, if its metadata does not name it."),
    ("introspection", SecureUrl(), "The introspection endpoint for tokens that are not JWTs (RFC 7662)."),
    ("clientId", Text(), "The workbench's client there, for introspection and token exchange."),
    ("clientSecret", Text(), "The secret of that client. Never printed."),
    ("principal", Text(), "The claim that identifies the user."),
    ("groups", Text(), "The claim with the user's groups; `realm_access.roles` names a nested one."),
    ("scopes", Texts("a list of scopes"), "Scopes that a token must have; all of them are required."),
    ("algorithms", Algorithms("a list of algorithms"), "The signature algorithms that are accepted."),
    ("clockSkew", Seconds(never=True), "How far the provider's clock may be off, in seconds."),
    secret=("clientSecret",),
    fetches=True,
)
PROXY_MEMBERS: Final = Members(
    ("peers", Peers("an address, or a list of addresses"), "The addresses the proxy connects from."),
    (
        "header",
        HeaderName(),
        "The header with the user's name. The proxy must set it and drop it from incoming requests.",
    ),
    ("groupsHeader", HeaderName(), "The header with the user's groups, separated by commas."),
    (
        "addressHeader",
        HeaderName(),
        "The header with the client's address, such as `x-forwarded-for`, for logs, the audit and throttling.",
    ),
    ("secretHeader", HeaderName(), "The header with the secret."),
    ("secret", Text(), "A secret shared by the proxy and the workbench. Never printed."),
    ("certificate", Text(), "A name in the proxy's client certificate (with --tls-client-ca)."),
    secret=("secret",),
    fetches=True,
)
FORWARD_MEMBERS: Final = Members(
    ("header", HeaderName(), "The header with the assertion."),
    ("audience", Text(), "Who the assertion is for (`aud`). If unset, the server's address."),
)
EXCHANGE_MEMBERS: Final = Members(
    ("audience", Text(), "The server's name at the identity provider."),
    ("resource", Url(), "The server's address, for providers that expect that instead (RFC 8707)."),
    ("scopes", Texts("a list of scopes"), "Scopes to request for the new token."),
)


class Authentication(Kind[AuthConfig]):
    """One identity provider, or a list of them."""

    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> AuthConfig | None:
        several = value if isinstance(value, list) else [value]
        issuers = []
        for index, each in enumerate(several):
            place = (*path, index) if isinstance(value, list) else path
            members = ISSUER_MEMBERS.read_whole(
                each, place, reader, "an identity provider with `issuer` and `publicUrl`"
            )
            if members is not None and _is_whole(members, place, reader, ("issuer",)):
                is_literal = _is_literal(each, "clientSecret")
                issuers.append(IssuerConfig(**_by_field(members), has_literal_secret=is_literal))
        if len(issuers) < len(several):
            return None
        return self._combined(issuers, path, reader)

    def _combined(self, issuers: list[IssuerConfig], path: Path, reader: Reader) -> AuthConfig | None:
        named = list(dict.fromkeys(each.public_url for each in issuers if each.public_url is not None))
        if len(named) != 1:
            found = "found no `publicUrl`" if not named else "found more than one `publicUrl`"
            hint = "it is never taken from a request, because whoever sends one could choose it"
            reader.problem(path, found, "one, the address under which clients reach the MCP endpoint", hint=hint)
            return None
        names = [each.issuer for each in issuers]
        for name in names:
            if names.count(name) > 1:
                reader.problem(path, f"found the issuer {quote(name)} twice", "each once")
                return None
        for each in issuers:
            if each.introspection is not None and (each.client_id is None or each.client_secret is None):
                reader.problem(path, "found `introspection` alone", "`clientId` and `clientSecret` with it")
                return None
        return AuthConfig(public_url=named[0], issuers=tuple(issuers))

    def schema(self) -> Schema:
        one = ISSUER_MEMBERS.schema("issuer")
        return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}


class TrustedProxy(Kind[ProxyConfig]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> ProxyConfig | None:
        members = PROXY_MEMBERS.read_whole(value, path, reader, "a proxy with `peers` and `secret`")
        if members is None or not _is_whole(members, path, reader, ("peers",)):
            return None
        if not members.get("secret") and not members.get("certificate"):
            hint = "anyone who can connect from there could claim to be any user"
            reader.problem(path, "found neither `secret` nor `certificate`", "one of them", hint=hint)
            return None
        return ProxyConfig(**_by_field(members), has_literal_secret=_is_literal(value, "secret"))

    def schema(self) -> Schema:
        return PROXY_MEMBERS.schema("peers")


class ForwardIdentity(Kind[ForwardedIdentityConfig]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> ForwardedIdentityConfig | None:
        if value is True:
            return ForwardedIdentityConfig()
        if value is False:
            return None
        members = FORWARD_MEMBERS.read_whole(value, path, reader, "`true`, or an object with `header` or `audience`")
        return None if members is None else ForwardedIdentityConfig(**_by_field(members))

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "boolean"}, FORWARD_MEMBERS.schema()]}


class TokenExchange(Kind[TokenExchangeConfig]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> TokenExchangeConfig | None:
        members = EXCHANGE_MEMBERS.read_whole(value, path, reader, "an object with `audience` or `resource`")
        if members is None:
            return None
        if not members.get("audience") and not members.get("resource"):
            reader.problem(path, "found neither `audience` nor `resource`", "one of them")
            return None
        return TokenExchangeConfig(**_by_field(members))

    def schema(self) -> Schema:
        one = EXCHANGE_MEMBERS.schema()
        return {**one, "anyOf": [{"required": ["audience"]}, {"required": ["resource"]}]}


def _is_whole(members: Mapping[str, Any], path: Path, reader: Reader, needed: tuple[str, ...]) -> bool:
    for name in needed:
        if not members.get(name):
            reader.problem(path, f"{quote(name)} is missing", "it")
    return all(members.get(name) for name in needed)


def _is_literal(value: object, name: str) -> bool:
    """Whether a secret is written in the file itself."""
    written = value.get(name) if isinstance(value, dict) else None
    return isinstance(written, str) and "${" not in written


def _by_field(members: Mapping[str, Any]) -> dict[str, Any]:
    return {field_of(name): member for name, member in members.items()}
