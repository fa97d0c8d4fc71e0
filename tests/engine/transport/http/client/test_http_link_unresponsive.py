"""Servers that take messages and say nothing: what is cancelled is cancelled, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import zlib

import pytest

from mcp_workbench.engine.transport import backlog
from mcp_workbench.engine.transport.http.client import http_link
from mcp_workbench.engine.transport.http.client import http_link as link_module
from mcp_workbench.engine.transport.http.client.post import MIN_RESUME_DELAY, Post
from mcp_workbench.engine.transport.http.client.response import MAX_INFLATED_BYTES
from tests.engine.transport.http.client.talk import STAMP, talking
from tests.engine.transport.http.client.test_http_link import LegacyServer, answer
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until


class Silent(LegacyServer):
    """Legacy; does not answer what it is told to keep to itself."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.silent_about = set(methods)
        self.may_speak = asyncio.Event()

    async def __call__(self, request: Request, reply: Reply) -> None:
        method = json.loads(request.body).get("method") if request.body else None
        if method in self.silent_about:
            self.events.append(f"silent: {method}")
            await self.may_speak.wait()
        await super().__call__(request, reply)


async def test_cancelled_calls_take_no_place_even_if_the_server_does_not_learn_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "MAX_CONCURRENT_POSTS", 2)
    server = Silent("tools/call", "notifications/cancelled")
    async with scripted_http(server) as listening, talking(listening.url) as talk:
        await talk.initialize()
        stuck = [talk.request("tools/call", {"name": "x"}) for _ in range(2)]
        await wait_until(lambda: server.events.count("silent: tools/call") == 2)
        for id in stuck:
            talk.notify("notifications/cancelled", {"requestId": id})
        server.silent_about.discard("tools/call")
        assert (await talk.ask("tools/call", {"name": "x"}))["result"] == {"ok": True}
        await wait_until(lambda: server.events.count("silent: notifications/cancelled") == 2)
        server.may_speak.set()


async def test_a_notification_that_is_never_answered_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "ONE_WAY_TIMEOUT", 0.05)
    server = Silent("notifications/initialized")
    async with scripted_http(server) as listening, talking(listening.url) as talk:
        await talk.initialize()
        assert (await talk.ask("tools/call", {"name": "x"}))["result"] == {"ok": True}
        server.may_speak.set()


async def test_a_call_that_was_cancelled_before_it_was_sent_is_never_sent() -> None:
    server = Silent("notifications/initialized")
    async with scripted_http(server) as listening, talking(listening.url) as talk:
        await talk.initialize()
        given_up, kept = (talk.request("tools/call", {"name": "x"}) for _ in range(2))
        talk.notify("notifications/cancelled", {"requestId": given_up})
        server.may_speak.set()
        await talk.answer(kept)
        sent = [json.loads(request.body).get("id") for request in listening.requests if request.body]
        assert given_up not in sent and kept in sent
        assert "notifications/cancelled" not in server.events
        assert talk.link.unsent_bytes == 0


async def test_messages_waiting_for_the_handshake_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_UNSENT_BYTES", 1000)
    monkeypatch.setattr(backlog, "SMALL_MESSAGE", 100)
    server = Silent("notifications/initialized")
    async with scripted_http(server) as listening, talking(listening.url) as talk:
        await talk.initialize()
        ids = [talk.request("tools/call", {"name": "x", "arguments": {"pad": "x" * 300}}) for _ in range(5)]
        assert "does not fit" in (await talk.failure(ids[-1])).message
        server.may_speak.set()
        await talk.answer(ids[0])
        assert len(talk.failures) == 3


async def test_calls_that_are_cancelled_at_once_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_CONCURRENT_POSTS", 4)

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, answer(request, {"ok": True}))

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for _ in range(20):
            id = talk.request("tools/call", {"name": "x", "arguments": {"pad": "x" * 1000}}, modern=True)
            talk.notify("notifications/cancelled", {"requestId": id})
        assert (await talk.ask("tools/call", {"name": "y"}, modern=True))["result"] == {"ok": True}
        await wait_until(lambda: not talk.link._posts)
        assert (talk.link._running, talk.link.unsent_bytes) == (0, 0)


