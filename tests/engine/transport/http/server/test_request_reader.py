"""Bodies and trailers: who may send them, how much they may hold together, and how long they may take."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.body_budget import BodyBudget
from mcp_workbench.engine.transport.http.server.limits import (
    MAX_REQUEST_HEAD_BYTES,
    MAX_UNUSED_BODY_BYTES,
    SMALL_BODY,
    Limits,
)
from mcp_workbench.engine.transport.http.server.request_reader import RequestReader
from tests.engine.transport.http.listening import PATIENCE, wait_until
from tests.engine.transport.http.server.echoing import EchoRig, echoing
from tests.engine.transport.http.server.raw_client import RawConnection, modern, modern_headers, written

ECHO = written("POST", "/mcp", modern("echo"), **modern_headers("echo"))
CHUNKED: dict[str, Any] = {"transfer_encoding": "chunked", "content_length": None}


def chunked(trailers: bytes = b"", body: bytes | None = None, **headers: Any) -> bytes:
    """A request in one chunk."""
    body = json.dumps(modern("echo")).encode() if body is None else body
    head = written("POST", "/mcp", None, **{**modern_headers("echo"), **CHUNKED, **headers})
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


def reserved(rig: EchoRig) -> int:
    return rig.server._connections.bodies.reserved


async def upload(rig: EchoRig, size: int) -> RawConnection:
    """The beginning of a large body."""
    connection = await rig.client.connect()
    await connection.send(written("POST", "/mcp", None, **modern_headers("echo"), content_length=str(size)) + b"{")
    return connection


# Who may send one


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/healthz", {}),
        ("GET", "/readyz", {}),
        ("OPTIONS", "/mcp", {"access_control_request_method": "POST"}),
        ("GET", "/mcp", {"authorization": "Bearer x", "mcp_session_id": "none"}),
        ("DELETE", "/mcp", {"authorization": "Bearer x", "mcp_session_id": "none"}),
    ],
)
@pytest.mark.requirement("http.bodies")
@pytest.mark.parametrize("framing", [{"content_length": "100000000"}, CHUNKED])
async def test_nothing_but_a_post_that_came_in_has_a_body(
    method: str, path: str, headers: dict[str, Any], framing: dict[str, Any]
) -> None:
    async with echoing(authenticator=BearerToken("x")) as rig:
        connection = await rig.client.connect()
        await connection.send(written(method, path, None, **headers, **framing))
        piece = b"x" * (MAX_UNUSED_BODY_BYTES + 1)
        with contextlib.suppress(ConnectionError):
            await connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if framing is CHUNKED else piece)
        assert (await connection.response()).status == 413
        assert reserved(rig) == 0


async def test_a_few_bytes_where_no_body_is_wanted_are_read_past() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        assert (await connection.request("GET", "/healthz", body=b"{}")).body == b"ok\n"
        assert (await connection.request(body=modern("echo"), **modern_headers("echo"))).status == 200


# Trailers


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    "trailers",
    [
        b"Mcp-Session-Id: forged\r\n",
        b"Origin: https://evil.example\r\n",
        b"Authorization: Bearer x\r\nMcp-Method: other\r\n",
        b"Host: evil.example\r\nAccept: text/html\r\nAccept: text/html\r\n",
    ],
)
async def test_trailers_are_ignored_in_their_request_and_in_the_next(trailers: bytes, step: int) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        data = chunked(trailers) + ECHO
        for start in range(0, len(data), step):
            await connection.send(data[start : start + step])
        for _ in range(2):
            response = await connection.response()
            assert response.status == 200
            assert "access-control-allow-origin" not in response.headers


async def test_a_token_in_a_trailer_proves_nothing_later() -> None:
    async with echoing(authenticator=BearerToken("x")) as rig:
        connection = await rig.client.connect()
        await connection.send(chunked(b"Authorization: Bearer x\r\n", b"{}", authorization="Bearer x") + ECHO)
        assert (await connection.response()).status == 400
        await rig.refused(connection.response(), 401)


@pytest.mark.parametrize(("start", "piece"), [(b"", b"X-Y: z\r\n" * 100), (b"X: ", b"x" * 1000)])
async def test_trailers_that_never_end_are_too_large(start: bytes, piece: bytes) -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(chunked()[:-2])
        with contextlib.suppress(ConnectionError):
            await connection.send(start)
            for _ in range(8 * MAX_REQUEST_HEAD_BYTES // len(piece)):
                await connection.send(piece)
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")


async def test_an_extension_of_a_chunk_that_never_ends_is_too_large() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", None, **modern_headers("echo"), **CHUNKED) + b"5;x=")
        with contextlib.suppress(ConnectionError):
            for _ in range(4 * MAX_REQUEST_HEAD_BYTES // 1000):
                await connection.send(b"x" * 1000)
        assert (await connection.closed()).startswith(b"HTTP/1.1 431 ")


async def test_chunks_of_one_byte_may_be_many() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        body = json.dumps(modern("echo", {"text": "x" * 20_000})).encode()
        head = written("POST", "/mcp", None, **modern_headers("echo"), **CHUNKED)
        await connection.send(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert (await connection.response()).status == 200


# What they hold together


def test_large_bodies_share_a_budget_and_small_ones_always_come_in() -> None:
    budget = BodyBudget(1_000_000)
    assert budget.reserve(900_000)
    assert not budget.reserve(SMALL_BODY + 100_000)
    assert budget.reserve(SMALL_BODY) and budget.reserve(SMALL_BODY)
    assert not budget.reserve(1, held=SMALL_BODY), "a small body that grows is a large one"
    budget.release(900_000)
    assert budget.reserve(1, held=SMALL_BODY)


def test_a_principal_leaves_as_much_of_the_budget_as_it_holds() -> None:
    budget = BodyBudget(1_000_000)
    assert budget.reserve(300_000, principal="greedy") and budget.reserve(200_000, principal="greedy")
    assert not budget.reserve(100_000, principal="greedy")
    assert budget.reserve(SMALL_BODY, principal="greedy"), "small ones always come in"
    budget.release(SMALL_BODY, "greedy")
    assert budget.reserve(250_000, principal="second")
    assert not budget.reserve(100_000, principal="second")
    assert budget.reserve(250_000, principal="third"), "the first body comes in while there is room"
    assert not budget.reserve(100_000, principal="fourth")
    budget.drop(300_000, 0, "greedy")
    budget.release(250_000, "third")
    assert budget.reserve(100_000, principal="greedy")
    for size, principal in ((300_000, "greedy"), (250_000, "second")):
        budget.release(size, principal)
    assert budget.reserved == 0 and budget._held == {}


def test_the_only_user_and_a_body_of_any_size_have_the_whole_budget() -> None:
    budget = BodyBudget(1_000_000)
    assert budget.reserve(500_000) and budget.reserve(500_000)
    budget.release(1_000_000)
    assert budget.reserve(400_000, principal="a")
    assert budget.reserve(600_000, held=400_000, principal="a"), "one body may grow to the limit"


@pytest.mark.requirement("http.bodies")
async def test_a_large_body_beyond_the_budget_is_told_to_come_later() -> None:
    async with echoing(Limits(message_bytes=1_000_000, body_bytes_in_all=1_500_000)) as rig:
        first = await upload(rig, 1_000_000)
        await wait_until(lambda: reserved(rig) == 1_000_000)
        refused = await (await upload(rig, 900_000)).response()
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "maxPendingBodyBytes" in refused.error["message"]
        small = await rig.client.request(body=modern("echo", {"text": "x" * 60_000}), **modern_headers("echo"))
        assert small.status == 200
        first.close()
        await wait_until(lambda: reserved(rig) == 0)
        large = await rig.client.request(body=modern("echo", {"text": "x" * 900_000}), **modern_headers("echo"))
        assert large.status == 200


async def test_chunked_bodies_reserve_as_they_come() -> None:
    async with echoing(Limits(message_bytes=1_000_000, body_bytes_in_all=1_000_000)) as rig:
        connections = []
        chunk = b"%x\r\n%b\r\n" % (600_000, b"x" * 600_000)
        for count in (1, 2):
            connection = await rig.client.connect()
            await connection.send(written("POST", "/mcp", None, **modern_headers("echo"), **CHUNKED) + chunk)
            connections.append(connection)
            if count == 1:
                await wait_until(lambda: reserved(rig) == 600_000)
        refused = await connections[1].response()
        assert refused.status == 503
        connections[0].close()
        await wait_until(lambda: reserved(rig) == 0)


async def test_a_queued_request_keeps_its_reservation() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        body = json.dumps(modern("echo", {"text": "x" * 100_000}, id=2)).encode()
        await connection.send(written("POST", "/mcp", body, **modern_headers("echo")))
        await wait_until(lambda: reserved(rig) == len(body))
        rig.last.answer(b"1", {})
        assert [(await connection.response()).json["id"] for _ in range(2)] == [1, 2]
        assert reserved(rig) == 0


async def test_a_queued_request_releases_its_reservation_when_its_connection_ends() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", modern("later"), **modern_headers("later")))
        await rig.under_way()
        await connection.send(written("POST", "/mcp", modern("echo", {"text": "x" * 9000}), **modern_headers("echo")))
        await wait_until(lambda: reserved(rig) > 9000)
    assert reserved(rig) == 0


async def test_a_client_that_expects_100_continue_is_not_told_to_send_beyond_the_budget() -> None:
    async with echoing(Limits(message_bytes=1_000_000, body_bytes_in_all=1_000_000)) as rig:
        await upload(rig, 900_000)
        await wait_until(lambda: reserved(rig) == 900_000)
        connection = await rig.client.connect()
        head = written("POST", "/mcp", None, **modern_headers("echo"), content_length="200000", expect="100-continue")
        await connection.send(head)
        assert (await connection.response()).status == 503


async def test_memory_is_given_back_when_bodies_go(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[object] = []
    monkeypatch.setattr("mcp_workbench.engine.transport.http.server.body_budget.trim_soon", given_back.append)
    async with echoing() as rig:
        uploads = [await upload(rig, 2_000_000) for _ in range(4)]
        for connection in uploads:
            await connection.send(b"x" * 1_500_000)
        await wait_until(lambda: reserved(rig) == 8_000_000)
        for connection in uploads:
            connection.close()
        await wait_until(lambda: reserved(rig) == 0)
        assert given_back, "together they were more than is kept"


# How long they may take


class _Received:
    """Takes every request (`RequestReceiver`)."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


