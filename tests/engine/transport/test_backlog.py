"""A server that reads more slowly than it is asked: what does not fit is refused, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mcp_workbench.engine.transport import backlog, child, stdio
from tests.engine.transport.rigs import ChildRig, StdioRig

MEBIBYTE = 1024 * 1024


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backlog, child):
        monkeypatch.setattr(module, "MAX_UNSENT_BYTES", 4 * MEBIBYTE)
    monkeypatch.setattr(backlog, "RESERVED_BYTES", MEBIBYTE)
    monkeypatch.setattr(child, "EOF_GRACE", 0.1)


def _request(id: int, size: int = MEBIBYTE) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"id":99,"x":"%b"}}' % (id, b"x" * size)


def _ids(messages: list[bytes]) -> list[int]:
    return [json.loads(message)["id"] for message in messages]


async def test_requests_that_do_not_fit_are_refused_and_the_server_gets_the_others(tmp_path: Path) -> None:
    async with ChildRig(tmp_path).deaf_until_told() as (link, recorder, tell):
        for number in range(8):
            link.send(_request(number))
        await recorder.wait(lambda: len(recorder.failed) == 5)
        assert [int(id) for id, _ in recorder.failed] == [3, 4, 5, 6, 7]
        error = recorder.failed[0][1]
        assert "bytes of requests left to read" in error.message and "does not fit" in error.message
        assert link.unsent_bytes <= 4 * MEBIBYTE
        tell()
        assert _ids(await recorder.wait_messages(3)) == [0, 1, 2]
        link.send(_request(100))
        assert _ids(await recorder.wait_messages(4)) == [0, 1, 2, 100]
        assert recorder.closed == []


async def test_small_messages_pass_beside_large_ones_up_to_a_bound_of_their_own(tmp_path: Path) -> None:
    async with ChildRig(tmp_path).deaf_until_told() as (link, recorder, tell):
        for number in range(4):
            link.send(_request(number))
        link.send(_request(10, 100))
        small = [_request(number, 60_000) for number in range(20, 60)]
        for message in small:
            link.send(message)
        await recorder.wait(lambda: bool(recorder.failed))
        await asyncio.sleep(0)
        refused = {int(id) for id, _ in recorder.failed}
        assert 3 in refused and 10 not in refused and 20 not in refused and 59 in refused
        assert link.unsent_bytes <= 5 * MEBIBYTE
        tell()
        wanted = {0, 1, 2, 10, *range(20, 60)} - refused
        assert set(_ids(await recorder.wait_messages(len(wanted)))) == wanted
        assert recorder.closed == []


async def test_an_answer_that_does_not_fit_becomes_an_error_and_a_notification_is_dropped(tmp_path: Path) -> None:
    async with ChildRig(tmp_path).deaf_until_told() as (link, recorder, tell):
        for number in range(3):
            link.send(_request(number))
        link.send(b'{"jsonrpc":"2.0","id":"q","result":"%b"}' % (b"x" * 2 * MEBIBYTE))
        link.send(b'{"jsonrpc":"2.0","method":"n","params":{"id":1,"x":"%b"}}' % (b"x" * 2 * MEBIBYTE))
        tell()
        *_, answer = await recorder.wait_messages(4)
        assert json.loads(answer)["id"] == "q" and json.loads(answer)["error"]["code"] == -32603
        assert recorder.failed == [], "the `id` inside a notification is nobody's"


async def test_a_server_that_is_full_and_has_read_nothing_for_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChildRig(tmp_path).deaf() as (link, recorder):
        for number in range(5):
            link.send(_request(number))
            await asyncio.sleep(0)
        assert recorder.closed == [], "it may be busy"
        monkeypatch.setattr(child, "UNREAD_STDIN_TIMEOUT", 0.0)
        link.send(_request(6))
        assert "has not read" in await recorder.wait_closed()
        assert len(recorder.closed) == 1


async def test_a_server_that_reads_is_not_stopped_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made room while we were not looking."""
    async with ChildRig(tmp_path).deaf_until_told() as (link, recorder, tell):
        for number in range(5):
            link.send(_request(number))
        await recorder.wait(lambda: len(recorder.failed) == 2)
        before = link.unsent_bytes
        tell()
        await recorder.wait(lambda: link.unsent_bytes < before)
        # Whatever time has passed, it has passed since the server read for the last time.
        monkeypatch.setattr(child, "UNREAD_STDIN_TIMEOUT", 30.0)
        link.send(_request(7, 5 * MEBIBYTE))
        await recorder.wait(lambda: len(recorder.failed) == 3)
        assert recorder.closed == []


@pytest.fixture
def _little_room_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "PAUSE_ABOVE", 2 * MEBIBYTE)
    monkeypatch.setattr(stdio, "DROP_ABOVE", 4 * MEBIBYTE)
    monkeypatch.setattr(stdio, "CLIENT_READ_TIMEOUT", 0.05)


def _answer(id: int) -> tuple[bytes, ...]:
    return b'{"jsonrpc":"2.0","id":%d,"result":' % id, b'{"id":99,"x":"%b"}' % (b"x" * MEBIBYTE), b"}"


@pytest.mark.usefixtures("_little_room_for_answers")
async def test_a_client_that_never_reads_is_disconnected_at_a_bound() -> None:
    async with StdioRig().deaf() as (link, recorder):
        for number in range(8):
            link.send(*_answer(number))
            await asyncio.sleep(0)
        assert link.unsent_bytes < 5 * MEBIBYTE
        assert "has not read" in await recorder.wait_closed()
        assert len(recorder.closed) == 1


@pytest.mark.usefixtures("_little_room_for_answers")
async def test_reading_client_gets_every_answer_and_an_error_for_oversized_ones() -> None:
    received = bytearray()
    async with StdioRig().reading(received) as (link, recorder):
        for number in range(8):
            link.send(*_answer(number))
        await recorder.wait(lambda: received.count(b"\n") == 8)
        answers = [json.loads(message) for message in received.splitlines()]
        assert [each["id"] for each in answers] == list(range(8))
        assert ["result" in each for each in answers] == [True] * 3 + [False] * 5
        assert "does not fit" in answers[-1]["error"]["message"]
        link.send(*_answer(8))
        await recorder.wait(lambda: received.count(b"\n") == 9)
        assert recorder.closed == []
