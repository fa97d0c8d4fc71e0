"""HTTP in random pieces means what it means whole, on both sides; and any JSON over it is answered once.

In memory: the protocols are fed by Hypothesis instead of a socket.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.client.client_connection import OutboundConnection
from mcp_workbench.engine.transport.http.client.response import RequestFailed
from mcp_workbench.engine.transport.http.server.admission import Refusal
from mcp_workbench.engine.transport.http.server.authentication import Authentication
from mcp_workbench.engine.transport.http.server.connections import Connections
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.request_head import HEADER_SPELLINGS, RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import NO_HEADERS, ResponseWriter
from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection
from mcp_workbench.engine.transport.pieces import Pieces
from mcp_workbench.engine.transport.write_batch import WriteBatch
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import modern, modern_headers, written

BOUNDED = settings(max_examples=150, deadline=None)


class Sink:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_over = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_over = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_over

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...


class Mirror:
    """A site that answers with what it understood; some of it is refused by its head alone."""

    def admit(self, head: RequestHead) -> Refusal | None:
        head.takes_body = True
        return Refusal(403, "no") if head.path == "/refused" else None

    depends_on_peer = False
    header_names: Mapping[bytes, str] = HEADER_SPELLINGS

    def admit_known(self, head: RequestHead, caller: Authentication) -> Refusal | None:
        raise AssertionError("everybody is known at once")

    def is_still_admitted(self, head: RequestHead) -> bool:
        return True

    def serve(self, head: RequestHead, body: bytes | Pieces, writer: ResponseWriter) -> None:
        assert isinstance(body, bytes)
        told = {
            "method": head.method,
            "path": head.path,
            "headers": head.headers,
            "body": body.decode("latin-1"),
        }
        writer.answer(200, NO_HEADERS, json.dumps(told).encode())

    def refuse(self, head: RequestHead, refusal: Refusal, writer: ResponseWriter) -> None:
        writer.answer(refusal.status, NO_HEADERS, refusal.message.encode())


@st.composite
def pieces(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    cut = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    return [piece for piece in cut if piece]


bodies = st.binary(max_size=40)
words = st.text(st.sampled_from("abcXYZ019-"), min_size=1, max_size=8)


def _in_chunks(body: bytes, size: int) -> bytes:
    cut = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut) + b"0\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    verb, path = draw(st.sampled_from(["POST", "GET", "DELETE"])), draw(st.sampled_from(["/mcp", "/refused", "/x?y=z"]))
    fields = {"Host": "localhost", draw(words): draw(words), draw(st.sampled_from(["Accept", "X-Y"])): draw(words)}
    body = draw(bodies)
    if draw(st.booleans()):
        fields["Transfer-Encoding"] = "chunked"
        trailers = draw(
            st.sampled_from([b"", b"", b"X-T: 1\r\n", b"Accept: leaked\r\n", b"A: 1\r\nAccept: leaked\r\n"])
        )
        body = _in_chunks(body, draw(st.integers(1, 10))) + trailers + b"\r\n"
    else:
        fields["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _served(cut: list[bytes]) -> bytes:
    sink = Sink()
    connection = InboundConnection(Connections(Mirror(), Limits()))
    connection.connection_made(cast(asyncio.Transport, sink))
    for piece in cut:
        if not sink.is_over:
            connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return re.sub(rb"date: [^\r]*\r\n", b"", sink.written)


@BOUNDED
@given(st.data())
def test_requests_in_random_pieces_are_answered_as_when_they_come_whole(data: st.DataObject) -> None:
    sent = data.draw(st.lists(requests(), min_size=1, max_size=4))
    # Sometimes nonsense follows; what was sound before it is answered all the same.
    stream = b"".join(sent) + data.draw(st.sampled_from([b"", b"", b"\x16\x03nonsense\r\n\r\n", b"GET"]))
    cut = data.draw(pieces(stream))
    with asyncio.Runner() as runner:
        whole = runner.run(_served([stream]))
        assert runner.run(_served(cut)) == whole
    assert b"leaked" not in whole, "a trailer is no header, neither of its own request nor of the next"
    # A refusal may end the connection; until then each request has its answer.
    assert whole.count(b"HTTP/1.1 200 OK") + whole.count(b"HTTP/1.1 403") + whole.count(b"HTTP/1.1 400") >= 1


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    body = draw(bodies)
    end = draw(st.sampled_from(["\r\n", "\n"]))
    lines = [f"HTTP/1.1 {draw(st.sampled_from([200, 202, 404, 500]))} Whatever", f"X-{draw(words)}: {draw(words)}"]
    how = draw(st.sampled_from(["length", "chunks", "end"]))
    if how == "chunks":
        lines.append("Transfer-Encoding: chunked")
        body = _in_chunks(body, draw(st.integers(1, 10))) + b"\r\n"
    elif how == "length":
        lines.append(f"Content-Length: {len(body) + draw(st.sampled_from([0, 0, 3]))}")
    return "".join(line + end for line in [*lines, ""]).encode() + body


async def _understood(cut: list[bytes]) -> tuple[object, ...]:
    """What the client makes of it: status, headers and body, or how it complains."""
    connection = OutboundConnection(lambda freed: None, WriteBatch())
    connection.connection_made(cast(asyncio.Transport, Sink()))
    asking = asyncio.create_task(connection.request(b"GET / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    for piece in cut:
        if connection.is_open:
            connection.data_received(piece)
    connection.eof_received()
    connection.connection_lost(None)
    try:
        async with asyncio.timeout(10):
            response = await asking
            body = b""
            while piece := await response.read():
                body += piece
    except RequestFailed as error:
        return (type(error),)
    return response.status, response.headers, body


@BOUNDED
@given(st.data())
def test_a_response_in_random_pieces_is_understood_as_when_it_comes_whole(data: st.DataObject) -> None:
    stream = data.draw(responses()) if data.draw(st.integers(0, 9)) else data.draw(st.binary(max_size=60))
    cut = data.draw(pieces(stream))
    with asyncio.Runner() as runner:
        assert runner.run(_understood(cut)) == runner.run(_understood([stream]))


leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5) | st.sampled_from(["2.0", "later", "x"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": values,
        "method": st.sampled_from(["echo", "initialize", "notifications/cancelled", "notifications/x"]) | values,
        "params": values,
        "result": values,
        "error": values,
    },
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(messages | values, st.sampled_from(["modern", "legacy", "bare"])), min_size=1, max_size=8))
def test_any_json_over_http_is_answered_once_and_takes_nothing_down(posted: list[tuple[Any, str]]) -> None:
    async def run() -> None:
        async with echoing() as rig:
            for message, kind in posted:
                headers = {"modern": modern_headers("echo"), "legacy": {"mcp_session_id": "x"}, "bare": {}}[kind]
                if kind == "modern" and isinstance(message, dict):
                    message = {**message, "params": {**modern("echo")["params"]}}
                connection = await rig.client.connect()
                await connection.send(written("POST", "/mcp", message, **headers))
                response = await connection.response()
                assert 200 <= response.status < 500, (message, response.status, response.body)
            assert (await rig.client.request("GET", "/healthz")).status == 200
            assert rig.server.connection_count <= len(posted) + 1

    with asyncio.Runner() as runner:
        runner.run(run())
