"""The user's token, exchanged for one that is valid at a server (RFC 8693).

The user's own token is sent to the identity provider that issued it, and never to a server. It is kept in memory while
it is valid. Owns the request to the provider; knows nothing about how a token is transmitted.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.engine.config.auth_settings import AuthConfig, IssuerConfig, TokenExchangeConfig
from mcp_workbench.errors import DownstreamError
from mcp_workbench.signin.assertion import Credentials
from mcp_workbench.signin.client_registration import BASIC, OAuthClient
from mcp_workbench.signin.flow_io import checked_url
from mcp_workbench.signin.token_requests import Tokens, read, request
from mcp_workbench.team.identity.credentials import Fetch
from mcp_workbench.team.identity.jwks import fetch_metadata

GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
# Users whose tokens are kept. The least recently active are dropped first, until they call again.
MAX_EXCHANGING_USERS: Final = 10_000
# One exchange, including the metadata that it may need first.
TOKEN_EXCHANGE_TIMEOUT: Final = 15.0


class SubjectToken(Struct, frozen=True):
    """The token that a user has sent last."""

    token: str
    issuer: str
    # Seconds since 1970.
    expires: float


# The principal and the token of the request being handled, also in the tasks that it starts.
_shown: Final[ContextVar[tuple[str, SubjectToken] | None]] = ContextVar("shown", default=None)


class SubjectTokens:
    """The tokens of callers, by principal."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, SubjectToken] = OrderedDict()

    def keep(self, principal: str, subject: SubjectToken) -> None:
        _shown.set((principal, subject))
        self._tokens[principal] = subject
        self._tokens.move_to_end(principal)
        if len(self._tokens) > MAX_EXCHANGING_USERS:
            self._tokens.popitem(last=False)

    def shown(self, principal: str) -> SubjectToken | None:
        """The token of the request being handled; outside a request, the latest one."""
        shown = _shown.get()
        return shown[1] if shown is not None and shown[0] == principal else self._tokens.get(principal)

    def of(self, principal: str) -> SubjectToken:
        """The same, if it can be exchanged. Raises `DownstreamError`."""
        found = self.shown(principal)
        if found is None:
            raise DownstreamError(
                "this server wants a token of the user's own, and yours is not one of an identity provider",
                hint="call with an access token of the provider in `auth`, instead of a key",
            )
        if time.time() >= found.expires:
            raise DownstreamError(
                "your access token has expired, so none can be obtained for this server", hint="call again"
            )
        return found


class TokenExchanges:
    """Exchanges tokens at the providers that issued them."""

    def __init__(self, auth: AuthConfig | None, subjects: SubjectTokens, fetch: Fetch) -> None:
        self._issuers = {each.issuer: each for each in (auth.issuers if auth is not None else ())}
        self.subjects = subjects
        self._fetch = fetch
        self._endpoints: dict[str, str] = {}

    async def token_for(self, subject: SubjectToken, wanted: TokenExchangeConfig) -> Tokens:
        """Get a token for a server. Raises `DownstreamError`."""
        issuer = self._issuers.get(subject.issuer)
        if issuer is None or issuer.client_id is None or issuer.client_secret is None:
            raise DownstreamError(
                "`tokenExchange` needs `clientId` and `clientSecret` in `auth`",
                hint="register a client at the provider",
            )
        try:
            async with asyncio.timeout(TOKEN_EXCHANGE_TIMEOUT):
                endpoint = self._endpoints.get(issuer.issuer) or await self._find_endpoint(issuer)
                asked = request(endpoint, _client(issuer), Credentials(issuer.client_secret), _fields(subject, wanted))
                return read(await self._fetch(asked), issuer.issuer)
        except TimeoutError:
            raise DownstreamError(
                f"{issuer.issuer} did not exchange the token within {TOKEN_EXCHANGE_TIMEOUT:g} s",
                hint="try again later",
            ) from None

    async def _find_endpoint(self, issuer: IssuerConfig) -> str:
        metadata = await fetch_metadata(issuer.issuer, self._fetch)
        found = checked_url(
            metadata.get("token_endpoint"), "`token_endpoint` of the identity provider", named_by=issuer.issuer
        )
        self._endpoints[issuer.issuer] = found
        return found


def _client(issuer: IssuerConfig) -> OAuthClient:
    # The method that every authorization server must support (RFC 6749, section 2.3.1).
    return OAuthClient(issuer=issuer.issuer, id=issuer.client_id or "", auth_method=BASIC)


def _fields(subject: SubjectToken, wanted: TokenExchangeConfig) -> dict[str, Any]:
    return {
        "grant_type": GRANT,
        "subject_token": subject.token,
        "subject_token_type": ACCESS_TOKEN,
        "requested_token_type": ACCESS_TOKEN,
        "audience": wanted.audience,
        "resource": wanted.resource,
        "scope": " ".join(wanted.scopes),
    }
