"""Pages beside the MCP endpoint: what health checks of balancers see of us, to the end."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.pages import (
    READINESS_POLL_WINDOW,
    Page,
    PageAccess,
    PageResponse,
    ReadinessPage,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import modern, modern_headers


async def test_a_plain_health_check_of_a_balancer_has_no_host() -> None:
    async with echoing() as rig:
        for path in ("/healthz", "/readyz"):
            for version in ("1.0", "1.1"):
                connection = await rig.client.connect()
                await connection.send(f"GET {path} HTTP/{version}\r\n\r\n".encode())
                assert (await connection.response()).status == 200
        connection = await rig.client.connect()
        await connection.send(b"GET /mcp HTTP/1.0\r\n\r\n")
        await rig.refused(connection.response(), 403)


async def test_a_wrong_token_is_refused_where_a_right_one_shows_more() -> None:
    async with echoing(authenticator=BearerToken("x")) as rig:
        await rig.refused(rig.client.request("GET", "/readyz", authorization="Bearer y"), 401)
        assert (await rig.client.request("GET", "/healthz", authorization="Bearer y")).status == 200


async def test_page_of_another_package_is_one_entry_with_its_audience() -> None:
    def respond(principal: str) -> PageResponse:
        return PageResponse(200, b"content-type: text/plain\r\n", principal.encode())

    pages = {"/.well-known/x": Page(respond), "/metrics": Page(respond, PageAccess.CALLERS)}
    async with echoing(authenticator=BearerToken("x"), pages=pages) as rig:
        assert (await rig.client.request("GET", "/.well-known/x")).status == 200
        refused = await rig.client.request("GET", "/metrics")
        assert refused.status == 401 and "www-authenticate" in refused.headers
        await rig.refused(rig.client.request("GET", "/metrics", authorization="Bearer y"), 401)
        shown = await rig.client.request("GET", "/metrics", authorization="Bearer x")
        assert (shown.status, shown.body) == (200, b"default")
        assert (await rig.client.request("POST", "/metrics", authorization="Bearer x")).status == 405
        assert (await rig.client.request("GET", "/healthz")).status == 200


async def test_a_server_that_leaves_says_so_and_serves_on() -> None:
    async with echoing() as rig:
        assert (await rig.client.request("GET", "/readyz")).status == 200
        rig.server.leave()
        assert rig.server.is_watched
        assert (await rig.client.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        assert (await rig.client.request("GET", "/readyz")).status == 503
        assert (await rig.client.request("GET", "/healthz")).status == 200
        assert (await rig.client.request(body=modern("echo"), **modern_headers("echo"))).status == 200


async def test_haproxy_sees_a_server_that_drains_leave_until_it_has_stopped() -> None:
    async with echoing() as rig:
        assert (await rig.client.request("GET", "/readyz?leaving=404")).status == 200
        rig.server.drain()
        connection = await rig.client.connect()
        assert (await connection.request("GET", "/readyz?leaving=404")).status == 404, "drained, not failed"
        assert (await connection.request("GET", "/readyz")).status == 503
        refused = await connection.request(body=modern("echo"), **modern_headers("echo"))
        assert refused.status == 503 and "shutting down" in refused.error["message"]
        await rig.server.stop()
        with pytest.raises(OSError):
            await rig.client.connect()


def asked(principal: str = "", target: bytes = b"/readyz") -> RequestHead:
    head = RequestHead()
    head.principal, head.target = principal, target
    return head


def test_viewer_that_stops_polling_is_forgotten() -> None:
    now = 0.0
    page = ReadinessPage(None, lambda: now)
    assert not page.is_watched, "never asked"
    page = ReadinessPage(lambda principal: (True, b'{"a":1}'), lambda: now)
    assert page.respond_to(asked("token")).body == b'{"a":1}'
    assert page.respond_to(asked()).body == b"{}"
    assert page.is_watched and not page.must_be_answered
    now = READINESS_POLL_WINDOW + 1
    assert not page.is_watched, "it has not asked for a while"
