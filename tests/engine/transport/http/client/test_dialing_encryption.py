"""Encrypted servers, reached directly and through a proxy's tunnel: what works, and what each failure is called."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.transport.http.client.talk import Talk, talking
from tests.engine.transport.http.listening import PATIENCE, Reply, Request, scripted_http, wait_until
from tests.engine.transport.http.tunnels import Proxy, listening, make_certificate


@pytest.fixture(scope="session")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


async def answer_with_host(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers every request with the `Host` that it was asked as."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.lower().split(": ", 1) for line in head.decode().strip().split("\r\n")[1:])
            request = json.loads(await reader.readexactly(int(fields["content-length"])))
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"host": fields["host"]}}
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))


@contextlib.asynccontextmanager
async def encrypted(vouched: tuple[Path, Path]) -> AsyncIterator[int]:
    async with listening(answer_with_host, vouched) as listener:
        yield listener.port


@contextlib.asynccontextmanager
async def proxied(port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    async with listening(proxy.serve) as listener:
        monkeypatch.setenv("https_proxy", f"http://user:hunter2@127.0.0.1:{listener.port}")
        monkeypatch.setenv("no_proxy", "")
        yield proxy


async def host_of(talk: Talk) -> str:
    answer = await talk.ask("tools/list", {"secret": "in the body"}, modern=True)
    host: str = answer["result"]["host"]
    return host


async def test_a_certificate_that_somebody_vouches_for_is_enough(
    vouched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched[0]))
    async with encrypted(vouched) as port, talking(f"https://localhost:{port}/mcp") as talk:
        assert [await host_of(talk) for _ in range(3)] == [f"localhost:{port}"] * 3


async def test_through_a_tunnel_the_proxy_learns_the_name_of_the_server_and_nothing_else(
    vouched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched[0]))
    async with encrypted(vouched) as port, proxied(port, monkeypatch) as proxy:
        async with talking("https://far.invalid/mcp") as talk:
            assert [await host_of(talk) for _ in range(3)] == ["far.invalid"] * 3
        await wait_until(lambda: proxy.seen != b"")
        (asked,) = proxy.asked
        assert asked.startswith("CONNECT far.invalid:443 HTTP/1.1\r\n")
        assert "proxy-authorization: Basic " in asked
        assert b"tools/list" not in proxy.seen and b"in the body" not in proxy.seen


async def test_many_calls_at_once_go_through_tunnels_of_their_own(
    vouched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched[0]))
    async with encrypted(vouched) as port, proxied(port, monkeypatch) as proxy:
        async with talking("https://far.invalid/mcp") as talk:
            assert await asyncio.gather(*(host_of(talk) for _ in range(10))) == ["far.invalid"] * 10
        assert 1 <= len(proxy.asked) <= 10


async def test_the_certificate_at_the_end_of_a_tunnel_is_looked_at(
    vouched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched[0]))
    async with encrypted(vouched) as port, proxied(port, monkeypatch):
        async with talking("https://other.invalid/mcp") as talk:
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert "the certificate of `other.invalid` is not valid" in error.message


@pytest.mark.parametrize("kind", ["closes", "is not TLS", "never answers CONNECT"])
async def test_a_tunnel_that_leads_nowhere_is_reported(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(request: Request, reply: Reply) -> None:
        assert request.method == "CONNECT"
        if kind == "never answers CONNECT":
            reply.hang_up()
            return
        await reply.head(200, {})
        if kind == "is not TLS":
            await reply.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        reply.hang_up()

    async with scripted_http(proxy) as server:
        monkeypatch.setenv("https_proxy", f"http://user:hunter2@127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "")
        async with talking("https://far.invalid/mcp") as talk:
            async with asyncio.timeout(PATIENCE):
                error = await talk.failure(talk.request("tools/list", modern=True))
            expected = (
                "the proxy http://127.0.0.1"
                if kind == "never answers CONNECT"
                else "cannot establish an encrypted connection to"
            )
            assert expected in error.message and "hunter2" not in error.message
            await wait_until(lambda: server.open_connections == 0)
