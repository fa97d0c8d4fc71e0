"""Addresses that somebody else named: connected to only if they are no more local than whoever named them.

`127.0.0.2` stands for a public address, `127.0.0.3` for one in a private network; names are looked up in a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.client import reach
from mcp_workbench.engine.transport.http.client.http_client import HttpClient
from mcp_workbench.engine.transport.http.client.reach import Reach, reach_of_host
from mcp_workbench.signin.flow_io import OAuthRequest, SignInFailed, checked_url
from mcp_workbench.signin.flow_runner import send

pytestmark = pytest.mark.processes

real_reach = reach.reach_of_ip


class Network:
    """A server on every address of this machine, names that lead to it, and what it was asked."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self.names: dict[str, list[str]] = {}
        self.lookups: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.redirect = ""
        self.port = 0
        self.tasks: list[asyncio.Task[None] | None] = []

    async def send(self, host: str, named_by: str | None, environ: dict[str, str] | None = None) -> int:
        namer = named_by and f"http://{named_by}:{self.port}/"
        request = OAuthRequest("POST", f"http://{host}:{self.port}/token", {}, b"secret", namer)
        return (await send(self.client, request, environ or {})).status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(len(b"secret"))
                self.asked.append((writer.get_extra_info("sockname")[0], head.split()[1]))
                if self.redirect:
                    answer = f"HTTP/1.1 307 R\r\nlocation: {self.redirect}\r\nconnection: close\r\n"
                    self.redirect = ""
                else:
                    answer = "HTTP/1.1 200 OK\r\n"
                writer.write(f"{answer}content-length: 2\r\n\r\n{{}}".encode())
        writer.close()


@contextlib.asynccontextmanager
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    client = HttpClient("tests")
    found = Network(client)

    stand_ins = {"127.0.0.2": Reach.PUBLIC, "127.0.0.3": Reach.PRIVATE}

    def reach_of_ip(text: str) -> Reach:
        return stand_ins[text] if text in stand_ins else real_reach(text)

    async def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        found.lookups.append(host)
        ips = found.names.get(host) or [socket.inet_ntoa(socket.inet_aton(host))]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(reach, "reach_of_ip", reach_of_ip)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    server = await asyncio.start_server(found.serve, sock=_everywhere())
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        await client.close()
        server.close()
        await asyncio.gather(*filter(None, found.tasks))


def _everywhere() -> socket.socket:
    raw = socket.socket()
    raw.bind(("0.0.0.0", 0))
    return raw


@pytest.mark.parametrize("inside", ["127.0.0.1", "127.0.0.3", "127.0.0.9"])
async def test_a_name_that_a_public_server_named_is_not_followed_inside(
    monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    async with network(monkeypatch) as net:
        net.names = {"public.example": ["127.0.0.2"], "rebound.example": [inside]}
        with pytest.raises(SignInFailed, match=r"rebound\.example.* but http://public\.example"):
            await net.send("rebound.example", "public.example")
        assert net.asked == []


async def test_address_may_refer_to_others_that_are_no_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with network(monkeypatch) as net:
        net.names = {"here.example": ["127.0.0.1"], "office.example": ["127.0.0.3"], "sso.example": ["127.0.0.3"]}
        assert await net.send("sso.example", "office.example") == 200
        assert await net.send("sso.example", "here.example") == 200
        assert await net.send("127.0.0.1", "127.0.0.1") == 200
        assert len(net.asked) == 3
        with pytest.raises(SignInFailed, match="on this machine"):
            await net.send("here.example", "office.example")
        assert len(net.asked) == 3


async def test_the_checked_address_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked up once; of several addresses, those inside are left out."""
    async with network(monkeypatch) as net:
        net.names = {"both.example": ["127.0.0.1", "127.0.0.2"], "public.example": ["127.0.0.2"]}
        assert await net.send("both.example", "public.example") == 200
        assert net.asked == [("127.0.0.2", "/token")]
        assert net.lookups == ["both.example"]


async def test_a_redirect_to_the_same_name_is_checked_when_it_leads_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async with network(monkeypatch) as net:
        net.names = {"public.example": ["127.0.0.2"], "other.example": ["127.0.0.2"]}
        net.redirect = "/shutdown"
        plain = asyncio.get_running_loop().getaddrinfo

        async def rebind(host: str, port: int, **more: Any) -> list[Any]:
            answer = await plain(host, port, **more)
            net.names["other.example"] = ["127.0.0.1"]
            return answer

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebind)
        with pytest.raises(SignInFailed, match=r"other\.example"):
            await net.send("other.example", "public.example")
        assert net.asked == [("127.0.0.2", "/token")]


async def test_an_open_connection_to_a_private_host_is_not_lent_to_a_public_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with network(monkeypatch) as net:
        net.names = {"public.example": ["127.0.0.2"], "router.example": ["127.0.0.3"]}
        assert await net.send("router.example", None) == 200
        with pytest.raises(SignInFailed, match="in a private network"):
            await net.send("router.example", "public.example")
        assert len(net.asked) == 1


async def test_a_namer_whose_name_leads_inside_only_when_it_is_looked_up_is_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What counts is where a connection to it leads; where there is none, it may name nothing inside."""
    async with network(monkeypatch) as net:
        net.names = {"inside.example": ["127.0.0.1"], "gone.example": ["127.0.0.4"]}
        request = OAuthRequest("POST", f"http://inside.example:{net.port}/", {}, b"secret", "http://gone.example:1/")
        with pytest.raises(SignInFailed):
            await send(net.client, request, {})
        assert net.asked == []


async def test_through_a_proxy_addresses_are_checked_by_their_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    async with network(monkeypatch) as net:
        net.names = {"proxy.example": ["127.0.0.3"]}
        environ = {"http_proxy": f"http://proxy.example:{net.port}"}
        assert await net.send("elsewhere.example", "public.example", environ) == 200
        assert net.lookups == ["proxy.example"], "it is the proxy that looks names up"
        for host in ("127.1", "2130706433", "0x7f000001", "10.0.0.1"):
            with pytest.raises(SignInFailed):
                await net.send(host, "public.example", environ)
        assert len(net.asked) == 1


SPELLINGS = [
    "127.1",
    "2130706433",
    "0x7f000001",
    "[::ffff:127.0.0.1]",
    "0.0.0.0",
    "[::]",
    "foo.localhost",
    "localhost.",
]


@pytest.mark.parametrize("host", SPELLINGS)
def test_every_spelling_of_this_machine_is_refused_before_anything_is_asked(host: str) -> None:
    with pytest.raises(SignInFailed, match=r"on this machine, but https://mcp\.example\.com is not"):
        checked_url(f"https://{host}/token", "`token_endpoint`", named_by="https://mcp.example.com")
    assert checked_url(f"https://{host}/token", "`token_endpoint`", named_by="http://127.0.0.1:8080")
    assert reach_of_host(host) is Reach.THIS_MACHINE


def test_a_public_address_names_nothing_private_and_a_private_one_nothing_on_this_machine() -> None:
    with pytest.raises(SignInFailed, match="in a private network"):
        checked_url("https://192.168.1.1/token", "`token_endpoint`", named_by="https://1.1.1.1")
    with pytest.raises(SignInFailed, match="own link"):
        checked_url("https://169.254.169.254/", "`token_endpoint`", named_by="https://10.0.0.1")
    assert checked_url("https://192.168.1.1/token", "`token_endpoint`", named_by="https://10.0.0.1")
