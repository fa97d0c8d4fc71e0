"""Large bodies are read in a thread: others are served meanwhile, and nothing of the same session overtakes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from mcp_workbench.engine.jsonrpc import large_messages
from mcp_workbench.engine.transport.http.server import large_bodies, request_reader
from mcp_workbench.engine.transport.http.server.large_bodies import LargeBodies, ReadBody
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from mcp_workbench.engine.transport.pieces import Pieces
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import (
    RawConnection,
    legacy,
    modern,
    modern_headers,
    written,
)

TEXT = "x" * 5_000
LARGE = {"text": TEXT}


class Gate:
    """Holds reading back, as the thread sees it, until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = large_bodies.read_body
        self._open = threading.Event()
        self.threads: list[int] = []
        monkeypatch.setattr(large_bodies, "read_body", self._held)

    def _held(self, pieces: Pieces) -> ReadBody:
        self.threads.append(threading.get_ident())
        assert self._open.wait(60)
        return self._read(pieces)

    async def reached(self, times: int = 1) -> None:
        await wait_until(lambda: len(self.threads) >= times)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(autouse=True)
def _some_kilobytes_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_reader, "LARGE_BODY", 2_000)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open()


async def posted(rig: EchoRig, body: Any, **headers: Any) -> RawConnection:
    connection = await rig.client.connect()
    await connection.send(written("POST", "/mcp", body, **headers))
    return connection


async def test_others_are_served_while_it_is_read(gate: Gate) -> None:
    async with echoing() as rig:
        first = await posted(rig, modern("echo", LARGE), **modern_headers("echo"))
        await gate.reached()
        # As often as one likes: nothing of the event loop is taken.
        for number in range(20):
            beside = await rig.client.request(body=modern("echo", {"n": number}), **modern_headers("echo"))
            assert beside.json["result"]["echo"]["n"] == number
        assert gate.threads != [threading.get_ident()] and len(rig.sessions) == 20
        gate.open()
        assert (await first.response()).json["result"]["echo"]["text"] == TEXT


async def test_posts_of_the_same_session_are_queued(gate: Gate) -> None:
    async with echoing() as rig:
        session, other = await rig.client.begin_session(), await rig.client.begin_session()
        first = await posted(rig, legacy("later", LARGE, id=7), mcp_session_id=session)
        await gate.reached()
        cancel = legacy("notifications/cancelled", {"requestId": 7}, id=None)
        second = await posted(rig, cancel, mcp_session_id=session)
        third = await posted(rig, legacy("echo", LARGE, id=8), mcp_session_id=session)
        fourth = await posted(rig, legacy("echo", {}, id=9), mcp_session_id=session)
        behind = rig.server._endpoint._large_bodies.behind
        await wait_until(lambda: [len(queue) for queue in behind.values()] == [3])
        assert "3 requests behind" in repr(rig.server._endpoint._large_bodies)
        # Whose session is another one waits for nobody.
        assert (await rig.client.request(body=legacy("echo"), mcp_session_id=other)).status == 200
        one = rig.sessions[0]
        assert one.received[1:] == []
        gate.open()
        assert (await second.response()).status == 202
        assert (await third.response()).json["id"] == 8
        assert (await fourth.response()).json["id"] == 9
        assert [message.get("id", message["method"]) for message in one.received[1:]] == [
            7,
            "notifications/cancelled",
            8,
            9,
        ]
        assert one.calls == {} and not behind
        first.close()


async def test_bodies_of_one_principal_are_read_one_at_a_time(gate: Gate) -> None:
    served: list[str] = []

    def serve(head: RequestHead, body: bytes | ReadBody, writer: ResponseWriter) -> None:
        served.append(head.path)

    bodies = LargeBodies(serve)
    asked = [("a", "one"), ("a", "two"), ("b", "three"), ("a", "four"), ("b", "five")]
    futures = []
    for principal, name in asked:
        head, pieces = RequestHead("POST", f"/{name}"), Pieces()
        head.principal = principal
        pieces.add(b"{}")
        futures.append(bodies.take(head, pieces, Mock(is_over=False)))
    # One of each principal, and no other however long it takes.
    await gate.reached(2)
    assert len(gate.threads) == 2 and {name: len(queue) for name, queue in bodies.unread.items()} == {"a": 2, "b": 1}
    gate.open()
    for future in futures:
        assert future is not None
        await future
    assert [name for name in served if name in ("/one", "/two", "/four")] == ["/one", "/two", "/four"]
    assert [name for name in served if name in ("/three", "/five")] == ["/three", "/five"]
    assert not bodies.unread


async def test_a_modern_client_that_has_gone_meanwhile_is_not_served(gate: Gate) -> None:
    async with echoing() as rig:
        first = await posted(rig, modern("later", LARGE), **modern_headers("later"))
        await gate.reached()
        first.close()
        await wait_until(lambda: rig.server.connection_count == 0)
        gate.open()
        bodies = rig.server._connections.bodies
        await wait_until(lambda: bodies.reserved == 0)
        assert rig.sessions == []


