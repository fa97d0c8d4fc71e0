"""Heads that have been here before: looked up instead of taken apart, and never anything else than what they say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.server.admission import Refusal
from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.connections import Connections
from mcp_workbench.engine.transport.http.server.endpoint import Endpoint
from mcp_workbench.engine.transport.http.server.head_cache import (
    END_OF_HEAD,
    MAX_CACHED_HEAD_BYTES,
    MAX_CACHED_HEADS,
    HeadCache,
    divide,
    worth_keeping,
)
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import legacy, modern, modern_headers, written


def echo(id: int, **headers: Any) -> bytes:
    return written("POST", "/mcp", modern("echo", {"n": id}, id=id), **{**modern_headers("echo"), **headers})


def connections(rig: EchoRig) -> Connections:
    return rig.server._connections


async def test_a_head_that_came_before_serves_another_body() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        for id in range(1, 5):
            await connection.send(echo(id))
            answer = (await connection.response()).json
            assert (answer["id"], answer["result"]["echo"]["n"]) == (id, id)
        assert len(connections(rig).heads) == 1
        other = await rig.client.connect()
        await other.send(echo(9))
        assert (await other.response()).json["id"] == 9, "also on another connection"
        assert len(connections(rig).heads) == 1


@pytest.mark.parametrize("cut", [1, 40, -1, -30])
async def test_a_known_head_may_arrive_in_pieces(cut: int) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(echo(1))
        assert (await connection.response()).json["id"] == 1
        request = echo(2)
        await connection.send(request[:cut])
        # The server has read the first piece once it has answered somebody else.
        assert (await rig.client.request("GET", "/healthz")).status == 200
        await connection.send(request[cut:])
        assert (await connection.response()).json["id"] == 2


async def test_requests_sent_ahead_with_a_known_head_are_answered_in_order() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(echo(1))
        await connection.response()
        await connection.send(b"".join(echo(id) for id in range(2, 7)))
        assert [(await connection.response()).json["id"] for _ in range(2, 7)] == [2, 3, 4, 5, 6]


async def test_a_known_head_with_a_shorter_length_ends_where_it_ends() -> None:
    """With one byte of the next request behind it, it has as many bytes as if its length had as many digits."""
    async with echoing() as rig:
        connection = await rig.client.connect()
        session = await rig.client.begin_session()
        long, short = (
            written("POST", "/mcp", legacy("echo", {"x": "x" * size}), mcp_session_id=session) for size in (90, 9)
        )
        assert b"content-length: 1" in long and len(divide(long)[0]) == len(divide(short)[0])
        assert divide(long)[1] == divide(short)[1] + 1
        await connection.send(long)
        assert (await connection.response()).status == 200
        await connection.send(short + long[:1])
        assert (await connection.response()).json["result"]["echo"] == {"x": "x" * 9}
        await connection.send(long[1:])
        assert (await connection.response()).json["result"]["echo"] == {"x": "x" * 90}


async def test_a_known_head_waits_while_a_response_is_under_way() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(echo(1))
        await connection.response()
        await connection.send(written("POST", "/mcp", modern("later", id=7), **modern_headers("later")))
        await rig.under_way()
        await connection.send(echo(2))
        assert (await rig.client.request("GET", "/healthz")).status == 200
        rig.sessions[-1].answer(b"7", {})
        assert [(await connection.response()).json["id"] for _ in range(2)] == [7, 2]


async def test_a_token_is_judged_each_time() -> None:
    token = BearerToken("right")
    async with echoing(authenticator=token) as rig:
        connection = await rig.client.connect()
        for id in (1, 2):
            await connection.send(echo(id, authorization="Bearer right"))
            assert (await connection.response()).status == 200
        token._token = b"another"
        await connection.send(echo(3, authorization="Bearer right"))
        await rig.refused(connection.response(), 401)
        await connection.send(echo(4, authorization="Bearer another"))
        assert (await connection.response()).status == 200


async def test_a_session_that_ended_is_not_found_by_a_known_head() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        connection = await rig.client.connect()
        for id in (1, 2):
            assert (await connection.request(body=legacy("echo", id=id), mcp_session_id=session)).status == 200
        await rig.client.request("DELETE", mcp_session_id=session)
        assert (await connection.request(body=legacy("echo", id=3), mcp_session_id=session)).status == 404


async def test_headers_are_compared_with_every_body() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        response = await connection.request(body=modern("ECHO"), **modern_headers("echo"))
        assert (response.status, response.error["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("what", "request_"),
    [
        ("refused", echo(1, host="evil.example")),
        ("in chunks", written("POST", "/mcp", b"", transfer_encoding="chunked", content_length=None) + b"0\r\n\r\n"),
        ("another method", written("GET", "/healthz")),
        ("too long", echo(1, x_padding="x" * MAX_CACHED_HEAD_BYTES)),
        ("to be closed", echo(1, connection="close")),
        ("HTTP/1.0", echo(1, connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")),
        ("two at once", echo(1) + echo(2)),
        ("waits for permission", echo(1, expect="100-continue")),
    ],
)
async def test_only_plain_heads_are_kept(what: str, request_: bytes) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(request_)
        await connection.response()
        assert not len(connections(rig).heads), what


def arrival_of(length: int) -> RequestHead:
    head = RequestHead("POST", "/mcp")
    head.headers["content-length"] = str(length)
    return head


def test_their_number_is_bounded() -> None:
    heads = HeadCache()
    for number in range(MAX_CACHED_HEADS * 2):
        heads.keep(b"POST /%d HTTP/1.1\r\n\r\n" % number, arrival_of(1))
    assert len(heads) == MAX_CACHED_HEADS
    assert heads.find(b"POST /%d HTTP/1.1\r\n\r\n" % (MAX_CACHED_HEADS * 2 - 1)) is not None
    assert heads.find(b"POST /0 HTTP/1.1\r\n\r\n") is None


def test_cached_head_evicts_no_other() -> None:
    heads = HeadCache(2)
    for path in (b"one", b"two", b"two", b"two"):
        heads.keep(path, arrival_of(1))
    assert heads.find(b"one") is not None and heads.find(b"two") is not None


@pytest.mark.parametrize("client", ["the same connection", "another one"])
async def test_a_client_whose_head_others_drove_out_is_known_by_its_connection(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_apart: list[RequestHead] = []
    admit = Endpoint.admit

    def counted(endpoint: Endpoint, head: RequestHead) -> Refusal | None:
        taken_apart.append(head)
        return admit(endpoint, head)

    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(echo(1))
        await connection.response()
        for number in range(MAX_CACHED_HEADS):
            connections(rig).heads.keep(b"POST /%d HTTP/1.1\r\n\r\n" % number, arrival_of(1))
        monkeypatch.setattr(Endpoint, "admit", counted)
        if client == "another one":
            connection = await rig.client.connect()
        for id in (2, 3):
            await connection.send(echo(id))
            assert (await connection.response()).json["id"] == id
        assert len(taken_apart) == (1 if client == "another one" else 0)


def test_a_head_is_kept_only_where_the_parser_ended_it_too() -> None:
    # Lines that end with a line feed alone: the parser took everything behind the first empty line for the body.
    assert worth_keeping(b"POST / HTTP/1.1\nhost: x\n\nbody" + END_OF_HEAD, arrival_of(4 + len(END_OF_HEAD))) is None
    assert worth_keeping(END_OF_HEAD + b"POST / HTTP/1.1", arrival_of(15)) is None
    whole = b"POST / HTTP/1.1\r\nContent-Length: 1" + END_OF_HEAD + b"x"
    assert worth_keeping(whole, arrival_of(1)) == b"POST / HTTP/1.1\r\nContent-Length: " + END_OF_HEAD
    assert worth_keeping(whole, arrival_of(2)) is None, "the parser read another length"


@pytest.mark.parametrize("header", ["Content-Length", "content-length"])
@pytest.mark.parametrize("length", [b"1", b"12", b"123456"])
def test_heads_that_differ_in_their_length_are_one(header: str, length: bytes) -> None:
    head = f"POST / HTTP/1.1\r\n{header}: ".encode()
    rest = b"\r\naccept: */*" + END_OF_HEAD
    assert divide(head + length + rest + b"x" * int(length)) == (head + rest, len(head + length + rest))


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"POST / HTTP/1.1" + END_OF_HEAD,
        b"POST / HTTP/1.1\r\ncontent-length: 2" + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\ncontent-length: 1" + END_OF_HEAD + b"xx",
        b"POST / HTTP/1.1\r\ncontent-length: +1" + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\ncontent-length: 1 " + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\ncontent-length: " + END_OF_HEAD,
        b"POST / HTTP/1.1\r\ncontent-length: " + b"0" * 5000 + b"1" + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\nx-content-length: 1" + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\nx: content-length: 1" + END_OF_HEAD + b"x",
        b"POST / HTTP/1.1\r\nx: 1" + END_OF_HEAD + b"\r\ncontent-length: 1\r\n",
    ],
)
def test_head_without_a_plain_length_is_parsed(request_: bytes) -> None:
    assert divide(request_)[0] == b""


async def test_a_known_head_with_too_long_a_body_is_refused_all_the_same() -> None:
    async with echoing(Limits(message_bytes=2000)) as rig:
        connection = await rig.client.connect()
        for text, status in (("x", 200), ("x" * 900, 200), ("x" * 2000, 413)):
            response = await connection.request(body=modern("echo", {"n": text}), **modern_headers("echo"))
            assert response.status == status
        assert len(connections(rig).heads) == 1


async def test_a_known_head_with_another_length_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        monkeypatch.setattr(Endpoint, "admit", lambda endpoint, head: pytest.fail("taken apart"))
        for length in (0, 1, 7, 1000, 30_000):
            body = modern("echo", {"n": "x" * length})
            response = await connection.request(body=body, **modern_headers("echo"))
            assert response.json["result"]["echo"]["n"] == "x" * length


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(1, 1200), max_size=6))
def test_however_a_stream_of_requests_is_cut_the_answers_are_the_same(cuts: list[int]) -> None:
    stream = b"".join(echo(id) for id in (1, 2, 3, 4))
    places = sorted({cut for cut in cuts if cut < len(stream)})
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]

    async def run() -> list[int]:
        async with echoing() as rig:
            first = await rig.client.connect()
            await first.send(echo(0))
            await first.response()
            connection = await rig.client.connect()
            for piece in pieces:
                await connection.send(piece)
                await asyncio.sleep(0)
            return [json.loads((await connection.response()).body)["id"] for _ in range(4)]

    assert asyncio.run(run()) == [1, 2, 3, 4]
