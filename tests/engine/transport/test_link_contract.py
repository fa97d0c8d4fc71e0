"""What every link promises, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from tests.engine.transport.rigs import ChildRig, FrontEndRig, Rig, StdioRig
from tests.support.processes import open_descriptors

MEBIBYTE = 1024 * 1024


@pytest.fixture(params=["child", "stdio", "front end"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    if request.param == "child":
        return ChildRig(tmp_path)
    return StdioRig() if request.param == "stdio" else FrontEndRig()


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """How patient we are with a process that does not end is not the subject."""
    monkeypatch.setattr("mcp_workbench.engine.transport.child.EOF_GRACE", 0.1)


@pytest.fixture(autouse=True)
def _no_descriptor_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors().keys() - before.keys() == set()


async def test_messages_arrive_whole_and_in_order(rig: Rig) -> None:
    async with rig.echoing() as (link, recorder):
        expected = [b'{"id":%d,"text":"%b"}' % (number, b"x" * (number % 97)) for number in range(2000)]
        for message in expected:
            link.send(message)
        assert await recorder.wait_messages(len(expected)) == expected
        assert recorder.closed == []


async def test_a_message_in_parts_is_one_message(rig: Rig) -> None:
    async with rig.echoing() as (link, recorder):
        link.send(b'{"id":1,"result":', Raw(b'{"a":1}'), b"}")
        link.send(b"{}")
        assert await recorder.wait_messages(2) == [b'{"id":1,"result":{"a":1}}', b"{}"]


async def test_large_messages_pass_between_small_ones(rig: Rig) -> None:
    async with rig.echoing() as (link, recorder):
        large = b'"' + b"abcde" * MEBIBYTE + b'"'
        for message in (b"1", large, b"2"):
            link.send(message)
        received = await recorder.wait_messages(3)
        assert [len(message) for message in received] == [1, len(large), 1]
        assert received[1] == large
        assert link.unsent_bytes == 0


async def test_a_message_beyond_the_limit_is_reported_and_the_next_one_arrives(rig: Rig) -> None:
    limit = 100_000
    async with rig.echoing(limit) as (link, recorder):
        link.send(b'{"id":7,"result":"', b"x" * 3 * MEBIBYTE, b'"}')
        link.send(b"y" * limit)
        link.send(b"next")
        assert await recorder.wait_messages(2) == [b"y" * limit, b"next"]
        (remains,) = recorder.oversized
        assert remains.size == 3 * MEBIBYTE + 20
        assert remains.head.startswith(b'{"id":7,')


async def test_a_message_beyond_the_limit_at_the_very_end_is_reported(rig: Rig) -> None:
    async with rig.speaking(b"first\n" + b"x" * 200_000, limit=100_000) as (_, recorder):
        await recorder.wait_closed()
        assert recorder.messages == [b"first"]
        assert [remains.size for remains in recorder.oversized] == [200_000]


async def test_the_end_of_the_peer_is_reported_once_after_all_it_said(rig: Rig) -> None:
    async with rig.speaking(b"one\ntwo\r\nthree, unfinished") as (_, recorder):
        assert await recorder.wait_closed()
        assert recorder.messages == [b"one", b"two\r", b"three, unfinished"]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(recorder.closed) == 1


async def test_sending_to_a_peer_that_is_gone_never_raises_and_tells_nothing_twice(rig: Rig) -> None:
    async with rig.speaking(b"") as (link, recorder):
        await recorder.wait_closed()
        for _ in range(3):
            link.send(b"x" * MEBIBYTE)
            await asyncio.sleep(0.01)
        assert len(recorder.closed) == 1


async def test_a_peer_that_goes_while_much_is_unsent_is_reported_once(rig: Rig) -> None:
    async with rig.speaking(b"bye\n") as (link, recorder):
        for _ in range(20):
            link.send(b"x" * MEBIBYTE)
        await recorder.wait_closed()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(recorder.closed) == 1


async def test_unsent_bytes_grow_without_blocking_while_the_peer_does_not_read(rig: Rig) -> None:
    async with rig.deaf() as (link, recorder):
        assert link.unsent_bytes == 0
        link.send(b"x" * 4 * MEBIBYTE)
        await asyncio.sleep(0)
        held = link.unsent_bytes
        assert held > 3 * MEBIBYTE
        link.send(b"y" * MEBIBYTE)
        assert link.unsent_bytes == held + MEBIBYTE + 1
        assert recorder.closed == []
