"""Reading and writing descriptors: on real pipes, with peers that are slow, gone, or not pipes at all."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_workbench.engine.transport import pipes
from mcp_workbench.engine.transport.allocator import KEPT_BYTES
from mcp_workbench.engine.transport.pipes import LARGE_READ, MAX_WRITE_BUFFERS, SMALL_READ, PipeReader, PipeWriter
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW, WriteBatch
from tests.support.processes import open_descriptors

MEBIBYTE = 1024 * 1024


class Replaced:
    """The module `os`, but for these functions."""

    def __init__(self, **functions: object) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> object:
        return self._functions.get(name) or getattr(os, name)


class Pipe:
    """One pipe with our writer at one end and our reader at the other, the reader optional."""

    def __init__(self, *, reading: bool = True, on_drained: Callable[[], object] | None = None) -> None:
        self.batch = WriteBatch()
        self.read_end, self.write_end = os.pipe()
        self.errors: list[Exception] = []
        self.end_errors: list[Exception | None] = []
        self.received = bytearray()
        self.reads = 0
        self.ends = 0
        self.ended = asyncio.Event()
        self.writer = PipeWriter(self.batch, self.write_end, self.errors.append, on_drained)
        self.reader: PipeReader | None = None
        if reading:
            self.start_reading()

    def start_reading(self) -> PipeReader:
        os.set_blocking(self.read_end, False)
        self.reader = PipeReader(self.batch, self.read_end, self._data, self._end)
        return self.reader

    def _data(self, data: bytes) -> None:
        self.reads += 1
        self.received += data

    def _end(self, error: Exception | None) -> None:
        self.ends += 1
        self.end_errors.append(error)
        self.ended.set()

    async def wait_received(self, count: int) -> bytes:
        while len(self.received) < count:
            await asyncio.sleep(0)
        return bytes(self.received)

    async def wait_sent(self) -> None:
        while self.writer.unsent_bytes:
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.writer.close()
        if self.reader is None:
            os.close(self.read_end)
        else:
            await self.ended.wait()


@pytest.fixture(autouse=True)
def _no_descriptor_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of everything that `pipes` writes, call by call."""
    sizes: list[int] = []

    def write(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return os.write(fd, data)

    def writev(fd: int, parts: list[bytes]) -> int:
        sizes.append(sum(map(len, parts)))
        return os.writev(fd, parts)

    monkeypatch.setattr(pipes, "os", Replaced(write=write, writev=writev))
    return sizes


async def test_written_bytes_are_read_and_the_end_once() -> None:
    pipe = Pipe()
    pipe.writer.write(b"one ", Raw(b"two "), b"three")
    assert await pipe.wait_received(13) == b"one two three"
    pipe.writer.close()
    await pipe.ended.wait()
    await asyncio.sleep(0)
    assert pipe.ends == 1
    assert pipe.errors == []


async def test_writes_of_one_loop_iteration_leave_in_one_call(written: list[int]) -> None:
    pipe = Pipe()
    for _ in range(100):
        pipe.writer.write(b"message", b"\n")
    await pipe.wait_received(800)
    assert written == [800]
    await pipe.close()


async def test_a_line_because_of_a_single_message_leaves_at_once_and_further_ones_together(written: list[int]) -> None:
    pipe = Pipe()

    def handle(data: bytes) -> None:
        pipe.batch.is_sole = True
        pipe.writer.write_line((b"first ", b"answer"))
        assert written == [13]
        pipe.writer.write_line((b"second",))
        pipe.writer.write_line((b"third",))
        assert written == [13]

    pipe.batch.run(handle, b"")
    assert written == [13, 13]
    assert not pipe.batch.is_sole
    assert await pipe.wait_received(26) == b"first answer\nsecond\nthird\n"
    await pipe.close()


async def test_a_single_line_waits_behind_what_the_peer_has_not_read() -> None:
    pipe = Pipe(reading=False)
    # More than the pipe holds.
    pipe.writer.write(b"x" * 100_000)
    await asyncio.sleep(0)
    assert pipe.writer.unsent_bytes
    pipe.batch.is_sole = True
    pipe.writer.write_line((b"last",))
    pipe.start_reading()
    assert await pipe.wait_received(100_005) == b"x" * 100_000 + b"last\n"
    await pipe.close()


async def test_a_single_line_overtakes_nothing_that_is_queued() -> None:
    pipe = Pipe()
    pipe.writer.write(b"first\n")
    pipe.batch.is_sole = True
    pipe.writer.write_line((b"second",))
    assert await pipe.wait_received(13) == b"first\nsecond\n"
    await pipe.close()


async def test_the_rest_of_a_single_line_follows_when_the_pipe_has_room() -> None:
    pipe = Pipe(reading=False)
    pipe.batch.is_sole = True
    pipe.writer.write_line((b"x" * 50_000, b"y" * 50_000))
    assert 0 < pipe.writer.unsent_bytes < 100_001
    pipe.start_reading()
    assert await pipe.wait_received(100_001) == b"x" * 50_000 + b"y" * 50_000 + b"\n"
    assert pipe.writer.unsent_bytes == 0
    await pipe.close()


async def test_a_single_line_that_cannot_be_written_is_reported_after_it_was_sent() -> None:
    pipe = Pipe(reading=False)
    os.close(pipe.read_end)
    pipe.batch.is_held = pipe.batch.is_sole = True
    pipe.writer.write_line((b"lost",))
    assert not pipe.errors and pipe.writer.unsent_bytes == 5
    pipe.batch.release()
    assert [type(error) for error in pipe.errors] == [BrokenPipeError]


async def test_everything_that_one_read_makes_us_write_leaves_in_one_call(written: list[int]) -> None:
    """Ten requests that arrive together are answered together."""
    answers = Pipe()
    batch = answers.batch
    read_end, write_end = os.pipe()

    def answer(data: bytes) -> None:
        for line in data.splitlines():
            answers.writer.write(line.upper(), b"\n")

    asked = asyncio.Event()
    reader = PipeReader(batch, read_end, answer, lambda error: asked.set())
    os.write(write_end, b"ask\n" * 10)
    assert await answers.wait_received(40) == b"ASK\n" * 10
    assert written == [40]
    os.close(write_end)
    await asked.wait()
    reader.close()
    await answers.close()


async def test_a_peer_that_does_not_read_holds_up_nothing_and_loses_nothing() -> None:
    pipe = Pipe(reading=False)
    pieces = [bytes([65 + number % 26]) * (MEBIBYTE // 4 + number) for number in range(16)]
    for piece in pieces:
        pipe.writer.write(piece)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    total = sum(map(len, pieces))
    assert 0 < pipe.writer.unsent_bytes < total
    held = pipe.writer.unsent_bytes
    pipe.writer.write(b"more")
    assert pipe.writer.unsent_bytes == held + 4
    pipe.start_reading()
    assert await pipe.wait_received(total + 4) == b"".join(pieces) + b"more"
    assert pipe.writer.unsent_bytes == 0
    await pipe.close()


async def test_draining_is_reported_once_the_peer_has_caught_up() -> None:
    drained = asyncio.Event()
    pipe = Pipe(reading=False, on_drained=drained.set)
    pipe.writer.write(b"short")
    await asyncio.sleep(0)
    assert not drained.is_set(), "nothing had to wait"
    pipe.writer.write(b"x" * MEBIBYTE)
    await asyncio.sleep(0)
    assert not drained.is_set()
    pipe.start_reading()
    await drained.wait()
    assert pipe.writer.unsent_bytes == 0
    await pipe.close()


@pytest.mark.parametrize("size", [10, 200])
async def test_more_pieces_than_one_call_takes_arrive_in_order(size: int) -> None:
    pipe = Pipe()
    pieces = [b"%06d" % number * size for number in range(3 * MAX_WRITE_BUFFERS)]
    for piece in pieces:
        pipe.writer.write(piece)
    assert await pipe.wait_received(len(pieces) * 6 * size) == b"".join(pieces)
    await pipe.close()


async def test_a_large_message_in_views_arrives_whole() -> None:
    pipe = Pipe()
    payload = os.urandom(1024) * 8192  # 8 MiB
    pipe.writer.write(b'{"result":', Raw(payload), b"}\n")
    received = await pipe.wait_received(len(payload) + 12)
    assert received == b'{"result":' + payload + b"}\n"
    await pipe.close()


async def test_no_more_than_a_few_pipes_are_written_in_one_iteration_however_fast_the_peer_reads(
    written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[bool] = []
    pipe = Pipe(on_drained=lambda: drained.append(True))
    taken: list[int] = []

    def writev(fd: int, parts: list[bytes]) -> int:
        # As much as a pipe takes, again and again: the peer has read it meanwhile.
        os.writev(fd, [memoryview(parts[0])[:1000]])
        taken.append(min(sum(map(len, parts)), pipes.PIPE_BYTES))
        return taken[-1]

    monkeypatch.setattr(pipes, "os", Replaced(writev=writev))
    pipe.writer.write(b"{", Raw(bytes(20 * pipes.PIPE_BYTES)), b"}")
    most, before = 0, 0
    while pipe.writer.unsent_bytes > JOIN_BELOW:
        await asyncio.sleep(0)
        most, before = max(most, sum(taken) - before), sum(taken)
    assert most <= 2 * pipes.MAX_WRITTEN_AT_ONCE and len(taken) >= 10
    while pipe.writer.unsent_bytes:
        await asyncio.sleep(0)
    assert drained == [True], "whoever waits for room is told"
    await pipe.close()


async def test_reads_grow_while_a_peer_keeps_them_full() -> None:
    pipe = Pipe(reading=False)
    pipes.widen(pipe.write_end)
    pipe.writer.write(b"x" * 4 * MEBIBYTE)
    await asyncio.sleep(0)
    pipe.start_reading()
    await pipe.wait_received(4 * MEBIBYTE)
    assert pipe.reads < 4 * MEBIBYTE // SMALL_READ
    assert LARGE_READ > SMALL_READ
    await pipe.close()


async def test_a_peer_that_is_gone_is_reported_once_and_later_writes_vanish() -> None:
    pipe = Pipe(reading=False)
    os.close(pipe.read_end)
    pipe.writer.write(b"into the void")
    await pipe.wait_sent()
    pipe.writer.write(b"again")
    await asyncio.sleep(0)
    assert [type(error) for error in pipe.errors] == [BrokenPipeError]
    assert pipe.writer.unsent_bytes == 0
    pipe.writer.close()


async def test_a_peer_that_goes_while_we_wait_for_it_is_reported() -> None:
    pipe = Pipe(reading=False)
    pipe.writer.write(b"x" * MEBIBYTE)
    await asyncio.sleep(0)
    assert pipe.writer.unsent_bytes
    os.close(pipe.read_end)
    await pipe.wait_sent()
    assert [type(error) for error in pipe.errors] == [BrokenPipeError]


async def test_closing_a_writer_drops_unsent_bytes() -> None:
    pipe = Pipe(reading=False)
    pipe.writer.write(b"x" * MEBIBYTE)
    await asyncio.sleep(0)
    pipe.writer.close()
    pipe.writer.close()
    assert pipe.writer.unsent_bytes == 0
    assert pipe.errors == []
    os.close(pipe.read_end)


async def test_a_paused_reader_reads_nothing_until_it_resumes() -> None:
    pipe = Pipe()
    assert pipe.reader is not None
    pipe.reader.pause()
    pipe.reader.pause()
    pipe.writer.write(b"later")
    await pipe.wait_sent()
    for _ in range(5):
        await asyncio.sleep(0)
    assert pipe.received == b""
    pipe.reader.resume()
    pipe.reader.resume()
    assert await pipe.wait_received(5) == b"later"
    await pipe.close()


async def test_a_closed_reader_never_reports_an_end() -> None:
    pipe = Pipe()
    assert pipe.reader is not None
    pipe.reader.close()
    pipe.reader.close()
    pipe.reader.resume()
    pipe.writer.close()
    await asyncio.sleep(0)
    assert pipe.ends == 0


async def test_reader_may_be_closed_by_its_own_delivery() -> None:
    read_end, write_end = os.pipe()
    delivered: list[bytes] = []

    def take(data: bytes) -> None:
        delivered.append(data)
        reader.close()

    reader = PipeReader(WriteBatch(), read_end, take, lambda error: delivered.append(b"end"))
    os.write(write_end, b"data")
    while not delivered:
        await asyncio.sleep(0)
    os.close(write_end)
    await asyncio.sleep(0)
    assert delivered == [b"data"]


async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    """`mcp-workbench serve < requests`: the event loop cannot watch a file."""
    path = tmp_path / "requests"
    content = b"".join(b"line %d\n" % number for number in range(20_000))
    path.write_bytes(content)
    received = bytearray()
    ended = asyncio.Event()
    batch = WriteBatch()
    reader = PipeReader(batch, os.open(path, os.O_RDONLY), received.extend, lambda error: ended.set())
    reader.pause()
    await asyncio.sleep(0)
    assert received == b""
    reader.resume()
    await ended.wait()
    assert received == content


async def test_writes_go_to_a_file_that_cannot_be_watched(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    errors: list[Exception] = []
    writer = PipeWriter(WriteBatch(), os.open(path, os.O_WRONLY | os.O_CREAT), errors.append)
    writer.write(b"x" * 300_000, b"\n")
    await asyncio.sleep(0)
    writer.close()
    assert (path.stat().st_size, errors) == (300_001, [])


async def test_an_error_while_handling_data_ends_the_reader_and_does_not_hold_back_later_writes() -> None:
    pipe = Pipe()
    read_end, write_end = os.pipe()
    ends: list[Exception | None] = []

    def fail(data: bytes) -> None:
        pipe.writer.write(data)
        raise ZeroDivisionError

    PipeReader(pipe.batch, read_end, fail, ends.append)
    os.write(write_end, b"first")
    assert await pipe.wait_received(5) == b"first"
    pipe.writer.write(b"second")
    assert await pipe.wait_received(11) == b"firstsecond"
    assert [type(error) for error in ends] == [ZeroDivisionError]
    os.close(write_end)
    await pipe.close()


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error"), OSError(errno.ENOMEM, "x")])
async def test_an_error_that_lasts_ends_a_reader_with_its_reason_after_one_try(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop calls again as long as there is something to read."""
    tries = 0

    def read(fd: int, size: int) -> bytes:
        nonlocal tries
        tries += 1
        raise error

    monkeypatch.setattr(pipes, "os", Replaced(read=read))
    pipe = Pipe()
    pipe.writer.write(b"unreadable")
    await pipe.ended.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (tries, pipe.end_errors) == (1, [error])
    pipe.writer.close()


async def test_a_descriptor_that_cannot_be_watched_for_want_of_something_ends_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only files need no watching: to read a pipe without would wait for ever, with everything else."""
    pipe = Pipe(reading=False)
    refused = OSError(errno.ENOMEM, "Cannot allocate memory")

    real = asyncio.get_running_loop()

    class Loop:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def add_reader(self, *arguments: object) -> None:
            raise refused

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "get_running_loop", Loop)
        pipe.start_reading()
    await pipe.ended.wait()
    assert pipe.end_errors == [refused]
    pipe.writer.close()


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error")])
async def test_a_write_that_cannot_be_done_is_reported_once_and_the_others_are_sent(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = Pipe(), Pipe()
    good.writer._batch = bad.batch

    def write(fd: int, data: bytes) -> int:
        if fd == bad.write_end:
            raise error
        return os.write(fd, data)

    monkeypatch.setattr(pipes, "os", Replaced(write=write))
    bad.writer.write(b"bad")
    good.writer.write(b"good")
    assert await good.wait_received(4) == b"good"
    assert bad.errors == [error]
    assert bad.writer.unsent_bytes == 0
    await bad.close()
    await good.close()


async def test_a_failing_owner_of_one_writer_does_not_keep_others_from_being_sent() -> None:
    pipe = Pipe()

    def fail(error: Exception) -> None:
        raise ZeroDivisionError

    read_end, write_end = os.pipe()
    os.close(read_end)
    broken = PipeWriter(pipe.batch, write_end, fail)
    broken.write(b"x")
    pipe.writer.write(b"good")
    assert await pipe.wait_received(4) == b"good"
    await pipe.close()


async def test_memory_of_a_large_message_is_returned_however_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message that ends with a full read is not followed by a small one until its peer says something again."""
    asked: list[int] = []
    pipe = Pipe(reading=False)
    monkeypatch.setattr(pipes, "trim_soon", lambda loop: asked.append(len(pipe.received)))
    pipes.widen(pipe.read_end)
    os.set_blocking(pipe.write_end, False)
    reader = pipe.start_reading()
    sent = 0
    while sent < 2 * KEPT_BYTES:
        # As many bytes as one read takes, so that no read is small.
        sent += os.write(pipe.write_end, b"x" * (LARGE_READ if reader._size == LARGE_READ else SMALL_READ))
        await pipe.wait_received(sent)
    assert asked
    assert sent - asked[-1] <= KEPT_BYTES + LARGE_READ
    await pipe.close()


async def test_a_flood_of_small_messages_is_read_in_small_pieces_and_a_large_one_in_large_ones() -> None:
    pieces: list[int] = []
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pipes.widen(writing)
    ended = asyncio.Event()
    reader = PipeReader(WriteBatch(), reading, lambda data: pieces.append(len(data)), lambda error: ended.set())
    flood, large = b'{"small":1}\n' * (4 * SMALL_READ // 12), b"x" * (8 * LARGE_READ) + b"\n"

    def write() -> None:
        for data in (flood, large, 4 * flood):
            view = memoryview(data)
            while view:
                view = view[os.write(writing, view) :]
        os.close(writing)

    await asyncio.gather(asyncio.to_thread(write), ended.wait())
    reader.close()
    assert sum(pieces) == 5 * len(flood) + len(large)
    assert max(pieces[:4]) <= SMALL_READ and max(pieces) > SMALL_READ
    assert max(pieces[-2:]) <= SMALL_READ
