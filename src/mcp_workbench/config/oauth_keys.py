"""The members of `oauth`: how to sign in to one server, where that differs from what can be found out.

Read only where a file has them. Other clients have an `oauth` too; what is theirs alone is accepted and ignored.
"""

from __future__ import annotations

from typing import Any, Final

from mcp_workbench.config.kinds import Choice, Kind, Schema, Text, Texts, Url, Whole
from mcp_workbench.config.mappings import Pairs
from mcp_workbench.config.model import OAuthConfig
from mcp_workbench.config.problems import Path
from mcp_workbench.config.reading import Reader
from mcp_workbench.config.redact import secrets_in


class Parameters(Pairs):
    """Names and strings of a query."""

    __slots__ = ()
    example = '{"access_type": "offline"}'

    def expected_name(self, name: str) -> str | None:
        return None if name.strip() else "the name of a parameter"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        return Text("a string", empty=True).read(value, path, reader)

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": {"type": "string"}}


def _choice(*words: str) -> Choice:
    return Choice({word: word for word in words})


# Name, kind, and what it is for.
MEMBERS: Final[tuple[tuple[str, Kind[Any], str], ...]] = (
    ("clientId", Text(), "The client that you have registered. If unset, the workbench registers itself."),
    ("clientSecret", Text(), "The secret of that client. Never printed."),
    ("privateKey", Text(), "The private key of that client, PEM or JWK, for `private_key_jwt`. Never printed."),
    ("keyId", Text(), "The key's id (`kid`), if the client has several keys."),
    (
        "signingAlgorithm",
        _choice("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
        "The signature algorithm for that key. If unset, the usual one for its type.",
    ),
    ("clientMetadataUrl", Url(), "The address of the client ID metadata document that you publish."),
    (
        "grant",
        _choice("authorization_code", "client_credentials"),
        "`client_credentials` for machines: nobody signs in, the client is the user.",
    ),
    ("scopes", Texts("a list of scopes"), "Scopes to request, instead of those the server names."),
    ("resource", Text("a string", empty=True), "The resource parameter (RFC 8707); an empty string omits it."),
    ("issuer", Url(), "The authorization server, if the server names several or none."),
    ("issuerCheck", _choice("strict", "waive"), "`waive` accepts metadata that names another issuer."),
    ("pkce", _choice("require", "assume"), "`assume` goes on where the metadata does not mention PKCE."),
    (
        "tokenAuthMethod",
        _choice("none", "client_secret_basic", "client_secret_post", "private_key_jwt"),
        "How the client authenticates at the token endpoint.",
    ),
    ("offlineAccess", _choice("auto", "always", "never"), "Whether to ask for the scope `offline_access`."),
    ("callbackHost", _choice("127.0.0.1", "localhost"), "The host in the registered redirect URI."),
    ("callbackPort", Whole("a port", 1024, 65_535), "The port in the registered redirect URI."),
    ("extraAuthorizeParams", Parameters(), "Further parameters of the authorization request."),
    ("scopeParam", Text(), "The parameter that names the scopes there, if it is not `scope`."),
    ("scopeSeparator", Text("a string"), "What separates scopes there, if it is not a space."),
    ("initialAccessToken", Text(), "The token that client registration requires, if it is not open. Never printed."),
    (
        "grantDays",
        Whole("a number of days", 1, 3650),
        "After how many days the server ends a sign-in; you are warned before.",
    ),
    ("account", Text(), "A name for this sign-in, if several servers have the same address."),
)
# Never printed, and they may refer to something.
SECRET: Final = ("clientSecret", "privateKey", "initialAccessToken")
# What other clients write there for themselves.
FOREIGN: Final = frozenset(
    ("enabled", "authorizationUrl", "tokenUrl", "registrationUrl", "audiences", "redirectUri", "tokenParamName",
     "authServerMetadataUrl", "enterpriseManaged")
)  # fmt: skip


def read(value: object, path: Path, reader: Reader) -> OAuthConfig | None:
    """The settings, or None after reporting the problems with them to the reader."""
    if not isinstance(value, dict):
        reader.wrong(value, path, "an object with settings such as `clientId`")
        return None
    kinds = {name: kind for name, kind, _ in MEMBERS}
    found: dict[str, Any] = {}
    for name, member in value.items():
        if name in SECRET:
            with reader.fetching():
                found[name] = kinds[name].read(member, (*path, name), reader)
        elif name in kinds:
            found[name] = kinds[name].read(member, (*path, name), reader)
        elif name not in FOREIGN:
            reader.unknown_key((*path, name), kinds)
    for name in SECRET:
        if isinstance(found.get(name), str) and (*path, name) not in reader.references:
            reader.secrets.update(secrets_in(name, found[name]))
    by_field = dict(zip(OAuthConfig.__struct_encode_fields__, OAuthConfig.__struct_fields__, strict=True))
    return OAuthConfig(**{by_field[name]: member for name, member in found.items()})


def title_of(name: str) -> str:
    """`clientId` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()


def schema() -> Schema:
    members = {name: {**kind.schema(), "title": title_of(name), "description": about} for name, kind, about in MEMBERS}
    return {"type": "object", "properties": members, "additionalProperties": True}
