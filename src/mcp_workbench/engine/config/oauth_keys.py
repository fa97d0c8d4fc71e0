"""The members of `oauth`: how to sign in to a server, where that differs from what can be discovered.

Loaded only for a file that has them. Other clients have an `oauth` too; members known only to them are ignored.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.keys import field_of
from mcp_workbench.engine.config.kinds import Choice, Kind, Schema, Text, Texts, Url, Whole
from mcp_workbench.engine.config.mappings import Pairs
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.model import OAuthConfig
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader


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


MEMBERS: Final = Members(
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
    secret=("clientSecret", "privateKey", "initialAccessToken"),
    fetches=True,
    # Members that only other clients use.
    foreign=frozenset(
        "enabled authorizationUrl tokenUrl registrationUrl audiences redirectUri tokenParamName authServerMetadataUrl "
        "enterpriseManaged".split()
    ),
)


class SignInSettings(Kind[OAuthConfig]):
    __slots__ = ()

    def read(self, value: object, path: Path, reader: Reader) -> OAuthConfig | None:
        found = MEMBERS.read_object(value, path, reader, "an object with settings such as `clientId`")
        return None if found is None else OAuthConfig(**{field_of(name): member for name, member in found.items()})

    def schema(self) -> Schema:
        return MEMBERS.schema()
