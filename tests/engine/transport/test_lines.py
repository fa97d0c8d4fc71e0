"""Lines on their way to a receiver: long ones are read in a thread, and nothing overtakes them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.jsonrpc import large_messages
from mcp_workbench.engine.jsonrpc.framing import LongLine, Oversized
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Envelope, Malformed
from mcp_workbench.engine.transport import child, lines
from mcp_workbench.engine.transport.child import ChildLink, spawn
from mcp_workbench.engine.transport.lines import LineFeed
from mcp_workbench.engine.transport.pipes import PipeReader
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.write_batch import WriteBatch
from tests.engine.transport.rigs import Recorder
from tests.support.processes import available

LONG = b'{"jsonrpc":"2.0","id":1,"result":{"content":[%b{}]}}' % (b"{}," * 100)


class Plain:
    """Takes lines as they are."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.closed = asyncio.Event()

    def on_message(self, line: bytes) -> None:
        self.came.append(line)

    def on_oversized(self, remains: Oversized) -> None:
        self.came.append(remains.size)

    def on_request_failed(self, id: bytes, error: object) -> None:
        raise AssertionError(id)

    def on_closed(self, reason: str) -> None:
        self.closed.set()


class Reading(Plain):
    """Takes messages that have been read."""

    def on_read_message(self, line: bytes, message: Envelope | Malformed) -> None:
        self.came.append((line, message))


@pytest.fixture(autouse=True)
def _short_lines_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONG_LINE", 100)


async def test_a_long_line_is_read_aside_and_nothing_overtakes_it() -> None:
    receiver = Reading()
    feed = LineFeed(1 << 20, receiver, WriteBatch())
    assert feed.feed(b"short\n" + LONG[:50]) is None
    assert receiver.came == [b"short"]
    reading = feed.feed(LONG[50:] + b"\nbehind it\nand")
    assert reading is not None and receiver.came == [b"short"]
    await reading
    _, (line, message), behind = receiver.came
    assert (line, behind) == (LONG, b"behind it")
    assert isinstance(message, Envelope) and isinstance(message.id, Raw) and bytes(message.id) == b"1"
    assert feed.feed(b" so on\n") is None and receiver.came[-1] == b"and so on"


class Examining(Reading):
    """Looks through messages."""

    def __init__(self) -> None:
        super().__init__()
        self.examined: list[tuple[bytes, int]] = []

    def examine(self, line: bytes) -> None:
        self.examined.append((line, threading.get_ident()))


async def test_a_long_line_is_examined_in_a_thread_before_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONG_EXAMINED_LINE", 50)
    receiver = Examining()
    feed = LineFeed(1 << 20, receiver, WriteBatch())
    short, medium = b'{"a":1}', b'{"b":"%b"}' % (b"x" * 60)
    for line in (short, medium, LONG):
        feed.feed(line[:20])
        reading = feed.feed(line[20:] + b"\n")
        assert (reading is None) == (line is short)
        if reading is not None:
            await reading
    assert [each for each, _ in receiver.examined] == [medium, LONG]
    assert threading.get_ident() not in [thread for _, thread in receiver.examined]
    # The very object, so that it is recognised.
    assert [came[0] for came in receiver.came[1:]] == [each for each, _ in receiver.examined]
    assert receiver.came[-1][0] is receiver.examined[-1][0]


@pytest.mark.parametrize("receiver", [Plain, Reading])
async def test_an_unreadable_line_is_reported_like_any_other(receiver: type[Plain]) -> None:
    taker = receiver()
    feed = LineFeed(1 << 20, taker, WriteBatch())
    feed.feed(LONG[:60])
    reading = feed.feed(LONG[60:-3] + b"\n")
    assert reading is not None
    await reading
    (came,) = taker.came
    if receiver is Plain:
        assert came == LONG[:-3]
    else:
        assert isinstance(came, tuple) and isinstance(came[1], Malformed) and came[1].id == b"1"


