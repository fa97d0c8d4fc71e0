"""HTTP/1.1 itself: sizes, deadlines, order, clients that do not read, and what a parser must not be fooled by."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.engine.transport.http.server.limits import MAX_PIPELINED_REQUESTS, MAX_REQUEST_HEAD_BYTES, Limits
from mcp_workbench.engine.transport.http.server.server_connection import (
    INBOUND_TRANSITIONS,
    InboundConnection,
    InboundEvent,
    InboundState,
)
from mcp_workbench.errors import DownstreamError
from tests.engine.transport.http.listening import PATIENCE, wait_until
from tests.engine.transport.http.server.echoing import echoing, stalled
from tests.engine.transport.http.server.raw_client import initialize, legacy, modern, modern_headers, written

ECHO = written("POST", "/mcp", modern("echo"), **modern_headers("echo"))


async def test_a_request_may_arrive_byte_by_byte() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        for byte in ECHO:
            await connection.send(bytes([byte]))
        assert (await connection.response()).status == 200


async def test_a_body_may_arrive_in_chunks() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        body = json.dumps(modern("echo")).encode()
        head = written("POST", "/mcp", None, **modern_headers("echo"), transfer_encoding="chunked", content_length=None)
        await connection.send(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert (await connection.response()).status == 200


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        waiting = written("POST", "/mcp", modern("later", id=1), **modern_headers("later"))
        quick = [written("POST", "/mcp", modern("echo", id=n), **modern_headers("echo")) for n in (2, 3)]
        await connection.send(waiting + b"".join(quick))
        await rig.under_way()
        assert len(rig.sessions) == 1, "the others are queued"
        rig.last.answer(b"1", {})
        assert [(await connection.response()).json["id"] for _ in range(3)] == [1, 2, 3]
        assert (await connection.request(body=modern("echo", id=4), **modern_headers("echo"))).json["id"] == 4


async def test_client_that_pipelines_too_much_is_disconnected() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        waiting = written("POST", "/mcp", modern("later", id=1), **modern_headers("later"))
        await connection.send(waiting + ECHO * (MAX_PIPELINED_REQUESTS + 1))
        await connection.closed()
        await wait_until(lambda: rig.server.connection_count == 0)
        assert not rig.sessions[0].calls, "and what it asked for is cancelled"


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /mcp HTTP/1.1\nHost: localhost\n\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked, x\r\n\r\nzz",
        b"GET /mcp HTTP/1.1\r\nHo st: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_an_invalid_http_request_gets_400_or_silence(data: bytes) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(data)
        answer = await connection.closed()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert not rig.sessions
        assert (await rig.client.request("GET", "/healthz")).status == 200


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([ECHO, b"\r\n", b"GET / HTTP/1.1\r\n", b"\r\n\r\n"]), max_size=6)
)
def test_no_bytes_whatsoever_take_the_server_down(pieces: list[bytes]) -> None:
    async def run() -> None:
        async with echoing() as rig:
            connection = await rig.client.connect()
            for piece in pieces:
                with contextlib.suppress(ConnectionError):
                    await connection.send(piece)
            assert (await rig.client.request("GET", "/healthz")).status == 200

    with asyncio.Runner() as runner:
        runner.run(run())


async def test_a_head_that_never_ends_is_too_large() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_REQUEST_HEAD_BYTES // 1000 + 2):
                await connection.send(b"x" * 1000)
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("first", [b"", ECHO])
async def test_empty_lines_before_a_request_count_as_its_head(first: bytes) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        if first:
            await connection.send(first)
            assert (await connection.response()).status == 200
        await connection.send(b"\r\n\r\n" * 100 + ECHO)
        assert (await connection.response()).status == 200, "a few are skipped"
        with contextlib.suppress(ConnectionError):
            await connection.send(b"\r\n\r\n" * (MAX_REQUEST_HEAD_BYTES // 4 + 1))
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")


async def test_silent_connection_is_closed() -> None:
    async with echoing(Limits(head_seconds=0.05)) as rig:
        connection, stray = await rig.client.connect(), await rig.client.connect()
        await stray.send(b"\r\n")
        assert await connection.closed() == b""
        assert await stray.closed() == b""


async def test_a_slow_head_times_out() -> None:
    async with echoing(Limits(head_seconds=0.05)) as rig:
        connection = await rig.client.connect()
        await connection.send(ECHO[:40])
        assert (await connection.closed()).startswith(b"HTTP/1.1 408 ")


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with echoing(Limits(head_seconds=60, body_seconds=0.1, keep_alive_seconds=0.1)) as rig:
        connection = await rig.client.connect()
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        assert await connection.closed() == b""


async def test_an_idle_connection_that_has_not_authenticated_is_closed_sooner() -> None:
    async with echoing(Limits(head_seconds=0.1, keep_alive_seconds=60)) as rig:
        connection = await rig.client.connect()
        assert (await connection.request("GET", "/healthz")).status == 200
        assert await connection.closed() == b""


async def test_a_call_under_way_is_not_idle() -> None:
    async with echoing(Limits(head_seconds=0.02, keep_alive_seconds=0.02)) as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        # White space after a request is allowed, and the beginning of a next one while this is under way.
        await connection.send(b"\r\n" + ECHO[:5])
        quiet = await rig.client.connect()
        assert await quiet.closed() == b"", "time has passed"
        rig.last.answer(b"1", {})
        assert (await connection.response()).status == 200


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    async with echoing(Limits(comment_seconds=0.02)) as rig:
        connection = await rig.client.connect()
        data = written("POST", "/mcp", modern("later"), **modern_headers("later"))
        await connection.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
        response = await connection.response()
        assert "transfer-encoding" not in response.headers
        rig.last.answer(b"1", {"ok": 1})
        assert b'"ok": 1' in await connection.closed()


async def test_a_connection_is_closed_when_the_client_says_so() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        response = await connection.request("GET", "/healthz", connection="close")
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert await connection.closed() == b""


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nhost:"


@pytest.mark.parametrize("step", [1, 1000])
async def test_a_client_that_would_like_another_protocol_is_served_in_this_one(step: int) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        body = json.dumps(modern("echo", id=2)).encode()
        head = written("POST", "/mcp", None, **modern_headers("echo"), transfer_encoding="chunked", content_length=None)
        chunked = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        health = written("GET", "/healthz")
        data = b"".join(each.replace(b"host:", UPGRADE) for each in (ECHO, chunked, health)) + ECHO
        for start in range(0, len(data), step):
            await connection.send(data[start : start + step])
        assert [(await connection.response()).json["id"] for _ in range(2)] == [1, 2]
        assert (await connection.response()).body == b"ok\n"
        assert (await connection.response()).json["id"] == 1


async def test_an_absolute_target_is_understood() -> None:
    async with echoing() as rig:
        assert (await rig.client.request("GET", "http://localhost/healthz?x=1")).status == 200
        assert (await rig.client.request("GET", "*")).status == 404
        assert (await rig.client.request("POST", "/mcp/", body=initialize())).status == 404
        assert (await rig.client.request("POST", "/%6dcp", body=initialize())).status == 404


async def test_every_response_has_a_date() -> None:
    async with echoing() as rig:
        assert (await rig.client.request("GET", "/healthz")).headers["date"].endswith("GMT")


async def test_head_has_no_body() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await connection.head()
        assert (head.status, head.headers["content-length"]) == (200, "3")
        assert (await connection.request("GET", "/healthz")).body == b"ok\n"


def connections_in_memory() -> int:
    return sum(type(each) is InboundConnection for each in gc.get_objects())


async def test_a_connection_that_is_gone_leaves_nothing_to_the_collector_of_cycles() -> None:
    gc.collect()
    gc.disable()
    # Gateways of other tests in this process may still hold the last of theirs.
    others = connections_in_memory()
    try:
        async with echoing() as rig:
            connection = await rig.client.connect()
            assert (await connection.request("GET", "/healthz")).status == 200
            assert connections_in_memory() == others + 1
            connection.close()
            await wait_until(lambda: rig.server.connection_count == 0)
            await wait_until(lambda: connections_in_memory() == others)
    finally:
        gc.enable()


async def test_there_are_no_more_connections_than_we_hold() -> None:
    async with echoing(Limits(connections=2)) as rig:
        kept = [await rig.client.connect() for _ in range(2)]
        for connection in kept:
            assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200
        refused = await rig.client.connect()
        assert (await refused.closed()).startswith(b"HTTP/1.1 503 ")
        kept[0].close()
        await wait_until(lambda: rig.server.connection_count == 1)
        assert (await rig.client.request("GET", "/healthz")).status == 200


async def test_a_modern_client_that_does_not_read_its_stream_is_dropped_and_its_call_cancelled() -> None:
    async with echoing(Limits(message_bytes=100_000, unread_bytes=100_000)) as rig:
        connection = await stalled(rig)
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        session = rig.last
        async with asyncio.timeout(PATIENCE):
            while not session.ended:
                session.notify("notifications/progress", about=b"1", text="x" * 50_000)
                await asyncio.sleep(0)
        assert session.received[-1]["method"] == "notifications/cancelled"


async def test_a_legacy_client_that_does_not_read_loses_its_connection_and_keeps_its_session() -> None:
    async with echoing(Limits(message_bytes=100_000, unread_bytes=100_000)) as rig:
        id = await rig.client.begin_session()
        connection = await stalled(rig)
        await connection.send(written("GET", "/mcp", None, mcp_session_id=id, accept="text/event-stream"))
        await wait_until(lambda: rig.server.connection_count == 2)
        session = rig.last
        async with asyncio.timeout(PATIENCE):
            while rig.server.connection_count == 2:
                session.notify("notifications/message", text="x" * 50_000)
                await asyncio.sleep(0)
        assert rig.server.session_count == 1
        assert (await rig.client.request(body=legacy("echo"), mcp_session_id=id)).status == 200


async def test_reading_from_a_client_pauses_until_it_reads_its_answers() -> None:
    async with echoing(Limits(pause_bytes=100_000)) as rig:
        connection = await stalled(rig)
        asked = 200
        request = written("POST", "/mcp", modern("echo", {"text": "x" * 100_000}), **modern_headers("echo"))
        connection.writer.write(request * asked)
        await wait_until(lambda: "stalled" in repr(next(iter(rig.server._connections.open))))
        served = len(rig.sessions)
        assert served < asked / 2, "what is not read in the rig and in the kernel is all that was served"
        unsent = next(iter(rig.server._connections.open)).unsent_bytes
        assert unsent < 400_000
        for _ in range(asked):
            assert (await connection.response()).status == 200


async def test_requests_with_cached_heads_wait_for_a_slow_reader() -> None:
    async with echoing(Limits(pause_bytes=100_000)) as rig:
        connection = await stalled(rig)
        request = written("POST", "/mcp", modern("later"), **modern_headers("later"))
        asked = 0
        while "stalled" not in repr(list(rig.server._connections.open)):
            asked += 1
            await connection.send(request)
            await rig.under_way()
            rig.last.answer(b"1", {"text": "x" * 300_000})
            await asyncio.sleep(0)
        await connection.send(request)
        assert (await rig.client.request("GET", "/healthz")).status == 200, "time enough to have been read"
        assert len(rig.sessions) == asked
        for _ in range(asked):
            assert (await connection.response()).status == 200
        await rig.under_way()
        assert len(rig.sessions) == asked + 1


async def test_a_connection_that_leaves_its_answers_unread_is_dropped_after_a_while() -> None:
    async with echoing(Limits(head_seconds=0.05, pause_bytes=100_000, unread_seconds=0.05)) as rig:
        connection = await stalled(rig)
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        rig.last.notify("notifications/progress", about=b"1", text="x" * 8_000_000)
        await wait_until(lambda: rig.server.connection_count == 0)
        assert rig.last.received[-1]["method"] == "notifications/cancelled"


async def test_resuming_a_stream_repeatedly_without_reading_holds_it_once() -> None:
    async with echoing(Limits(pause_bytes=100_000)) as rig:
        id = await rig.client.begin_session()
        session = rig.last
        listening = {"mcp_session_id": id, "accept": "text/event-stream"}
        for _ in range(8):
            session.notify("notifications/message", text="x" * 1_000_000)
        resume = written("GET", "/mcp", None, **listening, last_event_id="0-0")
        for _ in range(5):
            await (await stalled(rig)).send(resume)
        await wait_until(lambda: rig.server.connection_count == 2)
        assert (await rig.client.request(body=legacy("echo"), mcp_session_id=id)).status == 200


async def test_an_unread_answer_is_aborted() -> None:
    async with echoing(Limits(head_seconds=0.05, keep_alive_seconds=0.05, unread_seconds=0.05)) as rig:
        connection = await stalled(rig)
        text = "x" * 8_000_000
        await connection.send(written("POST", "/mcp", modern("echo", {"text": text}), **modern_headers("echo")))
        await wait_until(lambda: bool(rig.sessions))
        await wait_until(lambda: rig.server.connection_count == 0)


async def test_a_large_answer_that_is_read_arrives_whole() -> None:
    async with echoing() as rig:
        text = "x" * 3_000_000
        response = await rig.client.request(body=modern("echo", {"text": text}), **modern_headers("echo"))
        assert response.json["result"]["echo"]["text"] == text


async def test_stopping_ends_everything_in_bounded_time() -> None:
    async with echoing() as rig:
        id = await rig.client.begin_session()
        stream = await rig.client.request("GET", mcp_session_id=id, accept="text/event-stream")
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        await rig.client.connect()
        async with asyncio.timeout(PATIENCE):
            await rig.server.stop()
        assert rig.server.connection_count == rig.server.session_count == rig.server.call_count == 0
        assert all(session.ended for session in rig.sessions)
        assert stream.status == 200


async def test_draining_lets_calls_finish_and_takes_no_new_ones() -> None:
    async with echoing() as rig:
        connection, other = await rig.client.connect(), await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        rig.server.drain()
        assert rig.server.call_count == 1
        assert (await other.request(body=modern("echo"), **modern_headers("echo"))).status == 503
        assert (await other.request("GET", "/readyz")).status == 503
        with pytest.raises(ConnectionError):
            await rig.client.connect()
        rig.sessions[0].answer(b"1", {})
        assert (await connection.response()).status == 200


async def test_a_batch_that_comes_too_late_is_refused_request_by_request() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        connection = await rig.client.connect()
        assert (await connection.request("GET", "/healthz")).status == 200
        rig.server.drain()
        batch = json.dumps([legacy("echo", id=1), legacy("notifications/x", id=None), legacy("echo", id="b")]).encode()
        response = await connection.request(body=batch, mcp_session_id=session)
        assert response.status == 503
        refusals = json.loads(response.body)
        assert [refusal["id"] for refusal in refusals] == [1, "b"]
        assert {refusal["error"]["code"] for refusal in refusals} == {-32603}
        # Nothing but notifications and answers to questions: they may still end what is under way.
        told = json.dumps([legacy("notifications/x", id=None)]).encode()
        assert (await connection.request(body=told, mcp_session_id=session)).status == 202


async def test_running_requests_are_answered_at_shutdown() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        old, new = await rig.client.connect(), await rig.client.connect()
        await old.send(written("POST", "/mcp", legacy("later", id=1), mcp_session_id=session))
        await new.send(written("POST", "/mcp", modern("later", id=2), **modern_headers("later")))
        await rig.under_way(2)
        rig.server.fail_all(DownstreamError("that is all"))
        for id, connection in ((1, old), (2, new)):
            answer = (await connection.response()).json
            assert (answer["id"], answer["error"]["message"]) == (id, "that is all")
        assert rig.server.call_count == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"transfer_encoding": "chunked", "content_length": None}, 200),
        ({"transfer_encoding": "identity", "content_length": None}, 400),
        ({"transfer_encoding": "xchunked", "content_length": None}, 400),
        ({"transfer_encoding": "gzip, chunked", "content_length": None}, 400),
        ({"transfer_encoding": "chunked", "content_length": "5"}, 400),
    ],
)
async def test_upgrade_requests_are_framed_as_strictly(headers: dict[str, str | None], status: int) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        upgrade = {"connection": "Upgrade", "upgrade": "h2c", **headers, **modern_headers("echo")}
        body = json.dumps(modern("echo")).encode()
        await connection.send(written("POST", "/mcp", None, **upgrade) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await connection.response()).status == status


def test_every_state_of_an_inbound_connection_is_reached_by_an_event_that_happens() -> None:
    reached = {InboundState.QUIET}
    while further := {after for (before, _), after in INBOUND_TRANSITIONS.items() if before in reached} - reached:
        reached |= further
    # `LOST` is left to the connection itself, which may be lost at any time.
    assert reached == set(InboundState) - {InboundState.LOST}
    assert {event for _, event in INBOUND_TRANSITIONS} == set(InboundEvent)


def test_no_response_begins_after_the_last_one() -> None:
    beginnings = {
        before for before, event in INBOUND_TRANSITIONS if event in (InboundEvent.BEGIN, InboundEvent.BEGIN_LAST)
    }
    assert beginnings == {InboundState.QUIET}
    last = {InboundState.OWING_LAST}
    while further := {after for (before, _), after in INBOUND_TRANSITIONS.items() if before in last} - last:
        last |= further
    assert InboundState.QUIET not in last
