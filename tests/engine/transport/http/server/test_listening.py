"""Where we listen, and what we say when we cannot."""

from __future__ import annotations

import resource
import socket

import pytest

from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.listening import bind, check_exposure, most_connections, parse_address
from mcp_workbench.errors import ConfigError
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import raw_client


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8420", ("127.0.0.1", 8420)),
        ("", ("127.0.0.1", 8420)),
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("box.example:0", ("box.example", 0)),
        ("box.example", ("box.example", 8420)),
        ("[::1]:9000", ("::1", 9000)),
        ("[::]", ("::", 8420)),
        ("::1", ("::1", 8420)),
    ],
)
def test_addresses_are_read_as_people_write_them(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1:port", "127.0.0.1:65536", "[::1", "[::1]9000", "127.0.0.1:-1", "x:٣"])
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        parse_address(text)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of `127.0.0.1` is in use") as caught:
            bind("127.0.0.1", port)
        assert caught.value.hint is not None


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "bad host"])
def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        bind(host, 0)


@pytest.mark.parametrize(
    ("files", "connections"), [(resource.RLIM_INFINITY, 500), (4_000, 500), (400, 300), (100, 75), (8, 16)]
)
def test_connections_leave_files_for_servers(files: int, connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    assert most_connections(500) == connections


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.example"])
def test_others_reach_us_only_with_authentication(host: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines") as caught:
        check_exposure(host, is_authenticated=False)
    assert caught.value.hint is not None and "--token-file" in caught.value.hint
    check_exposure(host, is_authenticated=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_reaches_us_without(host: str) -> None:
    check_exposure(host, is_authenticated=False)


async def test_exposure_is_checked_before_anything_listens() -> None:
    with pytest.raises(ConfigError, match="without authentication"):
        async with echoing(host="0.0.0.0"):
            pass
    async with echoing(host="0.0.0.0", authenticator=BearerToken("x")) as rig:
        assert (await rig.client.request("GET", "/healthz", host="10.1.2.3")).status == 200


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_ipv6_is_served() -> None:
    async with echoing(host="::1") as rig:
        assert rig.server.url == f"http://[::1]:{rig.server.port}/mcp"
        async with raw_client(rig.server.port, "::1") as client:
            assert (await client.request("GET", "/healthz", host=f"[::1]:{rig.server.port}")).status == 200


async def test_localhost_is_served_on_all_its_addresses_and_one_port() -> None:
    sockets = bind("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


async def test_operators_see_whether_we_live_and_are_ready() -> None:
    async with echoing() as rig:
        healthy = await rig.client.request("GET", "/healthz")
        assert (healthy.status, healthy.body) == (200, b"ok\n")
        assert (await rig.client.request("GET", "/readyz")).status == 200
        assert (await rig.client.request("POST", "/healthz", body=b"{}")).status == 405
        assert (await rig.client.request("GET", "/nowhere")).status == 404
        assert "HttpServer http://127.0.0.1" in repr(rig.server)


async def test_server_details_require_the_token() -> None:
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions, serve_http

    server = await serve_http(
        HttpOptions(port=0, authenticator=BearerToken("x")),
        lambda link, principal: pytest.fail("nobody speaks MCP here"),
        readiness=lambda principal: (True, b'{"servers":1}'),
    )
    try:
        async with raw_client(server.port) as client:
            assert (await client.request("GET", "/readyz")).json == {}
            assert (await client.request("GET", "/readyz", authorization="Bearer x")).json == {"servers": 1}
    finally:
        await server.stop()


async def test_a_burst_of_clients_waits_in_the_system_while_we_are_busy() -> None:
    """Who finds no place there is not refused but ignored, and tries again a second later, then after two, four …"""
    async with echoing() as rig:
        # Without a turn of the loop: nobody accepts them.
        waiting = [socket.create_connection(("127.0.0.1", rig.server.port), timeout=10) for _ in range(500)]
        for each in waiting:
            each.close()
        await wait_until(lambda: rig.server.connection_count == 0)