@pytest.mark.parametrize(
    ("error", "reason"), [(MemoryError(), "there is not enough memory"), (KeyError("x"), "internal error; see the log")]
)
@pytest.mark.parametrize("where", ["join", "read_large"])
async def test_a_request_whose_reading_fails_is_answered_and_later_ones_are_read(
    error: Exception, reason: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(LongLine if where == "join" else large_messages, where, fail)
    receiver = Reading()
    feed = LineFeed(1 << 20, receiver, WriteBatch())
    feed.feed(LONG[:60])
    reading = feed.feed(LONG[60:] + b"\nlater\n")
    assert reading is not None
    await reading
    (_, malformed), later = receiver.came
    assert (malformed.id, malformed.code, str(malformed)) == (b"1", INTERNAL_ERROR, reason)
    assert later == b"later"


async def test_it_is_joined_and_read_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    join = LongLine.join

    def watched(line: LongLine) -> bytes:
        threads.append(threading.get_ident())
        return join(line)

    monkeypatch.setattr(LongLine, "join", watched)
    feed = LineFeed(1 << 20, Reading(), WriteBatch())
    feed.feed(LONG[:60])
    reading = feed.feed(LONG[60:] + b"\n")
    assert reading is not None
    await reading
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_a_line_beyond_the_limit_is_dropped_as_ever() -> None:
    receiver = Reading()
    feed = LineFeed(200, receiver, WriteBatch())
    feed.feed(LONG[:150])
    assert feed.feed(LONG[150:] + b"\nnext\n") is None
    assert receiver.came == [b"next", len(LONG)]


@pytest.mark.parametrize(("data", "is_sole"), [(b"one\n", True), (b"one\ntwo\n", False), (b"one\ntw", False)])
async def test_what_a_single_line_leads_to_is_written_at_once(data: bytes, is_sole: bool) -> None:
    batch, seen = WriteBatch(), list[bool]()

    class Seeing(Plain):
        def on_message(self, line: bytes) -> None:
            seen.append(batch.is_sole)

    feed = LineFeed(1 << 20, Seeing(), batch)
    # The first bytes may be a byte order mark.
    batch.run(feed.feed, b"first\n")
    seen.clear()
    batch.run(feed.feed, data)
    assert set(seen) == {is_sole}
    assert not batch.is_sole


async def test_nothing_is_read_from_a_pipe_while_a_line_is_read_aside() -> None:
    handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    came: list[bytes] = []
    ended = asyncio.Event()

    def take(data: bytes) -> asyncio.Future[None] | None:
        came.append(data)
        return handled if data == b"long" else None

    read_end, write_end = os.pipe()
    reader = PipeReader(WriteBatch(), read_end, take, lambda error: ended.set())
    os.write(write_end, b"long")
    while not came:
        await asyncio.sleep(0)
    os.write(write_end, b"behind")
    # Whoever pauses and goes on meanwhile does not change that.
    reader.pause()
    reader.resume()
    for _ in range(50):
        await asyncio.sleep(0)
    assert came == [b"long"] and reader.is_busy
    handled.set_result(None)
    while len(came) < 2:
        await asyncio.sleep(0)
    assert came == [b"long", b"behind"] and not reader.is_busy
    os.close(write_end)
    await ended.wait()


async def test_failure_in_a_handler_ends_the_reader_with_its_reason() -> None:
    handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    errors: list[Exception | None] = []
    read_end, write_end = os.pipe()
    PipeReader(WriteBatch(), read_end, lambda data: handled, errors.append)
    os.write(write_end, b"long")
    for _ in range(50):
        await asyncio.sleep(0)
    failure = MemoryError()
    handled.set_exception(failure)
    while not errors:
        await asyncio.sleep(0)
    assert errors == [failure]
    os.close(write_end)


@pytest.mark.skipif(not available(), reason="starts a process")
@pytest.mark.processes
async def test_a_server_that_ends_with_a_long_answer_has_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the answer is read aside: the end of the process is told behind it."""
    release, looks = threading.Event(), 0
    join, close_when_read = LongLine.join, ChildLink._close_when_read

    def slowly(line: LongLine) -> bytes:
        release.wait(20)
        return join(line)

    def counted(link: ChildLink, reason: str) -> None:
        nonlocal looks
        looks += 1
        close_when_read(link, reason)

    monkeypatch.setattr(LongLine, "join", slowly)
    monkeypatch.setattr(ChildLink, "_close_when_read", counted)
    monkeypatch.setattr(child, "LAST_OUTPUT_GRACE", 0.01)
    table, recorder = ProcessTable(), Recorder()
    # More than one read brings.
    command = (sys.executable, ("-c", "print('x' * 600_000)"), {**os.environ}, None)
    link = spawn(*command, table=table, batch=WriteBatch(), receiver=recorder, limit=1 << 20)
    try:
        await recorder.wait(lambda: looks >= 3)
        assert not recorder.closed and not recorder.messages
        release.set()
        assert await recorder.wait_closed() == "the server exited with status 0"
        assert recorder.messages == [b"x" * 600_000]
    finally:
        release.set()
        await link.stop()
        table.close()
