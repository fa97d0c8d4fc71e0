"""The way to a server: addresses, certificates, redirects, credentials and proxies."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from pathlib import Path

import pytest

from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.http.client.talk import talking
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until

# ── not reached at all ──


async def test_nothing_listens_at_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with talking(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp") as talk:
            error = await talk.failure(talk.request("server/discover", modern=True))
            assert "nothing is listening at http://127.0.0.1" in error.message


async def test_it_works_again_when_the_server_does() -> None:
    broken = True

    async def handler(request: Request, reply: Reply) -> None:
        if broken:
            reply.hang_up()
        else:
            id = json.loads(request.body)["id"]
            await reply.send(200, b'{"jsonrpc":"2.0","id":%d,"result":{}}' % id)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        await talk.failure(talk.request("tools/list", modern=True))
        broken = False
        await talk.ask("tools/list", modern=True)


async def test_there_is_no_such_host() -> None:
    async with talking("http://no-such-host.invalid/mcp") as talk:
        error = await talk.failure(talk.request("server/discover", modern=True))
        assert "no-such-host.invalid" in error.message


def certificate(folder: Path) -> ssl.SSLContext:
    """A server with a certificate that nobody vouches for."""
    import subprocess

    key, crt = folder / "key.pem", folder / "crt.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(crt)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    return context


async def test_an_untrusted_certificate_is_reported_with_a_hint(tmp_path: Path) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificate(tmp_path)
    )
    port = server.sockets[0].getsockname()[1]
    try:
        async with talking(f"https://localhost:{port}/mcp") as talk:
            error = await talk.failure(talk.request("server/discover", modern=True))
            assert "certificate of `localhost` is not valid" in error.message
            assert error.hint is not None and "SSL_CERT_FILE" in error.hint
    finally:
        server.close()


async def test_https_to_a_server_that_speaks_http() -> None:
    def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        async with talking(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp") as talk:
            error = await talk.failure(talk.request("server/discover", modern=True))
            assert "an encrypted connection" in error.message
            assert error.hint is not None and "http://" in error.hint
    finally:
        server.close()


@pytest.mark.parametrize("url", ["ftp://x/mcp", "mcp", "http://", "http://[::1/mcp", "http://x:99999/"])
async def test_an_address_that_is_none_is_reported_as_invalid(url: str) -> None:
    with pytest.raises(DownstreamError, match="`url`"):
        async with talking(url):
            pass


# ── redirects ──


async def test_a_redirect_within_the_origin_is_followed_with_method_and_body() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.path == "/mcp":
            await reply.send(307, location="/mcp/")
        else:
            await reply.send(200, b'{"jsonrpc":"2.0","id":%d,"result":{}}' % json.loads(request.body)["id"])

    source = FixedHeaders({"x-key": "secret"})
    async with scripted_http(handler) as server, talking(server.url, source=source) as talk:
        await talk.ask("tools/list", modern=True)
        assert [(each.method, each.path) for each in server.requests] == [("POST", "/mcp"), ("POST", "/mcp/")]
        assert server.requests[1].headers["x-key"] == "secret"


async def test_a_permanent_redirect_is_remembered() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.path == "/mcp":
            await reply.send(308, location="/new")
        else:
            await reply.send(200, b'{"jsonrpc":"2.0","id":%d,"result":{}}' % json.loads(request.body)["id"])

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for _ in range(3):
            await talk.ask("tools/list", modern=True)
        assert [each.path for each in server.requests] == ["/mcp", "/new", "/new", "/new"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status: int) -> None:
    async def elsewhere(request: Request, reply: Reply) -> None:
        raise AssertionError("our headers must not get here")

    async with scripted_http(elsewhere) as other:

        async def handler(request: Request, reply: Reply) -> None:
            await reply.send(status, location=other.url)

        async with scripted_http(handler) as server, talking(server.url) as talk:
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert "another origin" in error.message
            assert error.hint is not None and other.url in error.hint
        assert not other.requests


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_the_body_is_not_followed(status: int) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(status, location="/login")

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/list", modern=True))
        assert "drops the request" in error.message
        assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["/mcp", "/a", "http://[bad/"])
async def test_redirects_in_circles_end(location: str) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(307, location=location)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/list", modern=True))
        assert "in a loop" in error.message or "invalid address" in error.message
        assert len(server.requests) <= 6


# ── headers and credentials ──


async def test_headers_come_from_the_configuration_and_ours_win() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, b'{"jsonrpc":"2.0","id":1,"result":{}}', set_cookie="a=b")

    source = FixedHeaders({"Authorization": "Bearer t", "Accept": "text/html", "X-Team": "a"})
    async with scripted_http(handler) as server, talking(server.url, source=source) as talk:
        await talk.ask("tools/list", modern=True)
        talk.request("tools/list", modern=True)
        await wait_until(lambda: len(server.requests) == 2)
        headers = server.requests[1].headers
        assert (headers["authorization"], headers["x-team"]) == ("Bearer t", "a")
        assert headers["accept"] == "application/json, text/event-stream"
        assert headers["user-agent"] == "talk/1"
        assert "cookie" not in headers, "nothing sticks to the pool that others share"


async def test_a_header_that_cannot_be_written_is_an_error() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        raise AssertionError("this must not be sent")

    async with scripted_http(handler) as server:
        async with talking(server.url, source=FixedHeaders({"x": "a\r\nevil: b"})) as talk:
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert error.hint is not None and "`headers`" in error.hint


# ── proxies ──


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(request: Request, reply: Reply) -> None:
        await reply.send(200, b'{"jsonrpc":"2.0","id":1,"result":{}}')

    async with scripted_http(proxy) as server:
        monkeypatch.setenv("http_proxy", f"http://user:pass@127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "direct.invalid")
        async with talking("http://far.invalid/mcp") as talk:
            await talk.ask("tools/list", modern=True)
            assert server.requests[0].path == "http://far.invalid/mcp"
            assert server.requests[0].headers["proxy-authorization"].startswith("Basic ")
        async with talking("http://direct.invalid/mcp") as talk:
            await talk.failure(talk.request("tools/list", modern=True))
            assert len(server.requests) == 1


async def test_a_proxy_that_is_not_there_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://user:hunter2@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        async with talking("http://far.invalid/mcp") as talk:
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert f"the proxy http://127.0.0.1:{port} cannot be reached" in error.message
            assert "hunter2" not in error.message


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(request: Request, reply: Reply) -> None:
        assert request.method == "CONNECT"
        await reply.send(407)

    async with scripted_http(proxy) as server:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "")
        async with talking("https://far.invalid/mcp") as talk:
            error = await talk.failure(talk.request("tools/list", modern=True))
            assert "refused to connect" in error.message and "407" in error.message


async def test_a_kind_of_proxy_that_we_do_not_speak_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(DownstreamError, match="the proxy in the environment cannot be used"):
        async with talking("http://far.invalid/mcp"):
            pass
