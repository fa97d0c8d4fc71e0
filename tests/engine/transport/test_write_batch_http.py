"""What is written at the end of a batch of the loop: all of it, in order, and before a connection closes."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from mcp_workbench.engine.transport.http.client.client_connection import OutboundConnection
from mcp_workbench.engine.transport.http.client.response import NotSent, RequestFailed, Response
from mcp_workbench.engine.transport.write_batch import WriteBatch
from tests.engine.transport.http.client.talk import talking
from tests.engine.transport.http.client.test_http_link_calls import call_of, modern_server
from tests.engine.transport.http.listening import Reply, Request, scripted_http
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import RawConnection, modern, modern_headers, written
from tests.engine.transport.test_pieces_http import Sink


def later(id: int) -> bytes:
    return written("POST", "/mcp", modern("later", id=id), **modern_headers("later"))


async def waiting(rig: EchoRig, count: int) -> list[RawConnection]:
    """That many clients whose calls have no answer yet."""
    connections = [await rig.client.connect() for _ in range(count)]
    for id, connection in enumerate(connections):
        await connection.send(later(id))
    await rig.under_way(count)
    return connections


async def test_answers_to_many_are_written_together() -> None:
    async with echoing() as rig:
        connections = await waiting(rig, 5)
        for id, session in enumerate(rig.sessions):
            session.answer(b"%d" % id, {"n": id})
        in_batch = [connection for connection in rig.server._connections.open if connection._soon]
        assert len(in_batch) == 4, "all but the last, behind which nobody waits"
        answers = [(await connection.response()).json for connection in connections]
        assert [answer["result"]["n"] for answer in answers] == [0, 1, 2, 3, 4]
        assert rig.server._connections.owing == 0


async def test_pending_bytes_are_flushed_before_the_connection_closes() -> None:
    async with echoing() as rig:
        connections = await waiting(rig, 3)
        for id, session in enumerate(rig.sessions):
            session.answer(b"%d" % id, {"n": id})
        await rig.server.stop()
        for id, connection in enumerate(connections):
            assert (await connection.response()).json["result"]["n"] == id
            assert await connection.closed() == b""


async def test_half_closed_client_gets_immediate_answers() -> None:
    async with echoing() as rig:
        await waiting(rig, 2)
        connection = await rig.client.connect()
        connection.writer.write(written("POST", "/mcp", modern("echo", id=7), **modern_headers("echo")))
        connection.writer.write_eof()
        assert (await connection.response()).json["id"] == 7


async def test_responses_sent_ahead_are_in_order_also_while_others_wait() -> None:
    async with echoing() as rig:
        await waiting(rig, 2)
        connection = await rig.client.connect()
        requests = [written("POST", "/mcp", modern("echo", id=id), **modern_headers("echo")) for id in range(9)]
        await connection.send(b"".join(requests))
        assert [(await connection.response()).json["id"] for _ in range(9)] == list(range(9))


async def test_a_permission_to_go_on_does_not_overtake_the_response_before_it() -> None:
    async with echoing() as rig:
        await waiting(rig, 2)
        connection = await rig.client.connect()
        first = written("POST", "/mcp", modern("echo", id=1), **modern_headers("echo"))
        head, _, body = written(
            "POST", "/mcp", modern("echo", id=2), expect="100-continue", **modern_headers("echo")
        ).partition(b"\r\n\r\n")
        await connection.send(first + head + b"\r\n\r\n")
        assert (await connection.response()).json["id"] == 1
        assert (await connection.head()).status == 100
        await connection.send(body)
        assert (await connection.response()).json["id"] == 2


async def test_clients_that_go_are_owed_nothing() -> None:
    async with echoing() as rig:
        for connection in await waiting(rig, 4):
            connection.close()
        async with asyncio.timeout(10):
            while rig.server.connection_count:
                await asyncio.sleep(0.01)
        assert rig.server._connections.owing == 0
        listening = await rig.client.connect()
        session = await rig.client.begin_session()
        await listening.send(written("GET", "/mcp", mcp_session_id=session))
        await listening.head()
        assert rig.server._connections.owing == 0, "a stream that has begun is no debt"


@pytest.mark.parametrize("modern", [True, False])
async def test_calls_that_are_cancelled_before_they_are_written_are_never_sent(modern: bool) -> None:
    seen: list[str] = []

    async def handler(request: Request, reply: Reply) -> None:
        message = json.loads(request.body)
        seen.append(message["params"].get("name", message["method"]))
        await modern_server(request, reply)

    async with scripted_http(handler) as server, talking(server.url) as talk:
        for id in (1, 2, 3):
            call_of(talk, id, f"open-{id}", modern=modern)
        for id in (1, 2, 3):
            await talk.answer(id)
        for id in (4, 5, 6):
            call_of(talk, id, f"call-{id}", modern=modern)
        talk.notify("notifications/cancelled", {"requestId": 5})
        for id in (4, 6, 7):
            if id == 7:
                call_of(talk, id, "call-7", modern=modern)
            assert (await talk.answer(id))["result"] == {"ok": True}
        # Nor is the server told of what it has never seen.
        assert sorted(seen) == ["call-4", "call-6", "call-7", "open-1", "open-2", "open-3"]
        assert not talk.failures and talk.link.unsent_bytes == 0
        assert server.connections == 3, "and the connection is as good as before"


async def test_a_call_whose_connection_goes_before_it_was_written_takes_another() -> None:
    async with scripted_http(modern_server) as server, talking(server.url) as talk:
        for id in (1, 2):
            call_of(talk, id, "open")
        for id in (1, 2):
            await talk.answer(id)
        for id in (3, 4):
            call_of(talk, id, "call")
        post = talk.link._posts[b"4"]
        assert post.connection is not None
        post.connection.close()
        for id in (3, 4):
            assert (await talk.answer(id))["result"] == {"ok": True}
        assert len(server.requests) == 4 and server.connections == 3
        assert not talk.failures and talk.link.unsent_bytes == 0


class RecordingListener:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_response(self, response: Response) -> None:
        self.told.append(response.take())

    def on_failed(self, error: RequestFailed) -> None:
        self.told.append(type(error))


async def test_a_response_that_arrives_before_its_request_was_written_closes_the_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    freed: list[OutboundConnection] = []
    connection, sink = OutboundConnection(freed.append, WriteBatch()), Sink()
    connection.connection_made(cast(asyncio.Transport, sink))
    before = RecordingListener()
    connection.begin(b"FIRST", b"", before)
    connection.data_received(answer)
    connection.release(is_clean=True)
    assert before.told == [b"{}"]
    assert freed == [connection] and connection.is_open
    listener = RecordingListener()
    connection.begin(b"LAST", b"", listener, soon=True)
    connection.data_received(answer)
    assert sink.is_over, "a server that answers what it has not been asked is not to be trusted"
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert listener.told == [NotSent]
    assert b"LAST" not in sink.written
