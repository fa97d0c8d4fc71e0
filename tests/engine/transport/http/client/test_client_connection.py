"""HTTP as a client: bodies in every form, connections that are used again and those that must not be."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.client import dialing, http_client
from mcp_workbench.engine.transport.http.client.client_connection import (
    OUTBOUND_TRANSITIONS,
    OutboundEvent,
    OutboundState,
    write_head,
)
from mcp_workbench.engine.transport.http.client.headers import FixedHeaders
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.response import (
    MAX_BUFFERED_BYTES,
    BrokeOff,
    NotHttp,
    RequestFailed,
    Response,
    Unwritable,
)
from tests.engine.transport.http.listening import PATIENCE, Reply, Request, scripted_http, wait_until


async def body_of(response: Response) -> bytes:
    parts = []
    async with asyncio.timeout(PATIENCE):
        while piece := await response.read():
            parts.append(piece)
    response.release()
    return b"".join(parts)


async def answered(raw: bytes, *, hang_up: bool = False) -> tuple[Response, bytes]:
    """What comes of these bytes."""

    async def handler(request: Request, reply: Reply) -> None:
        await reply.raw(raw)
        if hang_up:
            reply._writer.close()

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            response = await client.request("GET", HttpTarget.of(server.url, FixedHeaders({})), {})
            return response, await body_of(response)
    finally:
        await client.close()


OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Type: application/json\r\nContent-Length: 5\r\n\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        OK
        + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (len(gzip.compress(b"hello", mtime=0)), gzip.compress(b"hello", mtime=0)),
        OK + b"Content-Encoding: deflate\r\nContent-Length: 13\r\n\r\n" + zlib.compress(b"hello"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    ],
)
async def test_bodies_are_read_in_every_form(raw: bytes) -> None:
    response, body = await answered(raw)
    assert (response.status, body) == (200, b"hello")


async def test_a_body_may_end_with_the_connection() -> None:
    assert (await answered(b"HTTP/1.0 200 OK\r\n\r\nhello", hang_up=True))[1] == b"hello"
    assert (await answered(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", hang_up=True))[1] == b"hello"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (OK + b"Content-Length: 9\r\n\r\nhello", BrokeOff),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello", BrokeOff),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", NotHttp),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello", RequestFailed),
        (b"220 smtp.example ESMTP\r\n", NotHttp),
    ],
)
async def test_broken_state_is_reported(raw: bytes, error: type[RequestFailed]) -> None:
    with pytest.raises(error):
        await answered(raw, hang_up=True)


async def test_headers_are_found_in_lower_case_and_repeated_ones_are_joined() -> None:
    response, _ = await answered(
        OK + b"X-A: 1\r\nx-a:  2 \r\nContent-Type: Text/Plain; charset=x\r\nContent-Length: 0\r\n\r\n"
    )
    assert response.headers["x-a"] == "1, 2"
    assert response.content_type == "text/plain"


async def test_a_connection_is_used_again_only_after_a_whole_response() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.path == "/close":
            await reply.send(200, b"x", connection="close")
        else:
            await reply.send(200, b"x" * 100)

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            target = HttpTarget.of(server.url, FixedHeaders({}))
            for _ in range(3):
                await body_of(await client.request("GET", target, {}))
            assert server.connections == 1
            (await client.request("GET", target, {})).release()
            assert server.connections == 1
            await body_of(await client.request("GET", target, {}))
            assert server.connections <= 2, "what was not read to its end cannot be known to be free"
            closing = HttpTarget.of(server.url.replace("/mcp", "/close"), FixedHeaders({}))
            before = server.connections
            for _ in range(2):
                await body_of(await client.request("GET", closing, {}))
            assert server.connections == before + 1
    finally:
        await client.close()


async def test_a_server_that_says_more_than_it_was_asked_is_not_believed() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.raw(OK + b"Content-Length: 1\r\n\r\n1" + OK + b"Content-Length: 6\r\n\r\nforged")

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            target = HttpTarget.of(server.url, FixedHeaders({}))
            assert await body_of(await client.request("GET", target, {})) == b"1"
            assert await body_of(await client.request("GET", target, {})) == b"1"
    finally:
        await client.close()


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEP_ALIVE_TIMEOUT", 0.02)

    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200)

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            await body_of(await client.request("GET", HttpTarget.of(server.url, FixedHeaders({})), {}))
            await wait_until(lambda: server.open_connections == 0)
            assert not client._open and not client._idle
    finally:
        await client.close()


async def test_a_connection_that_the_server_closed_is_forgotten() -> None:
    replies: list[Reply] = []

    async def handler(request: Request, reply: Reply) -> None:
        replies.append(reply)
        await reply.send(200)

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            target = HttpTarget.of(server.url, FixedHeaders({}))
            await body_of(await client.request("GET", target, {}))
            replies[0].hang_up()
            await wait_until(lambda: not client._open)
            await body_of(await client.request("GET", target, {}))
            assert server.connections == 2
    finally:
        await client.close()


async def test_an_unread_body_applies_back_pressure_to_the_server() -> None:
    size = 0

    async def handler(request: Request, reply: Reply) -> None:
        nonlocal size
        await reply.begin_events()
        while True:
            await reply.chunk(b"x" * 65536)
            size += 65536

    client = HttpClient("x")
    try:
        async with scripted_http(handler) as server:
            response = await client.request("GET", HttpTarget.of(server.url, FixedHeaders({})), {})
            await wait_until(lambda: response._buffered > MAX_BUFFERED_BYTES)
            for _ in range(50):
                await asyncio.sleep(0)
            assert response._buffered < MAX_BUFFERED_BYTES + 1_000_000
            await response.read()
            await wait_until(lambda: response._buffered > MAX_BUFFERED_BYTES)
            response.release()
    finally:
        await client.close()


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await reply.send(200, b"x")

    async with scripted_http(handler) as server:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            dead = ("127.0.0.1", taken.getsockname()[1])

            async def two(host: str, port: int) -> list[dialing.AddressInfo]:
                alive = ("127.0.0.1", server.port)
                return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in (dead, alive)]

            monkeypatch.setattr(dialing, "look_up", two)
            connected = await dialing.connect("two.example", 1)
            assert connected.getpeername() == ("127.0.0.1", server.port)
            await wait_until(lambda: server.connections == 1)
            connected.close()
            await wait_until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"a:": "x"}, {"": "x"}, {"a": "x\r\ny"}, {"a": "x\0"}, {"é": "x"}])
def test_a_header_that_cannot_be_written_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unwritable):
        write_head("GET", "/", headers, None)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_whatsoever_hang_or_break_us(junk: bytes, after_head: bool) -> None:
    async def run() -> None:
        head = OK + b"Transfer-Encoding: chunked\r\n\r\n" if after_head else b""
        try:
            await answered(head + junk, hang_up=True)
        except RequestFailed:
            pass

    with asyncio.Runner() as runner:
        runner.run(run())


async def test_connection_closed_while_idle_is_not_used_before_its_end_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "LOOK_AFTER", 0.0)
    closing: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            connection.recv(65536)
            closing.append(connection)
            connection.sendall(HELLO + b"hello")

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, args=(listener,), daemon=True)
    thread.start()
    client = HttpClient("x")
    target = HttpTarget.of(f"http://127.0.0.1:{listener.getsockname()[1]}/", FixedHeaders({}))
    try:
        assert await body_of(await client.request("GET", target, {})) == b"hello"
        # The loop does not run between the end of the connection and the next request: it cannot have heard of it.
        closing[0].shutdown(socket.SHUT_RDWR)
        closing[0].close()
        assert await body_of(await client.request("GET", target, {})) == b"hello"
        assert len(closing) == 2
    finally:
        await client.close()
        for each in closing:
            each.close()
        await asyncio.to_thread(thread.join)
        listener.close()


# ── responses that begin like the one before ──


async def answers_to(*raws: bytes | list[bytes]) -> list[tuple[int, bytes]]:
    """What comes of these responses, one after the other on one connection where it lasts; in pieces where listed."""
    waiting = list(raws)

    async def handler(request: Request, reply: Reply) -> None:
        raw = waiting.pop(0)
        for piece in [raw] if isinstance(raw, bytes) else raw:
            await reply.raw(piece)
            await asyncio.sleep(0)

    client = HttpClient("x")
    found = []
    try:
        async with scripted_http(handler) as server:
            target = HttpTarget.of(server.url, FixedHeaders({}))
            for _ in raws:
                response = await client.request("POST", target, {}, b"{}")
                found.append((response.status, await body_of(response)))
    finally:
        await client.close()
    return found


async def test_a_head_like_the_one_before_brings_its_own_body() -> None:
    found = await answers_to(HELLO + b"hello", HELLO + b"world", HELLO + b"again")
    assert found == [(200, b"hello"), (200, b"world"), (200, b"again")]


async def test_after_a_known_head_any_other_response_is_read_as_it_is() -> None:
    longer = HELLO.replace(b"5", b"7")
    refused = HELLO.replace(b"200 OK", b"404 No")
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nchunk\r\n0\r\n\r\n"
    found = await answers_to(
        HELLO + b"hello",
        longer + b"1234567",
        refused + b"sorry",
        chunked,
        [HELLO, b"piece"],
        [HELLO[:20], HELLO[20:] + b"se", b"cnd"],
        HELLO + b"hello",
    )
    bodies = [b"hello", b"1234567", b"sorry", b"chunk", b"piece", b"secnd", b"hello"]
    assert found == [(404 if body == b"sorry" else 200, body) for body in bodies]


async def test_data_after_a_response_is_not_taken_for_the_next_one() -> None:
    smuggled = HELLO + b"hello" + HELLO + b"wrong"
    assert await answers_to(HELLO + b"hello", smuggled, HELLO + b"right") == [
        (200, b"hello"),
        (200, b"hello"),
        (200, b"right"),
    ]


async def test_a_known_head_of_a_compressed_body_is_not_kept() -> None:
    packed = [zlib.compress(text) for text in (b"hello", b"world")]
    head = OK + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n"
    found = await answers_to(*(head % len(each) + each for each in packed))
    assert found == [(200, b"hello"), (200, b"world")]


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.lists(st.integers(1, 70), max_size=3), min_size=4, max_size=4))
def test_however_responses_are_cut_the_bodies_are_the_same(cuts: list[list[int]]) -> None:
    bodies = [b"one..", b"two..", b"three", b"four."]

    def pieces(raw: bytes, places: list[int]) -> list[bytes]:
        at = sorted({place for place in places if place < len(raw)})
        return [raw[start:end] for start, end in zip([0, *at], [*at, len(raw)], strict=True)]

    raws = [pieces(HELLO + body, places) for body, places in zip(bodies, cuts, strict=True)]
    assert [body for _, body in asyncio.run(answers_to(*raws))] == bodies


def test_every_state_of_an_outbound_connection_is_reached_by_an_event_that_happens() -> None:
    reached = {OutboundState.CONNECTING}
    while further := {after for (before, _), after in OUTBOUND_TRANSITIONS.items() if before in reached} - reached:
        reached |= further
    # `CLOSED` is left to the connection itself, which may close at any time.
    assert reached == set(OutboundState) - {OutboundState.CLOSED}
    assert {event for _, event in OUTBOUND_TRANSITIONS} == set(OutboundEvent)


def test_only_a_connection_with_a_complete_response_is_released_for_another_request() -> None:
    usable = {before for (before, event) in OUTBOUND_TRANSITIONS if event is OutboundEvent.RELEASE}
    assert usable == {OutboundState.COMPLETE}
    starting = {before for before, event in OUTBOUND_TRANSITIONS if event in (OutboundEvent.SEND, OutboundEvent.QUEUE)}
    assert starting == {OutboundState.IDLE, OutboundState.QUEUED}
