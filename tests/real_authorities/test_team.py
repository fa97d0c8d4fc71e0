"""A workbench as resource server of an identity provider that others wrote, with the official client of both eras.

Two users sign in at the provider, which the client finds by what the workbench says of itself; each has a role that
the provider gives them and processes of their own, in every face.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.real_authorities.browser import visit_and_send_forms
from tests.real_authorities.conftest import LONG
from tests.real_authorities.glewlwyd import AUDIENCE, PROGRAM, TABLES, Glewlwyd, glewlwyd
from tests.real_authorities.servers import Authority, environment, oidc_provider
from tests.support.client import RawClient
from tests.support.two_roles import BOXES, EXPECTED, MODES, Seen, policy
from tests.support.workbench import workbench_command, write_config

pytestmark = [pytest.mark.node, pytest.mark.network]

FACES = ("proxy", "flat", "dynamic", "auto")


class Storage:
    """What a client keeps of its sign-in."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Somebody with the official client and a browser."""

    def __init__(self, name: str, url: str, issuer: str) -> None:
        self.name = name
        self.issuer = issuer
        self.url = url
        self.storage = Storage()
        self.signed_in = 0
        self._callback = 0
        self._arrived: asyncio.Queue[dict[str, list[str]]] = asyncio.Queue()

    @asynccontextmanager
    async def connected(self, mode: str, **options: Any) -> AsyncIterator[Client]:
        server = await asyncio.start_server(self._on_callback, "127.0.0.1", 0)
        self._callback = server.sockets[0].getsockname()[1]
        metadata = OAuthClientMetadata(
            client_name=self.name,
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{self._callback}/callback")],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        )
        if self.storage.client is None:
            # Beforehand, as administrators do: this provider takes no scopes of resources with a registration.
            async with httpx2.AsyncClient() as http:
                answer = await http.post(f"{self.issuer}/reg", json=metadata.model_dump(mode="json", exclude_none=True))
            self.storage.client = OAuthClientInformationFull.model_validate(answer.json())
        auth: Any = OAuthClientProvider(self.url, metadata, self.storage, self._visit, self._wait)
        try:
            async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
                transport = streamable_http_client(self.url, http_client=http)
                async with Client(transport, mode=mode, **{"read_timeout_seconds": 30, **options}) as client:
                    yield client
        finally:
            server.close()

    async def _on_callback(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await self._arrived.put(parse_qs(urlsplit(head.split(b" ")[1].decode()).query))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def _visit(self, url: str) -> None:
        self.signed_in += 1
        await asyncio.to_thread(visit_and_send_forms, f"{url}&login_hint={self.name}")

    async def _wait(self) -> AuthorizationCodeResult:
        arrived = await self._arrived.get()
        return AuthorizationCodeResult(
            code=arrived["code"][0], state=arrived["state"][0], iss=arrived.get("iss", [None])[0]
        )


@asynccontextmanager
async def team_workbench(folder: Path, issuer: str, face: str, **auth: object) -> AsyncIterator[tuple[str, RawClient]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    config = write_config(
        folder,
        BOXES,
        policy=policy("group:leads"),
        auth={"issuer": issuer, "publicUrl": url, "scopes": ["mcp:read"], "groups": "groups", **auth},
    )
    command = workbench_command(config, "--http", f"127.0.0.1:{port}", "--face", face)
    async with RawClient.spawn(command, env=environment(folder), expect_exit=False) as process:
        await process.wait_for(lambda: "serving MCP at" in process.stderr, "address")
        yield url, process


async def process_of(client: Client) -> object:
    tool = {"toolbox": "box", "server": "server", "tool": "pid"}
    result = await client.call_tool("use_tool", {"tool": tool, "arguments": {}})
    assert result.structured_content is not None, result
    return result.structured_content["pid"]


@pytest.mark.requirement("team.oauth", "team.challenge", "team.principals", "team.policy")
@pytest.mark.parametrize("look", FACES)
async def test_two_users_sign_in_at_the_provider_each_with_a_role(tmp_path: Path, strict: Authority, look: str) -> None:
    async with asyncio.timeout(100), team_workbench(tmp_path, strict.origin, look) as (url, process):
        alice, bob = Person("alice", url, strict.origin), Person("bob", url, strict.origin)
        served: dict[str, set[object]] = {"alice": set(), "bob": set()}
        for mode in MODES.values():
            for person, role in ((alice, "lead"), (bob, "member")):
                seen = Seen(look)
                async with person.connected(mode, **seen.options) as client:
                    assert await seen.of(client) == EXPECTED[role], (role, mode)
                served[person.name].add(seen.process)
        assert not served["alice"] & served["bob"], "no process is both's"
        assert alice.signed_in == bob.signed_in == 1, "a token is good for both eras"
        token = alice.storage.tokens
        assert token is not None and token.access_token not in process.stderr


@pytest.mark.requirement("team.oauth")
async def test_a_token_for_another_resource_or_with_a_scope_too_few_is_refused(
    tmp_path: Path, strict: Authority
) -> None:
    async with asyncio.timeout(100), team_workbench(tmp_path, strict.origin, "proxy") as (url, _):
        alice = Person("alice", url, strict.origin)
        async with alice.connected("auto") as client:
            await client.list_tools()
        token = alice.storage.tokens
        assert token is not None
        other = tmp_path / "other"
        other.mkdir()
        async with team_workbench(other, strict.origin, "proxy") as (elsewhere, _), httpx2.AsyncClient() as http:
            bearer = {"authorization": f"Bearer {token.access_token}"}
            refused = await http.post(elsewhere, headers=bearer)
            assert refused.status_code == 401 and "another audience" in refused.headers["www-authenticate"]
            assert (
                f'resource_metadata="{elsewhere.replace("/mcp", "/.well-known")}' in refused.headers["www-authenticate"]
            )
        strict_folder = tmp_path / "strict"
        strict_folder.mkdir()
        async with team_workbench(strict_folder, strict.origin, "proxy", audience=url, scopes=["mcp:admin"]) as (
            admin,
            process,
        ):
            async with httpx2.AsyncClient() as http:
                refused = await http.post(admin, headers=bearer)
            assert refused.status_code == 403
            assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
            assert 'scope="mcp:admin"' in refused.headers["www-authenticate"]
            assert "this token lacks a scope" in process.stderr, "and the operator sees it"


@pytest.mark.requirement("team.introspection")
async def test_opaque_tokens_of_two_users_are_asked_about(tmp_path: Path, packages: None) -> None:
    with oidc_provider(LONG, "opaque") as authority:
        async with httpx2.AsyncClient() as http:
            metadata = {"redirect_uris": ["http://127.0.0.1/none"], "token_endpoint_auth_method": "client_secret_basic"}
            ours = (await http.post(f"{authority.origin}/reg", json=metadata)).json()
        settings = {
            "introspection": f"{authority.origin}/token/introspection",
            "clientId": ours["client_id"],
            "clientSecret": ours["client_secret"],
        }
        async with (
            asyncio.timeout(100),
            team_workbench(tmp_path, authority.origin, "proxy", **settings) as (url, process),
        ):
            people = [Person(name, url, authority.origin) for name in ("alice", "bob")]
            seen = []
            for person in people:
                async with person.connected("auto") as client:
                    seen.append(await process_of(client))
                tokens = person.storage.tokens
                assert tokens is not None and "." not in tokens.access_token, "nothing can be read from it"
            assert seen[0] != seen[1]
            async with httpx2.AsyncClient() as http:
                refused = await http.post(url, headers={"authorization": "Bearer made-up"})
            assert refused.status_code == 401 and "does not know this token" in refused.headers["www-authenticate"]
            assert ours["client_secret"] not in process.stderr


@pytest.fixture(scope="module")
def provider() -> Iterator[Glewlwyd]:
    with tempfile.TemporaryDirectory(prefix="wb") as folder, glewlwyd(Path(folder)) as provider:
        yield provider


@pytest.mark.requirement("team.oauth", "team.principals", "team.policy")
@pytest.mark.skipif(PROGRAM is None or not TABLES.exists(), reason="needs Debian's glewlwyd")
@pytest.mark.parametrize("look", FACES)
async def test_users_of_another_provider_with_roles_in_both_eras(tmp_path: Path, provider: Glewlwyd, look: str) -> None:
    tokens = {"lead": provider.token_of("alice"), "member": provider.token_of("bob")}
    settings = {"audience": AUDIENCE, "scopes": ["mcp"]}
    async with asyncio.timeout(100), team_workbench(tmp_path, provider.issuer, look, **settings) as (url, process):
        served: dict[str, set[object]] = {"lead": set(), "member": set()}
        for mode in MODES.values():
            for role, token in tokens.items():
                seen = Seen(look)
                async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http:
                    transport = streamable_http_client(url, http_client=http)
                    async with Client(transport, mode=mode, **seen.options) as client:
                        assert await seen.of(client) == EXPECTED[role], (role, mode)
                served[role].add(seen.process)
        assert not served["lead"] & served["member"]
        head, claims, signature = tokens["lead"].split(".")
        async with httpx2.AsyncClient() as http:
            forged = {"authorization": f"Bearer {head}.{tokens['member'].split('.')[1]}.{signature}"}
            refused = await http.post(url, headers=forged)
        assert refused.status_code == 401 and "signature" in refused.headers["www-authenticate"]
        assert claims not in process.stderr
