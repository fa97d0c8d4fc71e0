"""Servers that do not know our session any more, however they say so."""

from __future__ import annotations

import asyncio
import json

import pytest

from mcp_workbench.engine.transport.http.client import http_link as link_module
from mcp_workbench.engine.transport.link import SESSION_LOST
from tests.engine.transport.http.client.talk import talking
from tests.engine.transport.http.client.test_http_link import LegacyServer, answer
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, -32600, "Session not found"),
        (400, -32000, "Bad Request: No valid session ID provided"),
        (400, -32000, "Bad Request: Server not initialized"),
    ],
)
async def test_a_forgotten_session_closes_the_link_and_leaves_the_request_unanswered(
    status: int, code: int, message: str
) -> None:
    """Whoever owns the link meets the server anew, and may send again what has neither answer nor failure."""
    server = LegacyServer()
    server.refusal = status, {"code": code, "message": message}
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize()
        server.session = "s-2"
        talk.request("tools/call", {"name": "x"})
        await talk.until(lambda: bool(talk.closed))
        assert talk.closed == [SESSION_LOST]
        assert not talk.failures
        assert server.events.count("tools/call") == 1
    assert http.requests[-1].method != "DELETE", "there is nothing to say goodbye to"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32602, "No valid session ID provided"),
        (-32000, "Bad Request: not like this"),
        (-32000, "Your session has expired, sign in again"),
    ],
)
async def test_another_mistake_is_not_taken_for_a_forgotten_session(code: int, message: str) -> None:
    class Strict(LegacyServer):
        async def call(self, request: Request, reply: Reply) -> None:
            await reply.send(400, json.dumps({"id": None, "error": {"code": code, "message": message}}).encode())

    async with scripted_http(Strict()) as http, talking(http.url) as talk:
        await talk.initialize()
        assert (await talk.ask("tools/call", {"name": "x"}))["error"] == {"code": code, "message": message}
        assert not talk.closed


async def test_requests_under_way_when_a_session_is_forgotten_get_their_answers() -> None:
    class Half(LegacyServer):
        def __init__(self) -> None:
            super().__init__()
            self.has_refused = asyncio.Event()

        async def __call__(self, request: Request, reply: Reply) -> None:
            await super().__call__(request, reply)
            if b'"refused"' in request.body:
                self.has_refused.set()

        async def call(self, request: Request, reply: Reply) -> None:
            if b'"slow"' in request.body:
                await self.has_refused.wait()
            await reply.send(200, answer(request, {"ok": True}))

    server = Half()
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize()
        slow = talk.request("tools/call", {"name": "slow"})
        await wait_until(lambda: "tools/call" in server.events)
        server.session = "s-2"
        talk.request("tools/call", {"name": "refused"})
        assert (await talk.answer(slow))["result"] == {"ok": True}
        await talk.until(lambda: bool(talk.closed))
        assert not talk.failures


async def test_a_request_that_does_not_end_with_a_forgotten_session_is_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SESSION_LOST_GRACE", 0.02)

    class Hanging(LegacyServer):
        async def call(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.wait_gone()

    server = Hanging()
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize()
        hanging = talk.request("tools/call", {"name": "x"})
        await wait_until(lambda: "tools/call" in server.events)
        server.session = "s-2"
        refused = talk.request("tools/call", {"name": "y"})
        error = await talk.failure(hanging)
        assert "lost the session" in error.message
        assert talk.closed == [SESSION_LOST]
        assert str(refused) not in talk.failures
