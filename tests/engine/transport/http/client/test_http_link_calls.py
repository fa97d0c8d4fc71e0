"""Calls, of which the sender says what they are: the same on the connection, with less work on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
from mcp_workbench.engine.transport.http.client.http_link import HttpLink
from mcp_workbench.engine.transport.http.client.post import Post
from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters
from tests.engine.transport.http.client.talk import STAMP, Talk, talking
from tests.engine.transport.http.listening import PATIENCE, Reply, Request, scripted_http


async def modern_server(request: Request, reply: Reply) -> None:
    """Answers in one piece, as servers do."""
    body = json.dumps({"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": {"ok": True}}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    await reply.raw(head + body)


def call_of(talk: Talk, id: int, tool: str, *, modern: bool = True) -> None:
    meta = {"_meta": STAMP} if modern else {}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}, **meta}}
    talk.link.send_call(json.dumps(message).encode(), id, tool, "2026-07-28" if modern else None)


async def test_calls_carry_the_same_headers_whichever_way_they_are_sent() -> None:
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        await talk.ask("tools/call", {"name": "add", "arguments": {}}, modern=True)
        for id in (101, 102, 103):
            call_of(talk, id, "add" if id < 103 else "größer")
            await talk.answer(id)
        first, *others = [request.headers for request in server.requests]
        assert others[0] == others[1] and {**first, "content-length": ""} == {**others[0], "content-length": ""}
        assert others[2]["mcp-name"] != "add" and others[2]["mcp-name"].startswith("=?base64?")
        assert server.connections == 1


async def test_a_call_on_a_free_connection_needs_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Post] = []
    run_to_end = HttpLink.run_to_end

    def counting(link: HttpLink, post: Post, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        started.append(post)
        return run_to_end(link, post, work)

    monkeypatch.setattr(HttpLink, "run_to_end", counting)
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        for id in range(1, 6):
            call_of(talk, id, "add", modern=id % 2 == 0)
            await talk.answer(id)
        assert len(server.requests) == 5
        assert len(started) == 1, "the first one had to open the connection"


@pytest.mark.parametrize(
    "lie",
    [
        b"content-length: 5000\r\n\r\n",
        b"content-length: 1\r\n\r\n",
        b"content-length: 0x9\r\n\r\n",
        b"content-length: \r\n\r\n",
        b"content-length: 99999999999999999999999\r\n\r\n",
    ],
)
async def test_a_head_that_lies_about_its_length_is_not_believed(lie: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if b"honest" in request.body:
            await modern_server(request, reply)
            return
        answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": {"forged": 1}})
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + lie + answer.encode())
        reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (1, 2):
            call_of(talk, id, "honest")
            await talk.answer(id)
        call_of(talk, 3, "lying")
        await talk.failure(3)
        call_of(talk, 4, "honest")
        assert (await talk.answer(4))["result"] == {"ok": True}


async def test_an_answer_beyond_the_limit_is_refused_however_its_head_looks() -> None:
    async with scripted_http(modern_server) as server, talking(server.url, limit=60) as talk:
        for id in (1, 2):
            call_of(talk, id, "add")
            await talk.answer(id)
        call_of(talk, 10**17, "add")
        assert "60 bytes" in (await talk.failure(10**17)).message


async def test_headers_that_change_are_in_the_next_call() -> None:
    class Changing(FixedHeaders):
        token = 0

        def headers(self) -> dict[str, str]:
            Changing.token += 1
            return {"authorization": f"Bearer {Changing.token}"}

    async with scripted_http(modern_server) as server, talking(server.url, source=Changing({})) as talk:
        for id in (1, 2, 3):
            call_of(talk, id, "add")
            await talk.answer(id)
        assert len({request.headers["authorization"] for request in server.requests}) == 3


async def test_arguments_that_are_mirrored_are_in_the_headers_of_each_call() -> None:
    known: dict[str, HeaderParameters] = {"ship": {("region",): "Region"}}
    async with scripted_http(modern_server) as server, talking(server.url, parameters_of=known.get) as talk:
        for id, region in enumerate(("north", "south"), 1):
            params = {"name": "ship", "arguments": {"region": region}, "_meta": STAMP}
            message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            talk.link.send_call(json.dumps(message).encode(), id, "ship", "2026-07-28")
            await talk.answer(id)
        assert [request.headers["mcp-param-region"] for request in server.requests] == ["north", "south"]


async def test_a_call_that_is_cancelled_closes_its_connection_and_no_other() -> None:
    gone = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        if b'"stuck"' in request.body:
            await reply.wait_gone()
            gone.set()
        else:
            await modern_server(request, reply)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (1, 2):
            call_of(talk, id, "add")
        for id in (1, 2):
            await talk.answer(id)
        call_of(talk, 3, "stuck")
        call_of(talk, 4, "add")
        await talk.answer(4)
        talk.notify("notifications/cancelled", {"requestId": 3})
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        call_of(talk, 5, "add")
        await talk.answer(5)
        assert not talk.failures and server.connections == 2


async def test_a_call_fails_when_its_connection_breaks_without_an_answer() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if b'"doomed"' in request.body:
            reply.hang_up()
        else:
            await modern_server(request, reply)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        call_of(talk, 1, "add")
        await talk.answer(1)
        call_of(talk, 2, "doomed")
        assert "may or may not have acted" in (await talk.failure(2)).message
        call_of(talk, 3, "add")
        await talk.answer(3)
        assert len(server.requests) == 3, "nothing was sent twice"


async def test_answer_in_several_parts_takes_the_general_path() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        id = json.loads(request.body)["id"]
        answer = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"n": id}}).encode()
        if id == 2:
            await reply.begin_events()
            await reply.chunk(b"data: " + answer + b"\n\n")
            await reply.end()
        elif id == 3:
            await reply.head(200, {"content-type": "application/json", "content-length": str(len(answer))})
            await reply.raw(answer[:5])
            await reply.raw(answer[5:])
        elif id == 4:
            await reply.send(500, b"oh")
        elif id == 5:
            await reply.send(200, b'{"jsonrpc":"2.0","id":99,"result":{}}')
        else:
            await reply.send(200, answer)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (1, 2, 3):
            call_of(talk, id, "add")
            assert (await talk.answer(id))["result"] == {"n": id}
        call_of(talk, 4, "add")
        assert "500" in (await talk.failure(4)).message
        call_of(talk, 5, "add")
        assert "not an answer" in (await talk.failure(5)).message
        call_of(talk, 6, "add")
        await talk.answer(6)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_connection_whose_answer_was_not_ours_is_not_used_again(is_known: bool, is_stream: bool) -> None:
    """A server that answers twice: the second answer would be taken for the next one's, and so on for ever."""
    doubled = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        id = json.loads(request.body)["id"]
        if b'"doubled"' in request.body and not doubled.is_set():
            doubled.set()
            stale = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "stale"}}).encode()
            if is_stream:
                await reply.begin_events()
                await reply.chunk(b"data: " + stale + b"\n\n")
                await reply.end()
                return
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(stale)
            await reply.raw(head + (b"\r\n" if is_known else b"x: y\r\n\r\n") + stale)
            return
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"n": id}}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        await reply.raw(head + body)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (101, 102):
            call_of(talk, id, "plain")
            assert (await talk.answer(id))["result"] == {"n": id}
        assert server.connections == 1
        call_of(talk, 103, "doubled")
        await talk.failure(103)
        for id in (104, 105):
            call_of(talk, id, "plain")
            assert (await talk.answer(id))["result"] == {"n": id}
        assert server.connections == 2
