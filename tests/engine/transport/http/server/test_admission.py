"""Who comes in: by name, by origin, by token; before a body is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.transport.http.server.admission import Admission, is_loopback, is_wildcard
from mcp_workbench.engine.transport.http.server.authentication import Anonymous, AuthenticationChallenge, BearerToken
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import initialize, modern, modern_headers, written

FOREIGN = [
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example.localhost",
    "localhost@evil.example",
    "evil.example#localhost",
    "localhost/evil",
    "localhost, evil.example",
    "localhost evil.example",
    "localhost:port",
    "localhost:",
    "localhost.",
    ":8420",
    "10.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0.0.0.0",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[fe80::1]",
    "::1",
    "ⓛocalhost",
    "%6cocalhost",
    "",
]
OWN = ["localhost", "LOCALHOST", "localhost:8420", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8420", "LocalHost:65535"]


def admission(host: str = "127.0.0.1", **options: tuple[str, ...]) -> Admission:
    return Admission(host, Anonymous(), **options)


def arrived(**headers: str) -> RequestHead:
    head = RequestHead("POST", "/mcp")
    head.headers.update({"host": "localhost", **headers})
    return head


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_does_not_come_in(host: str) -> None:
    refusal = admission().check_sender(arrived(host=host))
    assert refusal is not None and refusal.status == 403


@pytest.mark.parametrize("host", OWN)
def test_our_own_names_do(host: str) -> None:
    rules = admission()
    assert rules.check_sender(arrived(host=host)) is None
    assert rules.check_sender(arrived(host=host)) is None, "and again, remembered"


def test_requests_without_a_host_are_refused() -> None:
    head = RequestHead("POST", "/mcp")
    refusal = admission().check_sender(head)
    assert refusal is not None and refusal.status == 403


def test_a_health_check_may_leave_the_host_out_and_a_page_may_not() -> None:
    rules = admission()
    head = RequestHead("GET", "/readyz")
    assert rules.check_sender(head, needs_host=False) is None
    head.headers["origin"] = "http://localhost"
    refusal = rules.check_sender(head, needs_host=False)
    assert refusal is not None and refusal.status == 403
    refusal = rules.check_sender(arrived(host="evil.example"), needs_host=False)
    assert refusal is not None and refusal.status == 403


@pytest.mark.parametrize(
    "origin",
    [f"http://{host}" for host in FOREIGN if host]
    + ["null", "http://", "localhost", "file://localhost", "http://localhost/", "http://localhost?x", "https://evil"],
)
def test_a_foreign_origin_does_not_come_in(origin: str) -> None:
    refusal = admission().check_sender(arrived(origin=origin))
    assert refusal is not None and refusal.status == 403


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", OWN)
def test_a_page_that_came_from_where_it_sends_to_comes_in(host: str, scheme: str) -> None:
    assert admission().check_sender(arrived(host=host, origin=f"{scheme}://{host}")) is None


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://localhost", "http://127.0.0.1:8420", "http://[::1]:8420"]
)
def test_a_page_of_another_port_or_name_of_this_machine_does_not(origin: str) -> None:
    refusal = admission().check_sender(arrived(host="localhost:8420", origin=origin))
    assert refusal is not None and refusal.status == 403


def test_allowed_hosts_and_origins_are_accepted() -> None:
    rules = admission(allow_hosts=("Box.Example", "fd00::1"), allow_origins=("https://App.example/", "vscode://x"))
    for host in ("box.example:8420", "BOX.example", "[fd00::1]:1"):
        assert rules.check_sender(arrived(host=host)) is None
    for origin in ("https://app.example", "vscode://x"):
        assert rules.check_sender(arrived(origin=origin)) is None
    assert rules.check_sender(arrived(host="Box.example", origin="https://box.example")) is None
    for origin in ("http://app.example", "https://app.example.evil", "https://app.example:444"):
        assert rules.check_sender(arrived(origin=origin)) is not None


def test_a_star_allows_all() -> None:
    rules = admission(allow_hosts=("*",), allow_origins=("*",))
    assert rules.check_sender(arrived(host="x.example", origin="https://y.example")) is None


def test_the_address_we_listen_on_is_ours() -> None:
    assert admission("192.168.7.7").check_sender(arrived(host="192.168.7.7:8420")) is None
    assert admission("fd00::7").check_sender(arrived(host="[fd00::7]:8420")) is None
    assert admission("192.168.7.7").check_sender(arrived(host="192.168.7.8:8420")) is not None


def test_listening_on_all_interfaces_accepts_addresses_but_no_names() -> None:
    for everywhere in ("0.0.0.0", "::"):
        rules = admission(everywhere)
        for host in ("10.1.2.3:8420", "[fd00::9]"):
            assert rules.check_sender(arrived(host=host)) is None
        assert rules.check_sender(arrived(host="evil.example")) is not None
        assert rules.check_sender(arrived(origin="http://evil.example")) is not None


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", "BEARER  secret "])
def test_the_token_opens(header: str) -> None:
    assert BearerToken("secret").authenticate(arrived(authorization=header)) == "default"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "ü"]
)
def test_nothing_else_does(header: str | None) -> None:
    given = arrived() if header is None else arrived(authorization=header)
    assert isinstance(BearerToken("secret").authenticate(given), AuthenticationChallenge)


def test_loopback_and_wildcard_are_known() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "box")] == (
        [True] * 4 + [False] * 2
    )
    assert [is_wildcard(host) for host in ("0.0.0.0", "::", "127.0.0.1", "box")] == [True, True, False, False]


# Over the wire


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_unauthenticated_requests_are_refused_before_anything_is_started(headers: dict[str, Any]) -> None:
    async with echoing() as rig:
        await rig.refused(rig.client.request(body=b"not even JSON", **headers), 403)
        for path in ("/healthz", "/readyz", "/else"):
            await rig.refused(rig.client.request("GET", path, **headers), 403)
        assert not rig.sessions


async def test_a_repeated_host_is_refused() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert (await connection.response()).status == 400


async def test_a_token_is_asked_for() -> None:
    async with echoing(authenticator=BearerToken("secret")) as rig:
        response = await rig.client.request(body=initialize())
        assert (response.status, response.headers["www-authenticate"]) == (401, 'Bearer realm="mcp-workbench"')
        response = await rig.refused(rig.client.request(body=initialize(), authorization="Bearer guess"), 401)
        assert "invalid_token" in response.headers["www-authenticate"]
        assert not rig.sessions
        response = await rig.client.request(body=initialize(), authorization="Bearer secret")
        assert response.status == 200
        assert rig.last.principal == "default"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/jsonp"}, 415),
        ({"content_type": None}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "Application/JSON; charset=utf-8"}, 200),
        ({"accept": "application/json"}, 406),
        ({"accept": "text/event-stream"}, 406),
        ({"accept": "text/html"}, 406),
        ({"accept": "application/json, text/event-stream;q=0"}, 406),
        ({"accept": "*/*"}, 200),
        ({"accept": "application/*, text/*;q=0.1"}, 200),
        ({"accept": "TEXT/EVENT-STREAM,application/json"}, 200),
        ({"accept": None}, 200),
    ],
)
async def test_types_are_checked(headers: dict[str, Any], status: int) -> None:
    async with echoing() as rig:
        assert (await rig.client.request(body=initialize(), **headers)).status == status


async def test_accept_may_be_spread_over_several_headers() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        data = written("POST", "/mcp", initialize(), accept="application/json")
        await connection.send(data.replace(b"accept:", b"accept: text/event-stream\r\naccept:"))
        assert (await connection.response()).status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused_with_those_that_exist(method: str) -> None:
    async with echoing() as rig:
        response = await rig.client.request(method)
        assert (response.status, response.headers["allow"]) == (405, "POST, GET, DELETE")


async def test_a_browser_of_an_allowed_origin_is_told_so() -> None:
    async with echoing(allow_origins=("https://app.example",)) as rig:
        asked = await rig.client.request(
            "OPTIONS", origin="https://app.example", access_control_request_method="POST", content_length=None
        )
        assert asked.status == 204
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in asked.headers["access-control-allow-headers"]
        response = await rig.client.request(body=modern("echo"), origin="https://app.example", **modern_headers("echo"))
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert "mcp-session-id" in response.headers["access-control-expose-headers"]
        foreign = await rig.client.request(
            "OPTIONS", origin="https://evil.example", access_control_request_method="POST"
        )
        assert foreign.status == 403 and "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize("request_", ["GET /healthz", "POST /mcp"])
async def test_garbage_behind_a_wish_for_another_protocol_is_the_clients_mistake(
    request_: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        head = f"{request_} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n"
        await connection.send(head.encode() + b"\x00\x01\x02garbage")
        await connection.closed()
        assert (await rig.client.request("GET", "/healthz")).status == 200
    assert "defect" not in caplog.text
