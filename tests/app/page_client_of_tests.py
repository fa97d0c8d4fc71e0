"""A browser's requests to the page, byte for byte: signed in, or pretending to be."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_workbench.app.page_serving import LazySite, OwnPage, endpoint_page
from mcp_workbench.engine.transport.http.server.authentication import Authentication, AuthenticationChallenge
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.team.identity.identities import Identity
from tests.engine.transport.http.server.raw_client import RawClient, Response, raw_client
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, workbench_with

KEYS = {"token": "default", "key-of-ada": "ada", "key-of-bob": "bob"}
# Two tokens of one user, from an identity provider.
TOKENS = {
    f"token-of-{group}": Identity(principal="https://id.example.com#eve", groups=frozenset({group}))
    for group in ("dev", "ops")
}


class Keys:
    """An authenticator for the keys of the tests."""

    depends_on_peer = False

    def authenticate(self, head: RequestHead) -> Authentication:
        given = (head.get("authorization") or "").removeprefix("Bearer ")
        if given in TOKENS:
            head.identity = TOKENS[given]
            return TOKENS[given].principal
        return KEYS.get(given) or AuthenticationChallenge("this token is not valid", b"Bearer")


class Browser:
    """Signed in or not; `agent` is a client of the same workbench."""

    def __init__(self, client: RawClient, port: int, agent: ConnectedClient | None = None) -> None:
        self._client = client
        self.host = f"127.0.0.1:{port}"
        self._agent = agent
        self.cookie = ""
        self.csrf = ""

    @property
    def agent(self) -> ConnectedClient:
        assert self._agent is not None
        return self._agent

    async def get(self, path: str, **headers: Any) -> Response:
        return await self._client.request(
            "GET", path, **{"host": self.host, "cookie": self.cookie, "x_csrf": self.csrf, **headers}
        )

    async def post(self, path: str, body: bytes | Json, **headers: Any) -> Response:
        usual = {"host": self.host, "origin": f"http://{self.host}", "sec_fetch_site": "same-origin"}
        return await self._client.request(
            "POST", path, body, **{**usual, "cookie": self.cookie, "x_csrf": self.csrf, **headers}
        )

    async def state(self) -> Json:
        found = await self.get("/api/state")
        assert found.status == 200, found.body
        return found.json

    async def keep_cookie(self, response: Response) -> None:
        """Follow to the page, which has the key of the session once."""
        assert response.status == 303, response.body
        self.cookie = response.headers["set-cookie"].partition(";")[0]
        self.csrf = key_in(await self.get("/"))

    async def sign_in(self, key: str) -> None:
        await self.keep_cookie(await self.post("/login", f"key={key}".encode()))
        await self.state()


def key_in(page: Response) -> str:
    found = re.search(rb'name="page-key" content="([^"]+)"', page.body)
    return found[1].decode() if found else ""


def no_session(*_: object, **__: object) -> Any:
    raise AssertionError


@asynccontextmanager
async def own_page(
    folder: Path, boxes: dict[str, dict[str, Server]], *, may_decide: bool = True, **settings: Any
) -> AsyncIterator[Browser]:
    """The page of our own user, signed in as by `mcp-workbench page`."""
    async with workbench_with(folder, boxes, **settings) as agent:
        page = OwnPage(agent.gateway.runtime, lambda: [agent.gateway])
        try:
            address = await page.open(0, [{"client": "x"}], by="ada (process 7)", may_decide=may_decide)
            port = int(address.split(":")[2].partition("/")[0])
            async with raw_client(port) as client:
                browser = Browser(client, port, agent)
                await browser.keep_cookie(await browser.get("/login" + address.partition("/login")[2]))
                await browser.state()
                yield browser
        finally:
            await page.close()


@asynccontextmanager
async def endpoint(folder: Path, boxes: dict[str, dict[str, Server]], **settings: Any) -> AsyncIterator[Browser]:
    """The page at `/` of an endpoint, nobody signed in."""
    async with workbench_with(folder, boxes, principal="ada", **settings) as agent:
        site: LazySite = endpoint_page(agent.gateway, is_tls=False, takes_keys=True, connect=list)
        server = await serve_http(HttpOptions(port=0, authenticator=Keys()), no_session, site=site)
        try:
            async with raw_client(server.port) as client:
                yield Browser(client, server.port, agent)
        finally:
            site.close()
            await server.stop()
