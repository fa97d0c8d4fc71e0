"""HTTP+SSE of 2024-11-05, and where it must not be trusted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.client import sse_transport
from tests.engine.transport.http.client.talk import talking
from tests.engine.transport.http.listening import Reply, Request, scripted_http

# ── the old transport ──


def old_server(endpoint: str) -> Any:
    async def handler(request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await reply.send(405)
        else:
            await reply.begin_events()
            await reply.chunk(b"event: endpoint\ndata: " + endpoint.encode() + b"\n\n")
            await reply.wait_gone()

    return handler


async def test_an_endpoint_of_another_origin_is_not_used() -> None:
    async with scripted_http(old_server("http://evil.example/messages")) as server:
        async with talking(server.url, transport="sse") as talk:
            error = await talk.failure(talk.request("initialize"))
            assert "another origin, http://evil.example" in error.message
        async with talking(server.url, transport="auto") as talk:
            error = await talk.failure(talk.request("initialize"))
            assert "405" in error.message, "what the POST said"


async def test_the_old_transport_is_not_tried_where_it_is_not_wanted() -> None:
    async with scripted_http(old_server("/messages")) as server, talking(server.url, transport="http") as talk:
        await talk.failure(talk.request("initialize"))
        assert [request.method for request in server.requests] == ["POST"]


async def test_a_stream_that_names_no_endpoint_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_transport, "ENDPOINT_EVENT_TIMEOUT", 0.02)

    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        await reply.wait_gone()

    async with scripted_http(handler) as server, talking(server.url, transport="sse") as talk:
        error = await talk.failure(talk.request("initialize"))
        assert "did not say where to send requests" in error.message


async def test_the_end_of_the_old_stream_is_the_end_of_the_link() -> None:
    hang_up = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await reply.send(202)
            hang_up.set()
        else:
            await reply.begin_events()
            await reply.chunk(b"event: endpoint\ndata: /messages?s=1\n\n")
            await hang_up.wait()
            reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url, transport="sse") as talk:
        talk.request("initialize")
        await talk.until(lambda: bool(talk.closed))
        assert len(talk.closed) == 1
        assert server.requests[1].path == "/messages?s=1"


async def test_a_probe_is_not_sent_over_the_old_transport() -> None:
    async with scripted_http(old_server("/messages")) as server, talking(server.url, transport="sse") as talk:
        assert (await talk.ask("server/discover", modern=True))["error"]["code"] == -32601
        assert not server.requests


async def test_a_post_that_the_old_server_refuses_fails() -> None:
    async with scripted_http(old_server("/messages")) as server, talking(server.url, transport="sse") as talk:
        error = await talk.failure(talk.request("initialize"))
        assert "405" in error.message
