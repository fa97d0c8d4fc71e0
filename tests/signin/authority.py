"""A server that wants people to sign in, and its authorization server, in one: strict by default, with switches.

Refresh tokens are used once; one that comes back a second time revokes the whole grant, as strict servers do it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.response_body import read_whole
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.sign_ins import SignIns
from mcp_workbench.signin.signed_in_headers import SignedInHeaders
from mcp_workbench.signin.store import SignInRecord, TokenStore
from tests.engine.transport.http.listening import Reply, Request, ScriptedHttp, scripted_http

Fields = dict[str, Any]


@dataclass
class Authority:
    """What it does, and what it saw."""

    origin: str = ""
    ttl: float | None = 3600
    gives_refresh_tokens: bool = True
    rotates: bool = True
    challenge: str | None = None
    # Merged into what it says; a member that is None is left out.
    resource_metadata: Fields | None = field(default_factory=dict)
    metadata: Fields | None = field(default_factory=dict)
    registration: Fields = field(default_factory=dict)
    registration_status: int = 201
    token_answer: Fields = field(default_factory=dict)
    token_status: int = 200
    # Awaited once, when a token is asked for and before it is given.
    before_token: Callable[[], Awaitable[object]] | None = None
    callback: Fields = field(default_factory=dict)
    # What the token endpoint answers in this order, before it works: status and body.
    token_faults: list[tuple[int, bytes]] = field(default_factory=list)
    # Scopes without which calls get 403.
    needed_scope: str = ""
    refuses_all: bool = False
    registrations: list[Fields] = field(default_factory=list)
    authorizations: list[Fields] = field(default_factory=list)
    token_requests: list[Fields] = field(default_factory=list)
    token_headers: list[dict[str, str]] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    valid: dict[str, str] = field(default_factory=dict)
    refresh_tokens: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    challenges: dict[str, tuple[str, str]] = field(default_factory=dict)
    number: int = 0

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def refreshes(self) -> int:
        return sum(asked["grant_type"] == "refresh_token" for asked in self.token_requests)

    def expire(self) -> None:
        """No access token is good any more."""
        self.valid.clear()

    async def handle(self, request: Request, reply: Reply) -> None:
        path, _, query = request.path.partition("?")
        form = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
        match path:
            case "/mcp":
                await self._call(request, reply)
            case "/.well-known/oauth-protected-resource/mcp" if self.resource_metadata is not None:
                said = {"resource": self.url, "authorization_servers": [self.origin]}
                await _json(reply, 200, said | self.resource_metadata)
            case "/.well-known/oauth-authorization-server" if self.metadata is not None:
                await _json(reply, 200, self._metadata() | self.metadata)
            case "/register":
                self.registrations.append(json.loads(request.body))
                given = {"client_id": f"client-{len(self.registrations)}", **self.registrations[-1]}
                await _json(reply, self.registration_status, given | self.registration)
            case "/authorize":
                await self._authorize(dict(parse_qsl(query)), reply)
            case "/token":
                await self._token(form, request, reply)
            case "/device":
                page = f"{self.origin}/activate"
                given = {"device_code": "d1", "user_code": "ABCD", "verification_uri": page, "interval": 0.01}
                await _json(reply, 200, given)
            case "/revoke":
                self.revoked.append(form["token"])
                await reply.send(200)
            case _:
                await reply.send(404)

    def _metadata(self) -> Fields:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "code_challenge_methods_supported": ["S256"],
        }

    async def _call(self, request: Request, reply: Reply) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.valid or self.refuses_all:
            metadata = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{metadata}"' if self.challenge is None else self.challenge
            await reply.send(401, b"no", "text/plain", **({"www_authenticate": challenge} if challenge else {}))
        elif self.needed_scope and self.needed_scope not in self.valid[token].split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.needed_scope}"'
            await reply.send(403, b"no", "text/plain", www_authenticate=challenge)
        else:
            await self._speak(request, reply)

    async def _speak(self, request: Request, reply: Reply) -> None:
        """A small MCP server of the legacy era, without a stream of its own."""
        if request.method != "POST":
            await reply.send(405)
            return
        asked = json.loads(request.body)
        results: Fields = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "files", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "read it"}]},
        }
        if "id" not in asked:
            await reply.send(202 if asked else 200, b"" if asked else b"{}")
        elif asked["method"] in results:
            await _json(reply, 200, {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]})
        else:
            error = {"code": -32601, "message": "not known"}
            await _json(reply, 200, {"jsonrpc": "2.0", "id": asked["id"], "error": error})

    async def _authorize(self, asked: Fields, reply: Reply) -> None:
        self.authorizations.append(asked)
        code = f"code-{len(self.authorizations)}"
        self.challenges[code] = (asked["code_challenge"], asked.get("scope", ""))
        back = {"code": code, "state": asked["state"]} | self.callback
        location = asked["redirect_uri"] + "?" + urlencode({k: v for k, v in back.items() if v is not None})
        await reply.send(302, location=location)

    async def _token(self, asked: Fields, request: Request, reply: Reply) -> None:
        self.token_requests.append(asked)
        self.token_headers.append(request.headers)
        if self.before_token is not None:
            before, self.before_token = self.before_token, None
            await before()
        if self.token_faults:
            status, body = self.token_faults.pop(0)
            await reply.send(status, body)
            return
        match asked["grant_type"]:
            case "authorization_code":
                challenge, scope = self.challenges.pop(asked["code"], ("", ""))
                hashed = hashlib.sha256(asked["code_verifier"].encode()).digest()
                if base64.urlsafe_b64encode(hashed).rstrip(b"=").decode() != challenge:
                    await _json(reply, 400, {"error": "invalid_grant"})
                    return
            case "refresh_token":
                old = asked["refresh_token"]
                if old in self.used:
                    # Reuse: somebody stole it, as far as a strict server can tell.
                    self.refresh_tokens.clear()
                    self.valid.clear()
                if old not in self.refresh_tokens:
                    await _json(reply, 400, {"error": "invalid_grant"})
                    return
                scope = self.refresh_tokens[old]
                if self.rotates:
                    self.used.add(old)
                    del self.refresh_tokens[old]
            case _:
                scope = asked.get("scope", "")
        self.number += 1
        given: Fields = {"access_token": f"access-{self.number}", "token_type": "bearer", "expires_in": self.ttl}
        self.valid[given["access_token"]] = scope
        is_new = asked["grant_type"] != "client_credentials" and (
            asked["grant_type"] != "refresh_token" or self.rotates
        )
        if self.gives_refresh_tokens and is_new:
            given["refresh_token"] = f"refresh-{self.number}"
            self.refresh_tokens[given["refresh_token"]] = scope
        await _json(reply, self.token_status, {k: v for k, v in (given | self.token_answer).items() if v is not None})


@dataclass
class SignInSetup:
    """A workbench's sign-ins in front of an authority. Another one on the same folder is another process."""

    authority: Authority
    server: ScriptedHttp
    client: HttpClient
    sign_ins: SignIns
    target: SignInTarget
    source: SignedInHeaders

    async def call(self) -> int:
        """A request as the transport sends it; its status. Raises `SignInNeeded`."""
        http_target = HttpTarget.of(self.target.url, self.source)
        response = await self.client.request("POST", http_target, {"content-type": "application/json"}, b"{}")
        await read_whole(response, 1024)
        response.release()
        return response.status

    async def log_in(self, *, new_client: bool = False) -> SignInRecord:
        """Sign in with a browser whose user agrees to everything."""
        sign_in = await self.sign_ins.begin(self.target, new_client=new_client)
        await follow(sign_in.page.result())
        return await sign_in.wait()

    @property
    def record(self) -> SignInRecord:
        found = self.target.find(self.sign_ins.store.read())
        assert found is not None
        return found

    async def change(self, change: Callable[[SignInRecord], SignInRecord]) -> None:
        """Have the store hold another record, and everybody look at it."""
        changed = change(self.record)
        await self.sign_ins.store.change(lambda contents: contents.put(changed))
        self.source.forget()


