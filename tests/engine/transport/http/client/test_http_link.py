"""What goes out to a server, what comes back, and how a session with it lives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.client import http_link as link_module
from tests.engine.transport.http.client.talk import Talk, talking
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until

Json = dict[str, Any]


def answer(request: Request, result: Json | None = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result or {}}).encode()


def event(data: bytes | Json, id: str | None = None) -> bytes:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return (b"" if id is None else b"id: %b\n" % id.encode()) + b"data: " + text + b"\n\n"


class LegacyServer:
    """A legacy server as most are: a session, no stream of its own, JSON."""

    def __init__(self) -> None:
        self.session = "s-1"
        self.refusal: tuple[int, Json] = (404, {"code": -32600, "message": "Session not found"})
        self.events: list[str] = []

    async def __call__(self, request: Request, reply: Reply) -> None:
        message = json.loads(request.body) if request.body else {}
        self.events.append(message.get("method") or request.method)
        if request.method == "GET":
            await self.get(request, reply)
        elif request.method == "DELETE":
            await reply.send(204)
        elif message.get("method") == "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}, "serverInfo": {}}
            await reply.send(200, answer(request, result), mcp_session_id=self.session)
        elif request.headers.get("mcp-session-id") != self.session:
            status, error = self.refusal
            await reply.send(status, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
        elif "id" not in message or "method" not in message:
            await reply.send(202)
        else:
            await self.call(request, reply)

    async def get(self, request: Request, reply: Reply) -> None:
        await reply.send(405)

    async def call(self, request: Request, reply: Reply) -> None:
        await reply.send(200, answer(request, {"ok": True}))


async def modern_server(request: Request, reply: Reply) -> None:
    await reply.send(200, answer(request, {"ok": True}))


# ── modern ──


async def test_modern_request_mirrors_its_body_in_headers() -> None:
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        await talk.ask("tools/call", {"name": "grüße", "arguments": {}}, modern=True)
        await talk.ask("resources/read", {"uri": "file:///a"}, modern=True)
        await talk.ask("tools/list", modern=True)
        call, read, listing = (request.headers for request in server.requests)
        assert call["mcp-protocol-version"] == "2026-07-28"
        assert call["mcp-method"] == "tools/call"
        assert call["mcp-name"] == "=?base64?Z3LDvMOfZQ==?="
        assert call["accept"] == "application/json, text/event-stream"
        assert call["content-type"] == "application/json"
        assert read["mcp-name"] == "file:///a"
        assert "mcp-name" not in listing
        assert not any("mcp-session-id" in request.headers for request in server.requests)


async def test_parameters_are_mirrored() -> None:
    known: dict[str, Mapping[tuple[str, ...], str]] = {"deploy": {("region",): "Region", ("dry",): "Dry"}}
    async with scripted_http(modern_server) as server, talking(server.url, parameters_of=known.get) as talk:
        arguments = {"region": "eu", "dry": True, "secret": "x"}
        await talk.ask("tools/call", {"name": "deploy", "arguments": arguments}, modern=True)
        await talk.ask("tools/call", {"name": "other", "arguments": {"region": "eu"}}, modern=True)
        headers = server.requests[0].headers
        assert (headers["mcp-param-region"], headers["mcp-param-dry"]) == ("eu", "true")
        assert not any(name.startswith("mcp-param-") for name in server.requests[1].headers)


async def test_calls_share_connections() -> None:
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        for _ in range(20):
            await talk.ask("tools/list", modern=True)
        assert server.connections == 1


async def test_a_cancelled_request_closes_its_connection_and_nothing_is_posted() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        id = talk.request("tools/call", {"name": "x"}, modern=True)
        await wait_until(lambda: server.open_connections == 1 and len(server.requests) == 1)
        talk.notify("notifications/cancelled", {"requestId": id})
        await wait_until(lambda: server.open_connections == 0)
        assert len(server.requests) == 1
        assert not talk.failures


async def test_other_notifications_do_not_exist_in_the_modern_era() -> None:
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        await talk.ask("tools/list", modern=True)
        talk.notify("notifications/roots/list_changed")
        await talk.ask("tools/list", modern=True)
        assert len(server.requests) == 2


async def test_events_before_the_answer_are_delivered_in_order() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        for number in range(3):
            await reply.chunk(event({"method": "notifications/progress", "params": {"n": number}}))
        await reply.chunk(b": comment\n\n" + event(answer(request))[:10])
        await reply.chunk(event(answer(request))[10:])
        await reply.end()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for _ in range(3):
            await talk.ask("tools/call", {"name": "x"}, modern=True)
        assert [each["params"]["n"] for each in talk.notifications("notifications/progress")] == [0, 1, 2] * 3
        assert server.connections == 1, "a stream that ends after its answer leaves the connection usable"


async def test_a_stream_that_goes_on_after_the_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(event(answer(request)))
        await reply.wait_gone()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        await talk.ask("tools/call", {"name": "x"}, modern=True)
        await wait_until(lambda: server.open_connections == 0)


async def test_a_message_spread_over_lines_arrives_on_one() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        pretty = json.dumps(json.loads(answer(request, {"a": {"b": "c"}})), indent=2)
        if json.loads(request.body)["method"] == "as-json":
            await reply.send(200, pretty.encode())
        else:
            data = "".join(f"data: {line}\r\n" for line in pretty.split("\n"))
            await reply.begin_events()
            await reply.chunk(data.encode() + b"\r\n")
            await reply.end()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for method in ("as-json", "as-events"):
            assert (await talk.ask(method, modern=True))["result"] == {"a": {"b": "c"}}
        assert all(b"\n" not in line and b"\r" not in line for line in talk.lines)


async def test_more_requests_than_a_server_gets_at_once_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_CONCURRENT_POSTS", 2)
    released = asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        if json.loads(request.body)["method"] != "subscriptions/listen":
            await released.wait()
        await reply.send(200, answer(request))

    async with scripted_http(handler) as server, talking(server.url) as talk:
        ids = [talk.request("tools/list", modern=True) for _ in range(5)]
        await talk.ask("subscriptions/listen", modern=True)
        talk.notify("notifications/cancelled", {"requestId": ids[4]})
        # All three are on connections of their own, which open in any order.
        await wait_until(lambda: len(server.requests) == 3)
        released.set()
        for id in ids[:4]:
            await talk.answer(id)
        assert len(server.requests) == 5, "the one that was cancelled while it waited was never sent"
        assert talk.link.unsent_bytes == 0


async def test_a_large_request_is_sent_whole() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, answer(request, {"size": len(request.body)}))

    async with scripted_http(handler) as server, talking(server.url) as talk:
        found = await talk.ask("tools/call", {"name": "x", "arguments": {"text": "x" * 3_000_000}}, modern=True)
        assert found["result"]["size"] > 3_000_000


# ── legacy ──


async def test_a_legacy_session_carries_its_id_and_revision_after_the_handshake() -> None:
    server = LegacyServer()
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize("2025-06-18")
        await talk.ask("tools/list")
        first, *rest = http.requests
        assert "mcp-protocol-version" not in first.headers and "mcp-session-id" not in first.headers
        for request in rest:
            assert request.headers["mcp-session-id"] == "s-1"
            assert request.headers["mcp-protocol-version"] == "2025-06-18"
        assert "mcp-method" not in rest[-1].headers
    assert http.requests[-1].method == "DELETE"


async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    class Slow(LegacyServer):
        def __init__(self) -> None:
            super().__init__()
            self.hears_it = asyncio.Event()
            self.may_go_on = asyncio.Event()

        async def __call__(self, request: Request, reply: Reply) -> None:
            if b"notifications/initialized" in request.body:
                self.hears_it.set()
                await self.may_go_on.wait()
                self.events.append("initialized is known")
            await super().__call__(request, reply)

    server = Slow()
    async with scripted_http(server) as http, talking(http.url) as talk, talking(http.url) as other:
        await talk.initialize()
        id = talk.request("tools/list")
        await server.hears_it.wait()
        # Whatever was sent by now has arrived when somebody else has been answered.
        await other.ask("initialize", {"protocolVersion": "2025-11-25"})
        server.may_go_on.set()
        await talk.answer(id)
        assert server.events.index("initialized is known") < server.events.index("tools/list")


async def test_the_standalone_stream_is_read_and_resumed() -> None:
    class Speaking(LegacyServer):
        async def get(self, request: Request, reply: Reply) -> None:
            last = int(request.headers.get("last-event-id", "0"))
            await reply.begin_events()
            await reply.chunk(
                b"retry: 1\n" + event({"method": "notifications/x", "params": {"n": last}}, str(last + 1))
            )
            if last < 3:
                await reply.end()
            else:
                await reply.wait_gone()

    async with scripted_http(Speaking()) as http, talking(http.url) as talk:
        await talk.initialize()
        await talk.until(lambda: len(talk.notifications("notifications/x")) == 4)
        assert [each["params"]["n"] for each in talk.notifications("notifications/x")] == [0, 1, 2, 3]


async def test_a_server_may_ask_on_its_stream_and_the_answer_is_posted() -> None:
    class AskingServer(LegacyServer):
        async def get(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(event({"jsonrpc": "2.0", "id": 99, "method": "roots/list"}))
            await reply.wait_gone()

    async with scripted_http(AskingServer()) as http, talking(http.url) as talk:
        talk.on_request = lambda message: {"roots": []}
        await talk.initialize()
        await wait_until(lambda: json.loads(http.requests[-1].body or b"{}").get("id") == 99)
        assert json.loads(http.requests[-1].body)["result"] == {"roots": []}
        assert http.requests[-1].headers["mcp-session-id"] == "s-1"


async def test_messages_on_the_stream_of_a_request_are_attributed_to_it() -> None:
    class AskingServer(LegacyServer):
        async def get(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(event({"jsonrpc": "2.0", "method": "notifications/x"}))
            await reply.wait_gone()

        async def call(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(event({"jsonrpc": "2.0", "id": 99, "method": "roots/list"}))
            await reply.chunk(event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}))
            await reply.chunk(event(json.loads(answer(request, {"content": []}))))

    async with scripted_http(AskingServer()) as http, talking(http.url) as talk:
        await talk.initialize()
        await talk.until(lambda: bool(talk.notifications("notifications/x")))
        assert talk.related == [], "what comes on the stream of nobody's request is nobody's"
        await talk.ask("tools/call", {"name": "x", "arguments": {}})
        (called,) = [json.loads(each.body) for each in http.requests if b"tools/call" in each.body]
        assert talk.related == [str(called["id"]).encode()] * 2


async def test_a_server_without_such_a_stream_is_asked_once() -> None:
    server = LegacyServer()
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize()
        await wait_until(lambda: "GET" in server.events)
        for _ in range(3):
            await talk.ask("tools/list")
        assert server.events.count("GET") == 1


async def test_a_broken_answer_is_resumed_where_it_broke() -> None:
    class Breaking(LegacyServer):
        async def call(self, request: Request, reply: Reply) -> None:
            self.body = answer(request, {"ok": "at last"})
            await reply.begin_events()
            await reply.chunk(b"id: e1\nretry: 1\ndata:\n\n")
            await reply.end()

        async def get(self, request: Request, reply: Reply) -> None:
            last = request.headers.get("last-event-id")
            if last is None:
                await reply.send(405)
                return
            await reply.begin_events()
            if last == "e1":
                await reply.chunk(event({"method": "notifications/progress"}, "e2"))
                reply.hang_up()
            else:
                await reply.chunk(event(self.body, "e3"))
                await reply.end()

    async with scripted_http(Breaking()) as http, talking(http.url) as talk:
        await talk.initialize()
        found = await talk.ask("tools/call", {"name": "x"})
        assert found["result"] == {"ok": "at last"}
        assert len(talk.notifications("notifications/progress")) == 1
        resumed = [request.headers.get("last-event-id") for request in http.requests if request.method == "GET"]
        assert resumed == [None, "e1", "e2"]


async def test_the_time_to_wait_before_resuming_is_kept() -> None:
    moments: list[float] = []

    class Waiting(LegacyServer):
        async def call(self, request: Request, reply: Reply) -> None:
            self.body = answer(request)
            await reply.begin_events()
            await reply.chunk(b"id: e1\nretry: 300\ndata:\n\n")
            await reply.end()
            moments.append(asyncio.get_running_loop().time())

        async def get(self, request: Request, reply: Reply) -> None:
            if "last-event-id" not in request.headers:
                await reply.send(405)
                return
            moments.append(asyncio.get_running_loop().time())
            await reply.begin_events()
            await reply.chunk(event(self.body, "e2"))
            await reply.end()

    async with scripted_http(Waiting()) as http, talking(http.url) as talk:
        await talk.initialize()
        await talk.ask("tools/call", {"name": "x"})
        assert moments[1] - moments[0] >= 0.29


async def test_an_answer_on_the_other_stream_counts() -> None:
    class Elsewhere(LegacyServer):
        def __init__(self) -> None:
            super().__init__()
            self.asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def call(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(b"id: e1\nretry: 1\ndata:\n\n")
            self.asked.set_result(answer(request, {"from": "elsewhere"}))
            await reply.wait_gone()

        async def get(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.chunk(event(await self.asked))
            await reply.wait_gone()

    async with scripted_http(Elsewhere()) as http, talking(http.url) as talk:
        await talk.initialize()
        assert (await talk.ask("tools/call", {"name": "x"}))["result"] == {"from": "elsewhere"}
        await talk.ask("initialize", {"protocolVersion": "2025-11-25"})
        assert not talk.failures


async def test_a_legacy_cancellation_is_posted_and_the_wait_ends() -> None:
    class Waiting(LegacyServer):
        async def call(self, request: Request, reply: Reply) -> None:
            await reply.begin_events()
            await reply.wait_gone()

    server = Waiting()
    async with scripted_http(server) as http, talking(http.url) as talk:
        await talk.initialize()
        id = talk.request("tools/call", {"name": "x"})
        await wait_until(lambda: "tools/call" in server.events)
        talk.notify("notifications/cancelled", {"requestId": id, "reason": "test"})
        await wait_until(lambda: "notifications/cancelled" in server.events)
        await wait_until(lambda: not talk.link._posts)
        assert not talk.failures


# ── a session that the server forgets ──


# ── stopping ──


async def test_stopping_ends_running_work_quietly() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        await reply.wait_gone()

    talks: list[Talk] = []
    async with scripted_http(handler) as server:
        async with talking(server.url) as talk:
            talks.append(talk)
            for _ in range(5):
                talk.request("tools/call", {"name": "x"}, modern=True)
            await wait_until(lambda: len(server.requests) == 5)
        await wait_until(lambda: server.open_connections == 0)
    assert not talks[0].failures and not talks[0].closed


async def test_closing_is_bounded_if_the_server_does_not_answer_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SESSION_DELETE_TIMEOUT", 0.02)

    class Silent(LegacyServer):
        async def __call__(self, request: Request, reply: Reply) -> None:
            if request.method != "DELETE":
                await super().__call__(request, reply)
            else:
                await reply.wait_gone()

    async with scripted_http(Silent()) as http:
        async with talking(http.url) as talk:
            await talk.initialize()
        assert [request.method for request in http.requests][-1] == "DELETE"
        # It is left there: the server sees us go, and nothing else has failed.
        await wait_until(lambda: http.open_connections == 0)
        assert not talk.failures and not talk.closed
