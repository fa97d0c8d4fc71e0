"""The proxy that is the only way out of a sandbox, spoken to over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from mcp_workbench.engine.sandbox import egress_proxy
from mcp_workbench.engine.sandbox.egress_proxy import EgressProxy
from mcp_workbench.engine.sandbox.egress_rules import EgressRules
from mcp_workbench.engine.sandbox.sandbox import RefusedHost
from mcp_workbench.engine.transport.http.client import dialing
from mcp_workbench.engine.transport.http.client.dialing import AddressInfo, DialFailed

pytestmark = pytest.mark.processes


class Rig:
    """A proxy with its listener, and a service on this machine that names lead to."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, int, RefusedHost]] = []
        # Entries that somebody has allowed since.
        self.allowed: set[str] = set()
        self.looked_up: list[str] = []
        self.received = b""
        self.address: tuple[str, int] = ("", 0)
        self.port = 0
        self.accepted = 0
        self.serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.serving.add(asyncio.current_task())
        try:
            with suppress(ConnectionError):
                while piece := await reader.read(65536):
                    self.received += piece
                    writer.write(b"<" + piece + b">")
        finally:
            writer.close()

    def on_refused(self, host: str, port: int, refusal: RefusedHost) -> bool:
        self.refused.append((host, port, refusal))
        return refusal.entry in self.allowed

    async def say(self, request: bytes) -> bytes:
        """Send this, and return everything that comes back."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(request)
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def proxy(*hosts: str, answers: dict[str, str] | None = None) -> AsyncIterator[Rig]:
    """`answers`: what names are resolved to."""
    rig = Rig()
    service = await asyncio.start_server(rig.serve, "127.0.0.1", 0)
    rig.port = service.sockets[0].getsockname()[1]
    hosts = tuple(host.replace("PORT", str(rig.port)) for host in hosts)

    async def look_up(host: str, port: int) -> list[AddressInfo]:
        rig.looked_up.append(host)
        address = (answers or {}).get(host, "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, rig.port))]

    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        patch.setattr(egress_proxy, "look_up", look_up)
        ours, theirs = socket.socketpair()
        rig.address = listener.getsockname()
        found = EgressProxy(ours, EgressRules(hosts), rig.on_refused)
        found.begin()
        socket.send_fds(theirs, [b"."], [listener.fileno()])
        theirs.close()
        try:
            yield rig
        finally:
            await found.close()
            service.close()
            await service.wait_closed()
            await asyncio.gather(*filter(None, rig.serving))


async def test_a_tunnel_leads_to_a_listed_host_and_its_bytes_are_left_alone() -> None:
    async with proxy("other.org", "service.test:PORT", "127.0.0.1") as rig:
        told = await rig.say(b"CONNECT service.test:%d HTTP/1.1\r\nhost: evil.net\r\n\r\n\x16\x03 hello" % rig.port)
    assert told == b"HTTP/1.1 200 Connection established\r\n\r\n<\x16\x03 hello>"
    assert rig.looked_up == ["service.test"] and rig.refused == []


async def test_plain_request_is_forwarded_without_proxy_headers() -> None:
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        await rig.say(
            b"GET http://user:pw@service.test/a?b=c HTTP/1.1\r\nHost: evil.net\r\nProxy-Authorization: x\r\n"
            b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
        )
    assert rig.received == b"GET /a?b=c HTTP/1.1\r\nHost: service.test\r\nConnection: close\r\nAccept: */*\r\n\r\n"


@pytest.mark.parametrize("request_line", [b"CONNECT evil.net:443", b"GET http://evil.net/"])
async def test_another_host_is_refused_before_it_is_looked_up(request_line: bytes) -> None:
    async with proxy("other.org", "service.test") as rig:
        told = await rig.say(request_line + b" HTTP/1.1\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 403 ") and b"`evil.net` is not in its `network`" in told
    assert rig.looked_up == [] and rig.accepted == 0
    (refused,) = rig.refused
    assert refused[:2] == ("evil.net", 443 if b"443" in request_line else 80) and refused[2].entry == "evil.net"


async def test_a_listed_name_that_leads_to_this_machine_is_refused() -> None:
    async with proxy("other.org", "service.test") as rig:
        told = await rig.say(b"CONNECT service.test:443 HTTP/1.1\r\n\r\n")
    assert b" 403 " in told and b"`127.0.0.1` on this machine" in told
    assert rig.accepted == 0 and rig.refused[0][2].entry == "127.0.0.1"


async def test_checked_address_is_the_connected_one() -> None:
    """A name that leads elsewhere when it is asked for again gains nothing: it is asked for once."""
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        await rig.say(b"CONNECT service.test:80 HTTP/1.1\r\n\r\nx")
    assert rig.looked_up == ["service.test"] and rig.accepted == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: service.test\r\n\r\n",
        b"GET https://service.test/ HTTP/1.1\r\n\r\n",
        b"CONNECT service.test HTTP/1.1\r\n\r\n",
        b"CONNECT service.test:99999 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1 HTTP/1.1\r\n\r\n",
        b"CONNECT service.test:443/x HTTP/1.1\r\n\r\n",
        b"GET http://service.test/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET http://service.test/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
        b"GET http://service.test/\xff HTTP/1.1\r\n\r\n",
        b"GET http://service.test/ HTTP/2\r\n\r\n",
        b"CONNECT service.test:443 HTTP/1.1\r\n",
        b"A" * (egress_proxy.MAX_HEAD_BYTES + 10),
    ],
)
async def test_malformed_proxy_request_is_refused(request_bytes: bytes) -> None:
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        assert (await rig.say(request_bytes)).startswith(b"HTTP/1.1 400 ")
    assert rig.accepted == 0 and rig.looked_up == []


async def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "MAX_CONNECTIONS", 2)
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        open_ones = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*rig.address)
            writer.write(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n")
            open_ones.append(writer)
        assert (await rig.say(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        for writer in open_ones:
            writer.close()


async def test_of_too_many_connections_most_are_closed_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(egress_proxy, "LINGER_TIMEOUT", 60.0)
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        open_ones = [await asyncio.open_connection(*rig.address) for _ in range(10)]
        answers = [await reader.read() for reader, _ in open_ones[2:]]
        for _, writer in open_ones:
            writer.close()
    # Those that are told why are held until they have heard it, and each holds a descriptor of ours.
    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 503 "] * 2 + [b""] * 6


async def test_abandoned_lookup_still_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress_proxy, "MAX_LOOK_UPS", 1)
    monkeypatch.setattr(egress_proxy, "HTTP_CONNECT_TIMEOUT", 0.05)
    asked: list[str] = []
    answered = asyncio.Event()

    async def look_up(host: str, port: int) -> list[AddressInfo]:
        asked.append(host)
        # As in a thread, which goes on when nobody waits for it any more.
        await asyncio.shield(asyncio.ensure_future(answered.wait()))
        raise DialFailed("name")

    async with proxy("other.org", "*.service.test") as rig:
        monkeypatch.setattr(egress_proxy, "look_up", look_up)
        for name in (b"a", b"b"):
            said = await rig.say(b"CONNECT " + name + b".service.test:80 HTTP/1.1\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 502 ")
        assert asked == ["a.service.test"]
        answered.set()
        monkeypatch.setattr(egress_proxy, "HTTP_CONNECT_TIMEOUT", 10.0)
        assert b"cannot be resolved" in await rig.say(b"CONNECT c.service.test:80 HTTP/1.1\r\n\r\n")
    assert asked == ["a.service.test", "c.service.test"]


async def test_an_idle_tunnel_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_proxy, "IDLE_TIMEOUT", 0.05)
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        reader, writer = await asyncio.open_connection(*rig.address)
        writer.write(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_closing_ends_open_tunnels() -> None:
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        reader, writer = await asyncio.open_connection(*rig.address)
        writer.write(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_a_host_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect_to(found: list[AddressInfo]) -> socket.socket:
        raise dialing.DialFailed("connect", OSError())

    monkeypatch.setattr(egress_proxy, "connect_to", connect_to)
    async with proxy("other.org", "service.test", "127.0.0.1") as rig:
        assert b" 502 " in await rig.say(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n")
    assert rig.refused == []


async def test_a_sandbox_that_ends_before_it_hands_over_its_listener_leaves_nothing() -> None:
    ours, theirs = socket.socketpair()
    found = EgressProxy(ours, EgressRules(("a.com",)), lambda *about: False)
    found.begin()
    theirs.close()
    await found.close()
    assert ours.fileno() == -1


async def test_host_that_was_allowed_meanwhile_is_reached_and_its_private_address_still_asked_about() -> None:
    async with proxy("other.org") as rig:
        request = b"CONNECT service.test:443 HTTP/1.1\r\n\r\nhello"
        assert b"`service.test` is not in its `network`" in await rig.say(request)
        rig.allowed.add("service.test")
        assert b"`service.test` leads to `127.0.0.1`" in await rig.say(request)
        rig.allowed.add("127.0.0.1")
        assert await rig.say(request) == b"HTTP/1.1 200 Connection established\r\n\r\n<hello>"
    assert rig.received == b"hello"


async def test_address_that_was_allowed_meanwhile_is_asked_about_once() -> None:
    async with proxy("other.org") as rig:
        rig.allowed.add(f"127.0.0.1:{rig.port}")
        request = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nhello" % rig.port
        assert await rig.say(request) == b"HTTP/1.1 200 Connection established\r\n\r\n<hello>"
