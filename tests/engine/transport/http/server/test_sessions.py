"""Legacy sessions: parallel POSTs, the GET stream, resuming, and a disconnect that cancels nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.server import sessions
from mcp_workbench.engine.transport.http.server.authentication import AuthenticationChallenge
from mcp_workbench.engine.transport.http.server.limits import Limits
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.resumable_stream import STREAM_BYTES
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import EchoRig, EchoSession, echoing
from tests.engine.transport.http.server.raw_client import RawConnection, Response, initialize, legacy, written
from tests.support.clock import Clock

# By a clock that the test puts forward, and never by as much as the test itself may take.
IDLE = Limits(comment_seconds=5.0, session_idle_seconds=30.0)
EVENTS: dict[str, Any] = {"accept": "text/event-stream", "content_type": None}


async def post(rig: EchoRig, session: str, body: Any, **headers: Any) -> Response:
    return await rig.client.request(body=body, mcp_session_id=session, **headers)


async def begin(rig: EchoRig, session: str, body: Any) -> RawConnection:
    """Send, and do not wait for the response."""
    connection = await rig.client.connect()
    await connection.send(written("POST", "/mcp", body, mcp_session_id=session))
    return connection


async def listen(rig: EchoRig, session: str, **headers: Any) -> Response:
    return await rig.client.request("GET", mcp_session_id=session, **{**EVENTS, **headers})


async def test_a_session_begins_with_initialize_and_serves_requests() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        assert len(session) >= 43 and session.isascii()
        assert (await post(rig, session, legacy("notifications/initialized", id=None))).status == 202
        response = await post(rig, session, legacy("echo", {"x": 1}))
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        assert response.json["result"]["echo"] == {"x": 1}
        assert len(rig.sessions) == 1


@pytest.mark.parametrize("id", [b"null", b"true", b"{}", b"[1]"])
async def test_a_request_whose_id_is_neither_text_nor_number_reaches_no_session(id: bytes) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        body = b'{"jsonrpc":"2.0","id":%b,"method":"echo","params":{}}' % id
        response = await rig.refused(post(rig, session, body), 400)
        assert (response.json["id"], response.error["code"]) == (None, -32600)
        assert "`id` must be a string or a number" in response.error["message"]


async def test_while_the_server_stops_no_session_gets_a_new_request() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        headers = {"mcp_session_id": await rig.client.begin_session()}
        for number in range(2):
            assert (await connection.request(body=legacy("echo", id=number), **headers)).status == 200
        rig.server.drain()
        response = await rig.refused(connection.request(body=legacy("echo", id=2), **headers), 503)
        assert "shutting down" in response.error["message"]


async def test_no_two_sessions_have_the_same_id() -> None:
    async with echoing() as rig:
        assert len({await rig.client.begin_session() for _ in range(20)}) == 20


async def test_an_initialize_that_is_refused_makes_no_session() -> None:
    async with echoing() as rig:
        response = await rig.client.request(body=legacy("initialize", {}))
        assert (response.status, response.error["code"]) == (200, -32602)
        assert "mcp-session-id" not in response.headers
        assert rig.server.session_count == 0
        assert rig.last.ended == ["`initialize` was refused"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"mcp_session_id": "forged"}, 404),
        ({"mcp_session_id": ""}, 404),
        ({"mcp_session_id": "x" * 5000}, 404),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_without_a_session_nothing_is_served(method: str, headers: dict[str, str], status: int) -> None:
    async with echoing() as rig:
        body = legacy("echo") if method == "POST" else None
        assert (await rig.client.request(method, body=body, **headers)).status == status
        assert not rig.sessions


async def test_session_belongs_to_the_caller_that_began_it() -> None:
    class ByName:
        depends_on_peer = False

        def authenticate(self, head: RequestHead) -> str | AuthenticationChallenge:
            return head.headers["authorization"]

    async with echoing(authenticator=ByName()) as rig:
        response = await rig.client.request(body=initialize(), authorization="ann")
        session = response.headers["mcp-session-id"]
        assert (await post(rig, session, legacy("echo"), authorization="ann")).status == 200
        for method in ("POST", "GET", "DELETE"):
            stolen = await rig.client.request(method, body=legacy("echo"), mcp_session_id=session, authorization="bob")
            assert stolen.status == 404
        assert rig.last.principal == "ann"


async def test_delete_ends_a_session_and_cancels_its_requests() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        stream = await listen(rig, session)
        waiting = await begin(rig, session, legacy("later", id=5))
        await rig.under_way()
        assert (await rig.client.request("DELETE", mcp_session_id=session)).status == 204
        assert rig.last.received[-1]["params"]["requestId"] == 5
        assert rig.last.ended == ["the client ended it"]
        assert (await waiting.response()).is_stream
        while (chunk := await stream._connection.chunk()) is not None:
            assert b"id: 0-" in chunk, "the priming event"
        assert (await post(rig, session, legacy("echo"))).status == 404


async def test_calls_run_side_by_side_and_each_answer_finds_its_post() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        connections = [await begin(rig, session, legacy("later", id=number)) for number in range(10)]
        await rig.under_way(10)
        for number in reversed(range(10)):
            rig.last.answer(b"%d" % number, {"number": number})
        for number, connection in enumerate(connections):
            assert (await connection.response()).json["result"] == {"number": number}


@pytest.mark.parametrize("size", [1, 200_000])
@pytest.mark.parametrize("id", [7, "plain", 'a,"result":', 'ü\\"', '"id":1,"error":'])
async def test_answer_finds_its_post_by_any_id_without_being_decoded(
    monkeypatch: pytest.MonkeyPatch, id: int | str, size: int
) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        other = await begin(rig, session, legacy("later", id="other"))
        called = await begin(rig, session, legacy("later", id=id))
        await rig.under_way(2)
        monkeypatch.setattr(sessions, "kind_and_id", None)
        result = {"id": 1, "error": "x" * size}
        rig.last.answer(json.dumps(id).encode(), result)
        answered = await called.response()
        assert (answered.status, answered.json["id"], answered.json["result"]) == (200, id, result)
        rig.last.answer(b'"other"', {"ok": 1})
        assert (await other.response()).json["result"] == {"ok": 1}


async def test_an_id_that_is_under_way_is_refused_without_harm_to_the_first() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        first = await begin(rig, session, legacy("later", id="same"))
        await rig.under_way()
        second = await post(rig, session, legacy("later", id="same"))
        assert (second.status, second.error["code"]) == (400, -32600)
        rig.last.answer(b'"same"', {"ok": 1})
        assert (await first.response()).json["result"] == {"ok": 1}


async def test_messages_of_a_call_leave_on_its_stream_and_others_on_the_standalone_one() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        standalone = await listen(rig, session)
        call = await begin(rig, session, legacy("later", id=1))
        await rig.under_way()
        rig.last.ask(77, "elicitation/create", about=b"1")
        rig.last.notify("notifications/tools/list_changed")
        rig.last.notify("notifications/message", about=b"no such call")
        response = await call.response()
        assert (await response.message())["id"] == 77
        assert (await standalone.message())["method"] == "notifications/tools/list_changed"
        assert (await standalone.message())["method"] == "notifications/message"
        assert (await post(rig, session, {"jsonrpc": "2.0", "id": 77, "result": {}})).status == 202
        assert rig.last.received[-1] == {"jsonrpc": "2.0", "id": 77, "result": {}}
        rig.last.answer(b"1", {"ok": 1})
        assert (await response.message())["result"] == {"ok": 1}
        await response.end()


async def test_a_disconnect_cancels_nothing() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        connection = await begin(rig, session, legacy("later", id=1))
        await rig.under_way()
        connection.close()
        await wait_until(lambda: rig.server.connection_count == 1)
        assert b"1" in rig.last.calls
        assert all(message.get("method") != "notifications/cancelled" for message in rig.last.received)
        rig.last.answer(b"1", {})
        assert (await post(rig, session, legacy("echo"))).status == 200


async def test_a_call_that_takes_long_can_be_resumed_after_a_disconnect() -> None:
    async with echoing(Limits(prime_seconds=0.01)) as rig:
        session = await rig.client.begin_session()
        connection = await begin(rig, session, legacy("later", id=1))
        response = await connection.response()
        priming = await response.event()
        assert priming.data == b"" and priming.id == "1-1"
        rig.last.notify("notifications/progress", about=b"1", progress=1)
        seen = await response.event()
        connection.close()
        rig.last.notify("notifications/progress", about=b"1", progress=2)
        rig.last.answer(b"1", {"ok": 1})
        again = await listen(rig, session, last_event_id=seen.id)
        assert (await again.message())["params"]["progress"] == 2
        assert (await again.message())["result"] == {"ok": 1}
        await again.end()
        # Once more, as long as it is kept: whoever lost the connection again still gets it.
        once_more = await listen(rig, session, last_event_id=priming.id)
        assert [(await once_more.message()).get("method") for _ in range(3)] == ["notifications/progress"] * 2 + [None]


async def test_resuming_takes_over_from_a_connection_that_seems_alive() -> None:
    async with echoing(Limits(prime_seconds=0.01)) as rig:
        session = await rig.client.begin_session()
        first = await begin(rig, session, legacy("later", id=1))
        priming = await (await first.response()).event()
        again = await listen(rig, session, last_event_id=priming.id)
        rig.last.answer(b"1", {"ok": 1})
        assert (await again.message())["result"] == {"ok": 1}
        assert b"ok" not in await first.closed()


async def test_older_revisions_get_no_empty_event() -> None:
    async with echoing(Limits(prime_seconds=0.01, comment_seconds=0.02)) as rig:
        session = await rig.client.begin_session("2025-06-18")
        connection = await begin(rig, session, legacy("later", id=1))
        response = await connection.response()
        rig.last.answer(b"1", {"ok": 1})
        event = await response.event()
        assert json.loads(event.data)["result"] == {"ok": 1}


@pytest.mark.parametrize("event_id", ["9-1", "x", "-", "0", "1-1-1", "٣-1", "99999999999999999999999999-1", "1-"])
async def test_an_event_that_is_not_ours_resumes_nothing(event_id: str) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        assert (await listen(rig, session, last_event_id=event_id)).status == 400


async def test_messages_wait_for_a_client_that_has_no_stream_open() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        rig.last.notify("notifications/message", n=1)
        rig.last.notify("notifications/message", n=2)
        stream = await listen(rig, session)
        assert [(await stream.message())["params"]["n"] for _ in range(2)] == [1, 2]


async def test_youngest_of_several_streams_alone_gets_each_message() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        older = await listen(rig, session)
        younger = await listen(rig, session)
        rig.last.notify("notifications/message", n=1)
        assert (await younger.message())["params"]["n"] == 1
        younger._connection.close()
        await wait_until(lambda: rig.server.connection_count == 2)
        rig.last.notify("notifications/message", n=2)
        assert (await older.message())["params"]["n"] == 2


async def test_the_standalone_stream_can_be_resumed() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        stream = await listen(rig, session)
        rig.last.notify("notifications/message", n=1)
        await stream.event()
        seen = await stream.event()
        stream._connection.close()
        await wait_until(lambda: rig.server.connection_count == 1)
        rig.last.notify("notifications/message", n=2)
        again = await listen(rig, session, last_event_id=seen.id)
        assert (await again.message())["params"]["n"] == 2


async def test_a_cancelled_call_ends_its_post_without_an_answer() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        connection = await begin(rig, session, legacy("later", id=1))
        await rig.under_way()
        cancel = legacy("notifications/cancelled", {"requestId": 1}, id=None)
        assert (await post(rig, session, cancel)).status == 202
        response = await connection.response()
        assert response.is_stream
        while (chunk := await connection.chunk()) is not None:
            assert b"result" not in chunk


async def test_streams_are_kept_alive() -> None:
    async with echoing(Limits(comment_seconds=0.02)) as rig:
        session = await rig.client.begin_session("2025-06-18")
        stream = await listen(rig, session)
        assert await stream._connection.chunk() == b":\n\n"


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2024-11-05"])
async def test_only_one_revision_has_batches(version: str) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session(version)
        response = await post(rig, session, json.dumps([legacy("echo")]).encode())
        assert (response.status, response.error["code"]) == (400, -32600)


async def test_a_call_that_is_cancelled_within_its_batch_holds_nothing_open() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        cancel = legacy("notifications/cancelled", {"requestId": 1}, id=None)
        response = await post(rig, session, json.dumps([legacy("later", id=1), cancel]).encode())
        await response.end()
        assert (await post(rig, session, json.dumps(legacy("echo", id=1)).encode())).status == 200, "the id is free"


async def test_a_batch_is_answered_message_by_message() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        batch = [legacy("echo", id=1), legacy("notifications/x", id=None), legacy("later", id=2)]
        response = await post(rig, session, json.dumps(batch).encode())
        assert response.is_stream
        assert (await response.message())["id"] == 1
        rig.last.answer(b"2", {})
        assert (await response.message())["id"] == 2
        await response.end()
        only_told = json.dumps([legacy("notifications/x", id=None)]).encode()
        assert (await post(rig, session, only_told)).status == 202


@pytest.mark.parametrize(
    "batch",
    [[], [1], [legacy("echo"), legacy("echo")], [initialize()], [legacy("echo", id=n) for n in range(101)]],
)
async def test_a_bad_batch_is_refused_whole(batch: list[Any]) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        assert (await post(rig, session, json.dumps(batch).encode())).status == 400
        assert len(rig.last.received) == 1


@pytest.mark.parametrize("version", ["1999-01-01", "nonsense", ""])
async def test_a_revision_that_has_no_sessions_is_refused(version: str) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        response = await rig.client.request("GET", mcp_session_id=session, mcp_protocol_version=version)
        assert response.status in (400, 405)


async def test_an_unused_session_expires() -> None:
    clock = Clock()
    async with echoing(IDLE) as rig:
        session = await rig.client.begin_session()
        clock.advance(15)
        assert (await post(rig, session, legacy("echo"))).status == 200
        clock.advance(20)
        assert (await post(rig, session, legacy("echo"))).status == 200, "it has been used since"
        clock.advance(30)
        await wait_until(lambda: rig.server.session_count == 0)
        assert rig.last.ended == ["not used for 30 s"]
        assert (await post(rig, session, legacy("echo"))).status == 404


async def test_a_session_with_a_stream_or_a_call_does_not_expire() -> None:
    clock = Clock()
    async with echoing(IDLE) as rig:
        streaming = await rig.client.begin_session("2025-06-18")
        stream = await listen(rig, streaming)
        calling = await rig.client.begin_session("2025-06-18")
        await begin(rig, calling, legacy("later"))
        await rig.under_way()
        await rig.client.begin_session("2025-06-18")
        assert rig.server.session_count == 3
        for _ in range(2):
            clock.advance(30)
            # The comment is written when sessions are looked at, which is when those that nobody uses end.
            assert await stream._connection.chunk() is not None
        assert rig.server.session_count == 2


async def test_a_full_table_evicts_the_least_recently_used_session() -> None:
    async with echoing(Limits(sessions=2, evict_after_seconds=0.0)) as rig:
        first, second = await rig.client.begin_session(), await rig.client.begin_session()
        await post(rig, first, legacy("echo"))
        await rig.client.begin_session()
        assert (await post(rig, second, legacy("echo"))).status == 404
        assert (await post(rig, first, legacy("echo"))).status == 200


async def test_a_table_full_of_busy_sessions_refuses_another() -> None:
    async with echoing(Limits(sessions=1)) as rig:
        await rig.client.begin_session()
        assert (await rig.client.request(body=initialize())).status == 503


async def test_streams_that_have_ended_count_even_if_they_said_little() -> None:
    async with echoing(Limits(kept_streams=5)) as rig:
        session = await rig.client.begin_session("2025-03-26")
        connection = await rig.client.connect()
        for number in range(20):
            batch = json.dumps([legacy("echo", id=2 * number), legacy("echo", id=2 * number + 1)]).encode()
            response = await connection.request(body=batch, mcp_session_id=session)
            assert [(await response.message())["id"] for _ in range(2)] == [2 * number, 2 * number + 1]
            await response.end()
        (kept,) = rig.server._endpoint.sessions.sessions()
        assert len(kept._streams) <= 6
        assert rig.server._endpoint.sessions.budget.total >= 5 * STREAM_BYTES
    async with echoing(Limits(replay_bytes_in_all=10 * STREAM_BYTES)) as rig:
        session = await rig.client.begin_session("2025-03-26")
        for number in range(20):
            batch = json.dumps([legacy("echo", id=2 * number), legacy("echo", id=2 * number + 1)]).encode()
            await (await post(rig, session, batch)).message()
        (kept,) = rig.server._endpoint.sessions.sessions()
        assert len(kept._streams) <= 10


async def test_events_kept_for_resuming_are_bounded() -> None:
    limits = Limits(replay_bytes=2000, replay_bytes_in_all=3000, waiting_messages=1000)
    async with echoing(limits) as rig:
        sessions: list[EchoSession] = []
        for _ in range(5):
            await rig.client.begin_session()
            sessions.append(rig.last)
        for session in sessions:
            for number in range(50):
                session.notify("notifications/message", n=number, text="x" * 100)
        kept = rig.server._endpoint.sessions.budget.total
        assert 0 < kept <= 3000


async def test_queued_messages_are_bounded_in_number() -> None:
    async with echoing(Limits(waiting_messages=3)) as rig:
        session = await rig.client.begin_session()
        for number in range(10):
            rig.last.notify("notifications/message", n=number)
        stream = await listen(rig, session)
        assert [(await stream.message())["params"]["n"] for _ in range(3)] == [7, 8, 9]


async def test_ended_streams_are_forgotten_after_a_while() -> None:
    limits = Limits(prime_seconds=0.01, comment_seconds=0.01, resume_seconds=0.01)
    async with echoing(limits) as rig:
        session = await rig.client.begin_session()
        connection = await begin(rig, session, legacy("later", id=1))
        priming = await (await connection.response()).event()
        rig.last.answer(b"1", {})
        await wait_until(lambda: rig.server._endpoint.sessions.budget.total == 0)
        assert (await listen(rig, session, last_event_id=priming.id)).status == 400
