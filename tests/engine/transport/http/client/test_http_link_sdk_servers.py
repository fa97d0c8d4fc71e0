"""The official SDK's servers at the other end of our link, in both eras and over every HTTP transport they have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.transport.http.client.talk import Talk, talking
from tests.engine.transport.http.listening import PATIENCE, served
from tests.engine.transport.http.sdk_server import make_server


async def legacy(talk: Talk, **capabilities: Any) -> None:
    answer = await talk.initialize(capabilities=capabilities)
    assert answer["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_modern_server_answers_calls(json_response: bool) -> None:
    async with served(make_server().streamable_http_app(json_response=json_response)) as origin:
        async with talking(f"{origin}/mcp") as talk:
            found = await talk.ask("server/discover", modern=True)
            assert "2026-07-28" in found["result"]["supportedVersions"]
            answer = await talk.ask("tools/call", {"name": "echo", "arguments": {"text": "grüß dich"}}, modern=True)
            assert answer["result"]["content"][0]["text"] == "grüß dich"


@pytest.mark.parametrize("json_response", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
async def test_a_legacy_server_answers_calls(json_response: bool, stateless: bool) -> None:
    app = make_server().streamable_http_app(json_response=json_response, stateless_http=stateless)
    async with served(app) as origin, talking(f"{origin}/mcp") as talk:
        await legacy(talk)
        assert (talk.link._session.id is None) == stateless
        answers = await asyncio.gather(
            *(talk.ask("tools/call", {"name": "echo", "arguments": {"text": f"t{n}"}}) for n in range(20))
        )
        assert [answer["result"]["content"][0]["text"] for answer in answers] == [f"t{n}" for n in range(20)]


@pytest.mark.parametrize("modern", [False, True])
async def test_progress_arrives_before_the_answer(modern: bool) -> None:
    async with served(make_server().streamable_http_app()) as origin, talking(f"{origin}/mcp") as talk:
        if not modern:
            await legacy(talk)
        params: dict[str, Any] = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": 7}}
        if modern:
            from tests.engine.transport.http.client.talk import STAMP

            params["_meta"] |= STAMP
        answer = await talk.ask("tools/call", params)
        assert answer["result"]["content"][0]["text"] == "done"
        assert [each["params"]["progress"] for each in talk.notifications("notifications/progress")] == [1, 2, 3]
        assert talk.messages[-1] == answer


async def test_a_legacy_server_asks_on_the_stream_of_the_call() -> None:
    async with served(make_server().streamable_http_app()) as origin, talking(f"{origin}/mcp") as talk:
        await legacy(talk, elicitation={})
        talk.on_request = lambda message: {"action": "accept", "content": {"colour": "green"}}
        answer = await talk.ask("tools/call", {"name": "ask", "arguments": {}})
        assert "green" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_call_is_cancelled_at_the_server(modern: bool) -> None:
    cancelled = asyncio.Event()
    async with served(make_server(cancelled).streamable_http_app()) as origin, talking(f"{origin}/mcp") as talk:
        if not modern:
            await legacy(talk)
        id = talk.request("tools/call", {"name": "wait", "arguments": {}}, modern=modern)
        await talk.ask("tools/call", {"name": "echo", "arguments": {"text": "x"}}, modern=modern)
        talk.notify("notifications/cancelled", {"requestId": id, "reason": "test"})
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        assert not talk.failures


async def test_stopping_ends_the_session_at_the_server() -> None:
    server = make_server()
    async with served(server.streamable_http_app()) as origin:
        async with talking(f"{origin}/mcp") as talk:
            await legacy(talk)
            await talk.ask("tools/list")
            assert len(server.session_manager._server_instances) == 1
        assert not server.session_manager._server_instances


@pytest.mark.parametrize("transport", ["auto", "sse"])
async def test_the_old_transport_is_found(transport: Any) -> None:
    async with served(make_server().sse_app()) as origin, talking(f"{origin}/sse", transport=transport) as talk:
        if transport == "auto":
            probe = await talk.ask("server/discover", modern=True)
            assert "error" in probe
        await legacy(talk, elicitation={})
        answer = await talk.ask("tools/call", {"name": "echo", "arguments": {"text": "old"}})
        assert answer["result"]["content"][0]["text"] == "old"
        talk.on_request = lambda message: {"action": "accept", "content": {"colour": "blue"}}
        answer = await talk.ask("tools/call", {"name": "ask", "arguments": {}})
        assert "blue" in answer["result"]["content"][0]["text"]
