"""Servers that refuse, fail, lie and vanish: each ends in an error that says what to do; the next call may work."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from mcp_workbench.engine.transport.http.client import post
from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.http.client.talk import talking
from tests.engine.transport.http.listening import Reply, Request, scripted_http, wait_until


async def failed(status: int, body: bytes = b"", content_type: str = "text/plain", **headers: str) -> DownstreamError:
    """How a call fails that is answered with this."""

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(status, body, content_type, **headers)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert not talk.closed, "the next call may work"
        assert error.hint
        return error


async def test_401_says_where_a_token_goes() -> None:
    challenge = 'Bearer error="invalid_token", error_description="The token has expired"'
    error = await failed(401, www_authenticate=challenge)
    assert "sign in (401): The token has expired" in error.message
    assert error.hint is not None and "`headers`" in error.hint


async def test_401_with_a_token_says_to_check_it() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(401)

    source = FixedHeaders({"authorization": "Bearer old"})
    async with scripted_http(handler) as server, talking(server.url, source=source) as talk:
        error = await talk.failure(talk.request("tools/list", modern=True))
        assert error.hint is not None and "check the token in `headers`" in error.hint


@pytest.mark.parametrize(
    ("status", "text", "hint"),
    [
        (400, "status 400", "check"),
        (403, "denied access (403)", "may do"),
        (404, "no MCP server at this address (404)", "`url`"),
        (405, "does not accept POST", '"sse"'),
        (413, "of this size", "send less"),
        (429, "too many requests", "try again"),
        (500, "failed (500)", "try again"),
        (503, "not available (503)", "try again"),
        (418, "status 418", "check"),
    ],
)
async def test_each_status_has_its_words(status: int, text: str, hint: str) -> None:
    error = await failed(status, b"because")
    assert text in error.message and "because" in error.message
    assert error.hint is not None and hint in error.hint


@pytest.mark.parametrize(("after", "hint"), [("30", "in 30 s"), ("Wed, 21 Oct 2026 07:28:00 GMT", "after Wed, 21 Oct")])
async def test_a_time_to_try_again_is_passed_on(after: str, hint: str) -> None:
    for status in (429, 503):
        error = await failed(status, retry_after=after)
        assert error.hint is not None and hint in error.hint


async def test_of_a_web_page_only_the_title_is_quoted() -> None:
    page = b"<!doctype html><html><head><title>502 Bad\n Gateway</title></head><body>" + b"x" * 5000
    error = await failed(502, page, "text/html")
    assert "web page: 502 Bad Gateway" in error.message and len(error.message) < 200


async def test_server_text_cannot_move_the_cursor_or_fill_the_screen() -> None:
    error = await failed(500, b"a\x1b[2Jb\r\nc\x00" + b"y" * 100_000)
    assert "\x1b" not in error.message and "\n" not in error.message and len(error.message) < 400


@pytest.mark.parametrize("id", [b"null", b'"other"', b"1"])
async def test_error_in_the_body_is_the_answer_under_any_id(id: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32602,"message":"no","data":{"x":1}}}' % id

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(400, body)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        found = await talk.ask("tools/call", {"name": "x"}, modern=True)
        assert found["error"] == {"code": -32602, "message": "no", "data": {"x": 1}}


# ── probing ──


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406, 415, 422, 500, 501])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":"x"}', b'{"jsonrpc":"2.0","error":{"code":-32000}}'])
async def test_a_probe_that_is_refused_is_answered_with_an_error(status: int, body: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(status, body)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        found = await talk.ask("server/discover", modern=True)
        assert found["error"]["code"] != -32022


@pytest.mark.parametrize(
    ("status", "words"), [(403, "denied access"), (404, "no MCP server"), (405, "not accept POST")]
)
async def test_handshake_at_a_wrong_address_names_the_address_for_any_body(status: int, words: str) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        error = {"code": -32600, "message": 'nothing is "here"'}
        await reply.send(status, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())

    async with scripted_http(handler) as server, talking(server.url, transport="http") as talk:
        error = await talk.failure(talk.request("initialize", {"protocolVersion": "2025-11-25"}))
        assert words in error.message and f"({status}): nothing is" in error.message
        assert server.url.removesuffix("/mcp") in error.message and "jsonrpc" not in error.message
        assert error.hint is not None


async def test_a_modern_error_to_the_probe_is_passed_on() -> None:
    error = {"code": -32022, "message": "Unsupported", "data": {"supported": ["2027-01-01"]}}

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(400, json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode())

    async with scripted_http(handler) as server, talking(server.url) as talk:
        assert (await talk.ask("server/discover", modern=True))["error"] == error


@pytest.mark.parametrize("status", [401, 407, 429])
async def test_a_probe_that_is_refused_for_a_reason_common_to_all_fails(status: int) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(status)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        assert str(status) in (await talk.failure(talk.request("server/discover", modern=True))).message


async def test_a_probe_answered_with_a_web_page_is_answered_with_an_error() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, b"<html>hello", "text/html")

    async with scripted_http(handler) as server, talking(server.url) as talk:
        assert "error" in await talk.ask("server/discover", modern=True)
        assert "text/html" in (await talk.failure(talk.request("initialize"))).message


# ── lies ──


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"nonsense", "application/json"),
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', "application/json"),
        (b'{"jsonrpc":"2.0","id":77,"result":{}}', "application/json"),
        (b"[]", "application/json"),
        (b"<html>", "text/html"),
        (b"data: never\n", "text/event-stream"),
        (b"data: {}\n\n", "text/event-stream"),
        (b'data: {"jsonrpc":"2.0","id":2,"result":{}}\n\n', "text/event-stream"),
        (b"\x00\xff", "application/octet-stream"),
    ],
)
async def test_malformed_answer_ends_the_request(body: bytes, content_type: str) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, body, content_type)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        talk.on_message = lambda line: None  # type: ignore[method-assign]
        id = talk.request("tools/call", {"name": "x"}, modern=True)
        await talk.until(lambda: str(id) in talk.failures)


@pytest.mark.parametrize("status", [202, 204])
async def test_a_request_that_is_accepted_without_an_answer_fails(status: int) -> None:
    error = await failed(status)
    assert "without a response" in error.message


async def test_an_array_of_answers_is_taken_apart() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/x"}
        await reply.send(200, json.dumps([note, {"jsonrpc": "2.0", "id": 1, "result": {}}]).encode())

    async with scripted_http(handler) as server, talking(server.url) as talk:
        await talk.ask("tools/list")
        assert len(talk.notifications("notifications/x")) == 1


@pytest.mark.parametrize("headers", [{"content-length": "100"}, {"transfer-encoding": "chunked"}])
async def test_an_answer_that_breaks_off_fails(headers: dict[str, str]) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.head(200, {"content-type": "application/json", **headers})
        await reply.raw(b'{"jsonrpc"' if "content-length" in headers else b'a\r\n{"jsonrpc"')
        reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert "ended early" in error.message or "closed the connection" in error.message


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    ],
)
async def test_an_invalid_http_response_fails_the_request(raw: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.raw(raw)
        reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 200"])
async def test_a_connection_that_is_reset_says_that_nothing_is_known(after: bytes) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.raw(after)
        reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert "may or may not have acted" in error.message
        assert len(server.requests) == 1, "nothing is repeated"


LIMIT = 10_000


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", ["json", "events", "gzip"])
async def test_an_answer_beyond_the_limit_is_not_read(declared: bool, kind: str) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * 200_000}}).encode()
        body = {"json": text, "events": b"data: " + text + b"\n\n", "gzip": gzip.compress(text)}[kind]
        headers = {"content-type": "text/event-stream" if kind == "events" else "application/json"}
        if kind == "gzip":
            headers["content-encoding"] = "gzip"
        if declared:
            await reply.head(200, {**headers, "content-length": str(len(body))})
            await reply.raw(body)
        else:
            await reply.head(200, {**headers, "transfer-encoding": "chunked"})
            await reply.chunk(body)
            await reply.end()

    async with scripted_http(handler) as server, talking(server.url, limit=LIMIT) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert f"larger than {LIMIT} bytes" in error.message
        assert error.hint is not None and "maxMessageBytes" in error.hint


async def test_a_stream_that_never_ends_ends_with_the_request() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        while True:
            await reply.chunk(b": on and on\n\n" * 100)
            await asyncio.sleep(0)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        id = talk.request("tools/call", {"name": "x"}, modern=True)
        await wait_until(lambda: len(server.requests) == 1)
        talk.notify("notifications/cancelled", {"requestId": id})
        await wait_until(lambda: server.open_connections == 0)


async def test_a_stream_that_cannot_be_resumed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "MAX_RESUMES", 2)

    async def handler(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.send(500)
            return
        await reply.begin_events()
        await reply.chunk(b"id: e1\nretry: 1\ndata:\n\n")
        await reply.end()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}))
        assert "could not be resumed" in error.message
        assert [request.method for request in server.requests] == ["POST", "GET", "GET"]


@pytest.mark.parametrize("status", [400, 404, 405, 410])
async def test_a_server_that_says_that_it_does_not_resume_is_asked_once(status: int) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.send(status)
            return
        await reply.begin_events()
        await reply.chunk(b"id: e1\nretry: 1\ndata:\n\n")
        reply.hang_up()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}))
        assert "could not be resumed" in error.message
        assert [request.method for request in server.requests] == ["POST", "GET"]


async def test_a_modern_stream_is_never_resumed() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.begin_events()
        await reply.chunk(b"id: e1\nretry: 1\ndata:\n\n")
        await reply.end()

    async with scripted_http(handler) as server, talking(server.url) as talk:
        error = await talk.failure(talk.request("tools/call", {"name": "x"}, modern=True))
        assert "before the response" in error.message
        assert len(server.requests) == 1