async def test_a_body_that_was_fast_and_becomes_slow_times_out() -> None:
    async with echoing(Limits(body_seconds=0.1, body_rate=1000)) as rig:
        connection = await upload(rig, 2_000_000)
        await connection.send(b"x" * 1_500_000)
        # By what came at first it would have 25 minutes.
        async with asyncio.timeout(PATIENCE):
            assert (await connection.closed()).startswith(b"HTTP/1.1 408 ")
        assert reserved(rig) == 0


async def test_a_slow_body_times_out() -> None:
    async with echoing(Limits(body_seconds=0.05)) as rig:
        connection = await rig.client.connect()
        await connection.send(ECHO[:-10])
        assert (await connection.closed()).startswith(b"HTTP/1.1 408 ")
        assert not rig.sessions


async def test_a_body_that_comes_steadily_does_not() -> None:
    async with echoing(Limits(body_seconds=0.05, body_rate=10)) as rig:
        connection = await rig.client.connect()
        for start in range(0, len(ECHO), 20):
            await connection.send(ECHO[start : start + 20])
            await asyncio.sleep(0.005)
        assert (await connection.response()).status == 200


async def test_declared_body_beyond_the_limit_is_refused() -> None:
    async with echoing(Limits(message_bytes=1000)) as rig:
        response = await rig.client.request(body=b"x" * 1001, **modern_headers("echo"))
        assert response.status == 413
        assert not rig.sessions