def another(setup: SignInSetup, principal: str = "", settings: OAuthConfig | None = None) -> SignInSetup:
    """Another process of the same user, or another principal."""
    folder = Path(setup.sign_ins.store.path).parent
    sign_ins = SignIns(lambda: setup.client, TokenStore(str(folder)))
    target = SignInTarget(
        principal, setup.authority.url, settings or setup.target.settings, "mcp-workbench auth login files"
    )
    return SignInSetup(setup.authority, setup.server, setup.client, sign_ins, target, sign_ins.source(target, {}))


@contextlib.asynccontextmanager
async def sign_in_setup(
    folder: Path, settings: OAuthConfig | None = None, kind: type[Authority] = Authority, **switches: Any
) -> AsyncIterator[SignInSetup]:
    """Everything, nobody signed in yet."""
    authority = kind(**switches)
    async with scripted_http(authority.handle) as server:
        authority.origin = f"http://127.0.0.1:{server.port}"
        client = HttpClient("tests")
        sign_ins = SignIns(lambda: client, TokenStore(str(folder / "sign-ins")))
        target = SignInTarget("", authority.url, settings, "mcp-workbench auth login files")
        try:
            yield SignInSetup(authority, server, client, sign_ins, target, sign_ins.source(target, {}))
        finally:
            await sign_ins.close()
            await client.close()


async def follow(page: str) -> None:
    """A browser: the page redirects, and whatever is at the other end answers."""
    import asyncio

    def visit() -> None:
        url = page
        for _ in range(5):
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
            connection.request("GET", f"{parts.path}?{parts.query}")
            response = connection.getresponse()
            response.read()
            connection.close()
            location = response.getheader("location")
            if location is None:
                return
            url = location

    await asyncio.to_thread(visit)


async def _json(reply: Reply, status: int, value: Fields) -> None:
    await reply.send(status, json.dumps({k: v for k, v in value.items() if v is not None}).encode())
