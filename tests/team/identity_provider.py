"""An identity provider within the test: keys, tokens, and what it answers. Counts what it is asked."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Awaitable
from typing import Any

from joserfc import jws, jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from mcp_workbench.engine.config.auth_settings import IssuerConfig
from mcp_workbench.signin.flow_io import OAuthRequest, OAuthResponse
from mcp_workbench.team.identity.bearer_tokens import BearerTokens
from mcp_workbench.team.identity.introspection import Introspection
from mcp_workbench.team.identity.jwks import IssuerKeys
from mcp_workbench.team.identity.jwt_tokens import JwtIssuer

ISSUER = "https://id.example.com"
AUDIENCE = "https://tools.example.com/mcp"

_rsa: list[Key] = []


def rsa_key(kid: str = "rsa") -> Key:
    """Made once: it takes a while."""
    if not _rsa:
        _rsa.append(RSAKey.generate_key(2048))
    found: Key = RSAKey.import_key({**_rsa[0].as_dict(private=True), "kid": kid})
    return found


def ec_key(kid: str) -> Key:
    found: Key = ECKey.generate_key("P-256", {"kid": kid})
    return found


def ed_key(kid: str) -> Key:
    found: Key = OKPKey.generate_key("Ed25519", {"kid": kid})
    return found


class Clock:
    def __init__(self) -> None:
        self.monotonic = 0.0
        self.wall = 1_800_000_000.0


class Provider:
    def __init__(self, *keys: Key, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys = list(keys) or [ec_key("one")]
        self.clock = Clock()
        self.asked: list[str] = []
        # Who named each of these addresses, if not the configuration.
        self.named_by: list[str | None] = []
        # What it answers instead, and whether answers wait.
        self.document: Any = None
        self.status = 200
        self.gate: asyncio.Event | None = None
        self.opaque: dict[str, dict[str, Any]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def token(self, key: Key | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed with the first key, unless told otherwise; a claim of None is left out."""
        key = key or self.keys[0]
        now = int(self.clock.wall)
        whole = {"iss": self.issuer, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600, **claims}
        algorithm = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA"}[key.key_type]
        head = {"alg": algorithm, "kid": key.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        payload = {name: value for name, value in whole.items() if value is not None}
        with warnings.catch_warnings():
            # `EdDSA` is what providers write; its successor in RFC 9864 is too young.
            warnings.simplefilter("ignore")
            return jwt.encode(head, payload, key, algorithms=[head["alg"]])

    def signed(self, payload: bytes, key: Key | None = None) -> str:
        """Whatever the payload is."""
        key = key or self.keys[0]
        return jws.serialize_compact({"alg": "ES256", "kid": key.kid}, payload, key)

    async def fetch(self, request: OAuthRequest) -> OAuthResponse:
        self.asked.append(request.url)
        self.named_by.append(request.named_by)
        if self.gate is not None:
            await self.gate.wait()
        if self.status != 200:
            return OAuthResponse(self.status, b"cannot connect" if self.status == 0 else b"{}")
        return OAuthResponse(200, json.dumps(self._answer(request)).encode(), "application/json")

    def _answer(self, request: OAuthRequest) -> Any:
        if self.document is not None:
            return self.document
        if ".well-known" in request.url:
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
        if request.url.endswith("/introspect"):
            from urllib.parse import parse_qs

            (token,) = parse_qs((request.body or b"").decode())["token"]
            return {"active": True, **self.opaque[token]} if token in self.opaque else {"active": False}
        return {"keys": [key.as_dict(private=False) for key in self.keys]}

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def settings(self, **members: Any) -> IssuerConfig:
        return IssuerConfig(issuer=self.issuer, public_url=AUDIENCE, **members)

    def jwts(self, **members: Any) -> JwtIssuer:
        settings = self.settings(**members)
        keys = IssuerKeys(settings, self.fetch, self.start_task, lambda: self.clock.monotonic)
        return JwtIssuer(settings, settings.audience or (AUDIENCE,), keys, lambda: self.clock.wall)

    def introspection(self, **members: Any) -> Introspection:
        settings = self.settings(
            introspection=f"{self.issuer}/introspect", client_id="we", client_secret="s3cret", **members
        )
        return Introspection(
            settings, (AUDIENCE,), self.fetch, self.start_task, lambda: self.clock.wall, lambda: self.clock.monotonic
        )

    def tokens(self, **members: Any) -> BearerTokens:
        """What accepts this provider's tokens."""
        return BearerTokens(jwts=[self.jwts(**members)], now=lambda: self.clock.wall, age=lambda: self.clock.monotonic)


async def judged(tokens: BearerTokens, token: str) -> Any:
    """Who a token proves to be calling, waited for."""
    found = tokens.recognise(token)
    if isinstance(found, asyncio.Future):
        async with asyncio.timeout(10):
            return await found
    return found