async def test_a_legacy_client_that_has_gone_meanwhile_has_asked_all_the_same(gate: Gate) -> None:
    """In that era a disconnect cancels nothing."""
    async with echoing() as rig:
        session = await rig.client.begin_session()
        first = await posted(rig, legacy("later", LARGE, id=7), mcp_session_id=session)
        await gate.reached()
        first.close()
        await wait_until(lambda: rig.server.connection_count == 1)
        gate.open()
        await rig.under_way()
        rig.last.answer(b"7", {})
        assert rig.server.call_count == 0 and rig.last.ended == []


async def test_its_bytes_are_counted_until_it_has_been_read(gate: Gate) -> None:
    async with echoing() as rig:
        bodies = rig.server._connections.bodies
        body = modern("echo", LARGE)
        first = await posted(rig, body, **modern_headers("echo"))
        await gate.reached()
        assert bodies.reserved > 5_000
        gate.open()
        assert (await first.response()).status == 200
        await wait_until(lambda: bodies.reserved == 0)


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"%b"' % TEXT.encode(), -32700, "cannot be read"),
        (b'{"jsonrpc":"2.0","id":[],"method":"echo","params":{"text":"%b"}}' % TEXT.encode(), -32600, "`id` must be"),
        (b'{"jsonrpc":"2.0","id":1,"text":"%b"}' % TEXT.encode(), -32600, "not a JSON-RPC message"),
        (b'"%b"' % TEXT.encode(), -32600, "not a JSON object"),
        (b'{"jsonrpc":"1.0","id":1,"method":"echo","params":{"text":"%b"}}' % TEXT.encode(), -32600, '"2.0"'),
    ],
)
async def test_mistakes_in_large_bodies_are_reported_as_in_small_ones(body: bytes, code: int, says: str) -> None:
    async with echoing() as rig:
        error = (await rig.client.request(body=body, **modern_headers("echo"))).error
        assert error["code"] == code and says in error["message"]


async def test_over_many_lines_it_is_one_message() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        body = b'\n{\r\n"jsonrpc":"2.0","id":1,\n"method":"echo","params":{"text":"%b"\n}}\n' % TEXT.encode()
        assert (await rig.client.request(body=body, mcp_session_id=session)).json["result"]["echo"]["text"] == TEXT


async def test_a_large_notification_arrives_as_it_is() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session()
        told = legacy("notifications/told", LARGE, id=None)
        assert (await rig.client.request(body=told, mcp_session_id=session)).status == 202
        assert rig.last.received[-1] == told


@pytest.mark.parametrize("count", [2, 101])
async def test_a_large_batch_is_taken_apart_too(count: int) -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        batch = b"[%b]" % b",".join(
            b'{"jsonrpc":"2.0","id":%d,"method":"echo","params":{"text":"%b"}}' % (id, TEXT.encode())
            for id in range(count)
        )
        response = await rig.client.request(body=batch, mcp_session_id=session)
        if count > 100:
            assert response.error["message"] == "a batch must have 1 to 100 messages"
            return
        assert {(await response.message())["id"] for _ in range(count)} == set(range(count))


async def test_a_large_batch_that_is_none_is_refused() -> None:
    async with echoing() as rig:
        session = await rig.client.begin_session("2025-03-26")
        response = await rig.client.request(body=b'[{"id":"%b"},' % TEXT.encode(), mcp_session_id=session)
        assert (response.status, response.error["code"]) == (400, -32700)


@pytest.mark.parametrize(
    ("failure", "status", "says"),
    [(MemoryError(), 503, "the workbench could not handle this request: "), (KeyError("x"), 500, "internal error")],
)
async def test_a_read_failure_fails_only_its_request(
    failure: Exception, status: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(pieces: Pieces) -> ReadBody:
        raise failure

    monkeypatch.setattr(large_bodies, "read_body", failing)
    async with echoing() as rig:
        response = await rig.client.request(body=modern("echo", LARGE), **modern_headers("echo"))
        assert response.status == status and response.error["message"].startswith(says)
        small = await rig.client.request(body=modern("echo", {}), **modern_headers("echo"))
        assert small.status == 200


async def test_a_workbench_that_is_going_down_refuses_it_once_it_is_read(gate: Gate) -> None:
    async with echoing() as rig:
        first = await posted(rig, modern("echo", LARGE), **modern_headers("echo"))
        await gate.reached()
        rig.server.drain()
        gate.open()
        with contextlib.suppress(asyncio.IncompleteReadError):
            assert (await first.response()).status == 503
        assert rig.sessions == []


def test_reading_one_rests_as_long_as_it_works() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    rests = large_bodies.Rests(lambda: now[0], sleep)
    for _ in range(40):
        now[0] += large_bodies.WORK_INTERVAL / 4
        rests()
    assert len(slept) == 10 and sum(slept) == pytest.approx(10 * large_bodies.WORK_INTERVAL)


def test_it_may_rest_after_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the body is made of."""
    count = 0

    def pause() -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr(large_bodies, "Rests", lambda: pause)
    for text in ["x" * 2_000_000, ["x"] * 500_000]:
        count = 0
        pieces = Pieces()
        pieces.add(json.dumps(modern("echo", {"text": text})).encode())
        size = pieces.size
        assert large_bodies.read_body(pieces).posted
        assert count >= size // large_messages.PIECE_BYTES