async def test_a_cancelled_call_is_not_left_to_the_garbage_collector() -> None:
    """Which comes late, and the call may be large."""

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, answer(request, {"ok": True}))

    async with scripted_http(handler) as server, talking(server.url) as talk:
        await talk.ask("tools/call", {"name": "y"}, modern=True)
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                id = talk.request("tools/call", {"name": "x"}, modern=True)
                talk.notify("notifications/cancelled", {"requestId": id})
            await talk.ask("tools/call", {"name": "y"}, modern=True)
            await wait_until(lambda: not talk.link._tasks)
            assert not [each for each in gc.get_objects() if isinstance(each, Post)]
        finally:
            gc.enable()


async def test_a_server_that_provokes_answers_and_takes_none_uses_a_few_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_link, "MAX_WAITING_ONE_WAY_MESSAGES", 50)
    server = Silent()
    never = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        if b'"result"' in request.body:
            await never.wait()
        await server(request, reply)

    async with scripted_http(handler) as listening, talking(listening.url) as talk:
        await talk.initialize()
        await talk.ask("tools/call", {"name": "x"})
        before = listening.connections
        for number in range(300):
            talk.send({"jsonrpc": "2.0", "id": number, "result": {}})
        await wait_until(lambda: listening.connections >= before + http_link.MAX_ONE_WAY_MESSAGES - 1)
        assert (await talk.ask("tools/call", {"name": "x"}))["result"] == {"ok": True}
        assert listening.connections <= before + http_link.MAX_ONE_WAY_MESSAGES + 2
        assert talk.link._one_way.dropped == 300 - 50
        never.set()


async def test_a_stream_that_ends_again_and_again_with_nothing_in_it_is_not_asked_for_all_the_time() -> None:
    class Ending(LegacyServer):
        gets = 0

        async def get(self, request: Request, reply: Reply) -> None:
            if "last-event-id" not in request.headers:
                await reply.send(405)
                return
            self.gets += 1
            await reply.begin_events()
            await reply.chunk(b"id: %d\nretry: 0\ndata:\n\n" % self.gets)
            await reply.end()

        async def call(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(b"id: first\nretry: 0\ndata:\n\n")
            await reply.end()

    server = Ending()
    async with scripted_http(server) as listening, talking(listening.url) as talk:
        await talk.initialize()
        talk.request("tools/call", {"name": "x"})
        began = asyncio.get_running_loop().time()
        await wait_until(lambda: server.gets >= 4)
        # Pauses that double, from the least one on.
        assert asyncio.get_running_loop().time() - began >= MIN_RESUME_DELAY * (1 + 2 + 4)


async def test_a_move_for_good_that_leads_nowhere_is_forgotten() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(308, location=request.path + "/further")

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for _ in range(2):
            error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
            assert "in a loop" in error.message
        paths = [request.path for request in server.requests]
        assert paths[: len(paths) // 2] == paths[len(paths) // 2 :]


# ── compressed answers ──


async def test_after_an_answer_that_unpacked_to_much_the_connection_is_read_from_again() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        body = gzip.compress(answer(request, {"text": "y" * 3_000_000}))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
        await reply.raw(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (1, 2, 3, 4):
            params = {"name": "x", "_meta": STAMP}
            message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            talk.link.send_call(json.dumps(message).encode(), id, "x", "2026-07-28")
            assert len((await talk.answer(id))["result"]["text"]) == 3_000_000
        assert server.connections == 1


def packed(data: bytes, form: str) -> bytes:
    if form == "raw deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    if form == "two members":
        return gzip.compress(data[:10]) + gzip.compress(data[10:])
    return zlib.compress(data) if form == "deflate" else gzip.compress(data)


@pytest.mark.parametrize("form", ["gzip", "two members", "deflate", "raw deflate"])
async def test_an_answer_may_be_compressed_in_any_usual_form(form: str) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        encoding = "deflate" if "deflate" in form else "gzip"
        await reply.send(200, packed(answer(request, {"text": "y" * 1000}), form), content_encoding=encoding)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        assert (await talk.ask("tools/call", {"name": "x"}, modern=True))["result"] == {"text": "y" * 1000}


async def test_an_answer_that_unpacks_to_far_more_than_it_is_ends_in_an_error() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        body = answer(request, {"text": "y" * (MAX_INFLATED_BYTES * 4)})
        await reply.send(200, gzip.compress(body), content_encoding="gzip")

    async with scripted_http(handler) as server, talking(server.url, limit=1 << 30) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert "unpacks to more than" in error.message
