"""The members of `oauth`: how to sign in to a server, where that differs from what can be discovered.

Loaded only for a file that has them, and for signing in. Other clients have an `oauth` too; members known only to them
are ignored.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.config.kinds import Text, Texts, Url, Whole, one_of
from mcp_workbench.engine.config.mappings import Pairs
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.problems import Path
from mcp_workbench.engine.config.reading import Reader
from mcp_workbench.engine.config.setting import Declared, setting


class Parameters(Pairs):
    """Names and strings of a query."""

    __slots__ = ()
    example = '{"access_type": "offline"}'

    def expected_name(self, name: str) -> str | None:
        return None if name.strip() else "the name of a parameter"

    def read_value(self, value: object, path: Path, reader: Reader) -> str | None:
        return Text("a string", empty=True).read(value, path, reader)


class OAuthConfig(Declared, frozen=True, kw_only=True, rename="camel"):
    """How to sign in to a server. None: as discovered."""

    client_id: str | None = setting(
        Text(), "The client that you have registered. If unset, the workbench registers itself."
    )
    client_secret: str | None = setting(
        Text(), "The secret of that client. Never printed.", is_secret=True, fetches=True
    )
    private_key: str | None = setting(
        Text(),
        "The private key of that client, PEM or JWK, for `private_key_jwt`. Never printed.",
        is_secret=True,
        fetches=True,
    )
    key_id: str | None = setting(Text(), "The key's id (`kid`), if the client has several keys.")
    signing_algorithm: str | None = setting(
        one_of("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
        "The signature algorithm for that key. If unset, the usual one for its type.",
    )
    client_metadata_url: str | None = setting(Url(), "The address of the client ID metadata document that you publish.")
    grant: str | None = setting(
        one_of("authorization_code", "client_credentials", "jwt_bearer"),
        "`client_credentials` for machines: nobody signs in, the client is the user. `jwt_bearer` for an identity: of "
        "`identityProvider`, or `identityToken`.",
    )
    identity_provider: str | None = setting(
        Url(),
        "For `jwt_bearer`: your company's identity provider, where you sign in once for all servers that use it.",
    )
    identity_client_id: str | None = setting(Text(), "The client that is registered there.")
    identity_client_secret: str | None = setting(
        Text(), "The secret of that client. Never printed.", is_secret=True, fetches=True
    )
    identity_token: str | None = setting(
        Text(),
        "For `jwt_bearer`: a signed token that says who you are. Fetched again for each access token. Never printed.",
        is_secret=True,
        fetches=True,
    )
    scopes: tuple[str, ...] | None = setting(
        Texts("a list of scopes"), "Scopes to request, instead of those the server names."
    )
    resource: str | None = setting(
        Text("a string", empty=True), "The resource parameter (RFC 8707); an empty string omits it."
    )
    issuer: str | None = setting(Url(), "The authorization server, if the server names several or none.")
    issuer_check: str | None = setting(one_of("strict", "waive"), "`waive` accepts metadata that names another issuer.")
    pkce: str | None = setting(
        one_of("require", "assume"), "`assume` goes on where the metadata does not mention PKCE."
    )
    token_auth_method: str | None = setting(
        one_of("none", "client_secret_basic", "client_secret_post", "private_key_jwt"),
        "How the client authenticates at the token endpoint.",
    )
    offline_access: str | None = setting(
        one_of("auto", "always", "never"), "Whether to ask for the scope `offline_access`."
    )
    dpop: str | None = setting(
        one_of("auto", "always", "never"),
        "Whether tokens are bound to a key (DPoP). `auto`: where the server wants it and the authorization server can.",
    )
    callback_host: str | None = setting(one_of("127.0.0.1", "localhost"), "The host in the registered redirect URI.")
    callback_port: int | None = setting(Whole("a port", 1024, 65_535), "The port in the registered redirect URI.")
    extra_authorize_params: dict[str, str] | None = setting(
        Parameters(), "Further parameters of the authorization request."
    )
    scope_param: str | None = setting(Text(), "The parameter that names the scopes there, if it is not `scope`.")
    scope_separator: str | None = setting(Text("a string"), "What separates scopes there, if it is not a space.")
    initial_access_token: str | None = setting(
        Text(),
        "The token that client registration requires, if it is not open. Never printed.",
        is_secret=True,
        fetches=True,
    )
    grant_days: int | None = setting(
        Whole("a number of days", 1, 3650), "After how many days the server ends a sign-in; you are warned before."
    )
    account: str | None = setting(Text(), "A name for this sign-in, if several servers have the same address.")


class _SignIn(Members[OAuthConfig]):
    def read(self, value: object, path: Path, reader: Reader) -> OAuthConfig | None:
        # With what is valid: a variable may be missing, for this member alone.
        found = self.read_fields(value, path, reader)
        return None if found is None else OAuthConfig(**found)


OAUTH: Final = _SignIn(
    OAuthConfig,
    "an object with settings such as `clientId`",
    # Members that only other clients use.
    foreign=frozenset(
        "enabled authorizationUrl tokenUrl registrationUrl audiences redirectUri tokenParamName authServerMetadataUrl "
        "enterpriseManaged".split()
    ),
)