@pytest.mark.parametrize("size", [1001, 200_000])
async def test_a_body_beyond_the_limit_is_refused_as_it_comes(size: int) -> None:
    async with echoing(Limits(message_bytes=1000)) as rig:
        connection = await rig.client.connect()
        head = written("POST", "/mcp", None, **modern_headers("echo"), transfer_encoding="chunked", content_length=None)
        await connection.send(head)
        with contextlib.suppress(ConnectionError):
            for _ in range(0, size, 1001):
                await connection.send(b"3e9\r\n" + b"x" * 1001 + b"\r\n")
        assert (await connection.response()).status == 413
        await connection.closed()


async def test_a_client_that_is_still_sending_gets_to_see_why_it_was_refused() -> None:
    async with echoing(Limits(message_bytes=1000)) as rig:
        connection = await rig.client.connect()
        await connection.send(written("POST", "/mcp", None, content_length="3000000"))
        for _ in range(30):
            await connection.send(b"x" * 100_000)
        response = await connection.response()
        assert (response.status, response.headers["connection"]) == (413, "close")


async def test_a_body_of_exactly_the_limit_comes_in() -> None:
    body = json.dumps(modern("echo")).encode()
    async with echoing(Limits(message_bytes=len(body))) as rig:
        assert (await rig.client.request(body=body, **modern_headers("echo"))).status == 200


async def test_a_client_that_waits_for_the_word_is_told_to_go_on() -> None:
    async with echoing() as rig:
        connection = await rig.client.connect()
        body = json.dumps(modern("echo")).encode()
        data = written("POST", "/mcp", body, **modern_headers("echo"), expect="100-continue")
        await connection.send(data[: -len(body)])
        assert (await connection.head()).status == 100
        await connection.send(body)
        assert (await connection.response()).status == 200
        refused = await rig.client.connect()
        await refused.send(written("POST", "/mcp", None, expect="100-continue", host="evil", content_length="99999999"))
        assert (await refused.response()).status == 403


@pytest.mark.parametrize(("share", "late_in"), [(1.1, None), (0.9, 1)])
async def test_each_window_of_a_body_is_measured_by_itself(share: float, late_in: int | None) -> None:
    limits = Limits(body_seconds=10.0, body_rate=100)
    reader = RequestReader(_Received(), limits, BodyBudget(limits.body_bytes_in_all))
    reader.feed(written("POST", "/mcp", None, **modern_headers("echo"), content_length="100000"))
    reader.feed(b"{")
    now = asyncio.get_running_loop().time()
    late: list[int] = []
    for window in range(1, 4):
        for part in range(1, 5):
            reader.feed(b" " * round(limits.body_rate * limits.body_seconds * share / 4))
            # A look within a window says nothing, however little has come.
            now += limits.body_seconds / 4 + (0.01 if part == 4 else 0.0)
            if reader.is_late(now):
                late.append(window)
    assert late == ([] if late_in is None else [1, 2, 3])
    reader.close()
