"""A workbench that dies or hangs at a bad moment costs what it was asked, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_workbench.sharing.front import copying as module
from mcp_workbench.sharing.front.copying import CLIENT_GONE, DIED, HANGS, LARGE_READ, MAX_HELD_LINE_BYTES, Copying
from tests.support.processes import wait_until

HEAD = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"'
ID_LAST_HEAD = b'{"method":"tools/call","params":{"x":"'
TAIL = b'"}}\n'
ID_LAST_TAIL = b'"},"jsonrpc":"2.0","id":7}\n'
NEXT = b'{"jsonrpc":"2.0","id":8,"method":"ping"}\n'
# The first piece of a long line is at most this long.
LONGEST_FIRST = MAX_HELD_LINE_BYTES + LARGE_READ
PATIENCE = 30.0


class Rig:
    """A client on two pipes, and a workbench for each run."""

    def __init__(self) -> None:
        self.source, self.client_out = os.pipe()
        self.client_in, self.target = os.pipe()
        self.copying = Copying(self.source, self.target)
        self.threads: list[threading.Thread] = []

    def beside(self, action: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=action, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.client_out, view) :]

    def told(self) -> list[Any]:
        """What the client was told, as far as it was written."""
        os.set_blocking(self.client_in, False)
        try:
            return [json.loads(line) for line in os.read(self.client_in, 1 << 20).splitlines()]
        except BlockingIOError:
            return []

    def run_until_it_dies(self, taken: int) -> None:
        """A workbench takes so much of what the client writes, lets the rest wait, and dies."""
        ours, theirs = workbench()

        def die() -> None:
            read_exactly(theirs, taken)
            wait_until(lambda: bool(self.copying._down.waiting), PATIENCE, "something that waits")
            theirs.close()

        self.beside(die)
        assert self.copying.run(ours) is DIED
        self.copying.fail_requests(DIED)

    def run_to_the_end(self) -> bytes:
        """What the next workbench is sent until the client goes."""
        ours, theirs = workbench()
        got: list[bytes] = []

        def serve() -> None:
            while data := theirs.recv(1 << 20):
                got.append(data)
            theirs.close()

        served = self.beside(serve)
        assert self.copying.run(ours) is CLIENT_GONE
        served.join(PATIENCE)
        return b"".join(got)

    def run_to_the_end_of(self, client_out: int) -> bytes:
        """The same, once all that the client writes meanwhile is written, and it goes."""

        def go() -> None:
            for thread in self.threads[:-1]:
                if thread is not threading.current_thread():
                    thread.join(PATIENCE)
            os.close(client_out)

        self.beside(go)
        return self.run_to_the_end()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for thread in rig.threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for descriptor in (rig.source, rig.client_in, rig.target):
        os.close(descriptor)


def workbench() -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    theirs.settimeout(PATIENCE)
    return ours.detach(), theirs


def read_exactly(connection: socket.socket, count: int) -> None:
    while count:
        data = connection.recv(min(count, 1 << 16))
        assert data
        count -= len(data)


@pytest.mark.parametrize(("head", "tail"), [(HEAD, TAIL), (ID_LAST_HEAD, ID_LAST_TAIL)], ids=["id first", "id last"])
def test_a_line_that_died_with_a_workbench_does_not_reach_the_next_one(rig: Rig, head: bytes, tail: bytes) -> None:
    dead = threading.Event()

    def write() -> None:
        rig.write(head + b"a" * 3 * LONGEST_FIRST)
        dead.wait(PATIENCE)
        rig.write(tail + NEXT)
        os.close(rig.client_out)

    rig.beside(write)
    rig.run_until_it_dies(LONGEST_FIRST)
    dead.set()
    assert rig.run_to_the_end() == NEXT
    (failed,) = rig.told()
    assert failed["id"] == 7 and failed["error"]["message"].startswith(DIED)


def test_line_with_a_pending_end_is_omitted_and_later_lines_are_not(rig: Rig) -> None:
    def write() -> None:
        rig.write(HEAD + b"a" * 2 * LONGEST_FIRST + TAIL + NEXT * 5000)
        os.close(rig.client_out)

    rig.beside(write)
    rig.run_until_it_dies(LONGEST_FIRST)
    assert rig.run_to_the_end() == NEXT * 5000
    assert [each["id"] for each in rig.told()] == [7]


def test_a_line_that_waits_from_its_beginning_goes_to_the_next_workbench(rig: Rig) -> None:
    line = HEAD + b"a" * 2 * LONGEST_FIRST + TAIL

    def write() -> None:
        rig.write(line + NEXT)
        os.close(rig.client_out)

    rig.beside(write)
    rig.run_until_it_dies(1)
    assert rig.run_to_the_end() == line + NEXT
    assert rig.told() == []


@pytest.mark.parametrize(("head", "tail"), [(HEAD, TAIL), (ID_LAST_HEAD, ID_LAST_TAIL)], ids=["id first", "id last"])
def test_serving_alone_starts_with_whole_lines(rig: Rig, head: bytes, tail: bytes) -> None:
    rig.beside(lambda: rig.write(head + b"a" * 3 * LONGEST_FIRST + tail + NEXT))
    rig.run_until_it_dies(LONGEST_FIRST)
    handover = rig.copying.handover()
    assert handover.unread == NEXT
    (failed,) = map(json.loads, handover.unsent.splitlines())
    assert failed["id"] == 7 and failed["error"]["message"].startswith(DIED)
    os.close(rig.client_out)


def test_a_client_that_stops_in_the_middle_of_a_line_is_handed_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST_OF_LINE_TIMEOUT", 1.0)
    rig.beside(lambda: rig.write(HEAD + b"a" * 3 * LONGEST_FIRST))
    rig.run_until_it_dies(LONGEST_FIRST)
    handover = rig.copying.handover()
    assert handover.unread == b""
    assert [json.loads(line)["id"] for line in handover.unsent.splitlines()] == [7]
    os.close(rig.client_out)


def test_a_note_that_cannot_be_written_to_stderr_ends_nothing(rig: Rig) -> None:
    ours, theirs = workbench()
    unread, closed = os.pipe()
    os.close(unread)
    stderr = os.dup(2)
    os.dup2(closed, 2)
    try:
        theirs.sendall(b"\x01note something\n" + b'{"jsonrpc":"2.0","method":"x"}\n')
        theirs.close()
        end = rig.copying.run(ours)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(closed)
    assert end is DIED
    assert [each["method"] for each in rig.told()] == ["x"]
    os.close(rig.client_out)


def test_a_workbench_that_hangs_is_noticed_while_the_client_keeps_sending(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_TIMEOUT", 0.2)
    ours, theirs = socket.socketpair()
    ended = threading.Event()
    notification = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'

    def send() -> None:
        rig.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n')
        # Few enough to fit into what nobody reads.
        for _ in range(100):
            if ended.wait(0.05):
                break
            rig.write(notification)
        os.close(rig.client_out)

    rig.beside(send)
    end = rig.copying.run(ours.detach())
    ended.set()
    assert end is HANGS
    theirs.close()


def test_a_workbench_that_answers_pings_does_not_hang(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_TIMEOUT", 0.5)
    ours, theirs = workbench()

    def serve() -> None:
        pings, got = 0, b""
        while pings < 3:
            got += theirs.recv(4096)
            while b"\x01ping\n" in got:
                got = got.replace(b"\x01ping\n", b"", 1)
                pings += 1
                theirs.sendall(b"\x01pong\n")
        theirs.close()

    rig.beside(serve)
    rig.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n')
    assert rig.copying.run(ours) is DIED
    os.close(rig.client_out)


def test_a_failure_is_reported_between_two_lines_of_the_workbench(rig: Rig) -> None:
    rig.beside(lambda: rig.write(HEAD + b"a" * 3 * LONGEST_FIRST + TAIL))
    rig.run_until_it_dies(LONGEST_FIRST)
    # Longer than the client's pipe, and than what is held back: it goes out in pieces, and the first one has to wait.
    line = b'{"jsonrpc":"2.0","method":"x","params":{"x":"' + b"b" * 3 * LONGEST_FIRST + b'"}}\n'
    ours, theirs = workbench()
    got: list[bytes] = []

    def serve() -> None:
        theirs.sendall(line)
        theirs.sendall(line)
        theirs.shutdown(socket.SHUT_WR)

    def take() -> None:
        while data := os.read(rig.client_in, 1 << 16):
            got.append(data)
            if b"".join(got[-2:]).endswith(b"the end\n"):
                break

    rig.beside(serve)
    taking = rig.beside(take)
    assert rig.copying.run(ours) is DIED
    rig.copying.fail_requests(DIED)
    unsent = rig.copying.handover().unsent
    os.set_blocking(rig.target, True)
    os.write(rig.target, unsent + b"the end\n")
    taking.join(PATIENCE)
    theirs.close()
    *lines, last = b"".join(got).splitlines(keepends=True)
    assert last == b"the end\n"
    failed = [each for each in lines if each != line]
    assert len(lines) == 3 and [json.loads(each)["id"] for each in failed] == [7]
    os.close(rig.client_out)


def test_a_workbench_that_hangs_in_the_middle_of_a_long_line_is_noticed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_TIMEOUT", 0.2)
    ours, theirs = workbench()
    rig.beside(lambda: rig.write(NEXT + HEAD + b"a" * 3 * LONGEST_FIRST + TAIL))
    assert rig.copying.run(ours) is HANGS
    rig.copying.fail_requests(HANGS)
    theirs.close()
    assert NEXT not in rig.run_to_the_end_of(rig.client_out)


def test_one_that_says_that_others_go_first_does_not_hang(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_TIMEOUT", 0.5)
    ours, theirs = workbench()

    def serve() -> None:
        for _ in range(6):
            threading.Event().wait(0.25)
            theirs.sendall(b"\x01held\n")
        theirs.close()

    rig.beside(lambda: rig.write(NEXT + HEAD + b"a" * 3 * LONGEST_FIRST + TAIL))
    rig.beside(serve)
    assert rig.copying.run(ours) is DIED
    rig.copying.fail_requests(DIED)
    rig.run_to_the_end_of(rig.client_out)


def test_a_signal_ends_an_idle_front_end_of_a_workbench_that_hangs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_ANSWERS_TIMEOUT", 0.05)
    ours, theirs = workbench()
    rig.copying.signalled, wake = os.pipe()

    def signal() -> None:
        wait_until(lambda: rig.copying._last_seen > 0, PATIENCE, "the loop")
        # As a handler does while the loop waits: nothing that is watched becomes ready by it.
        rig.copying.begin_to_end()
        os.write(wake, b"x")

    rig.beside(signal)
    assert rig.copying.run(ours) is CLIENT_GONE
    for descriptor in (rig.copying.signalled, wake, rig.client_out):
        os.close(descriptor)
    theirs.close()


def test_an_answer_that_waits_for_the_client_to_read_is_an_answer(rig: Rig) -> None:
    ours, theirs = workbench()
    count = 24
    rig.write(b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call"}\n' % id for id in range(count)))

    def serve() -> None:
        read_exactly(theirs, 1)
        # More than the pipe to the client holds, in pieces of whole lines.
        for id in range(count):
            theirs.sendall(b'{"jsonrpc":"2.0","id":%d,"result":"%b"}\n' % (id, b"x" * 4000))
        wait_until(lambda: bool(rig.copying._up.waiting), PATIENCE, "an answer that waits")
        theirs.close()

    def take() -> None:
        wait_until(lambda: theirs.fileno() < 0, PATIENCE, "the end of the workbench")
        while len(got) < count:
            got.append(json.loads(lines.readline()))

    got: list[dict[str, Any]] = []
    lines = os.fdopen(os.dup(rig.client_in), "rb")
    rig.beside(serve)
    taking = rig.beside(take)
    assert rig.copying.run(ours) is DIED
    rig.copying.fail_requests(DIED)
    taking.join(PATIENCE)
    lines.close()
    assert [each["id"] for each in got if "result" in each] == list(range(count))
    assert rig.told() == []
    os.close(rig.client_out)


def test_a_line_that_was_written_up_to_its_end_is_not_sent_again(rig: Rig) -> None:
    """A workbench takes what ends with the connection for a message."""
    line = HEAD + TAIL
    rig.copying._down.keep(line + NEXT, len(line) - 1)
    rig.copying.fail_requests(DIED)
    assert rig.run_to_the_end_of(rig.client_out) == NEXT
    (failed,) = rig.told()
    assert failed["id"] == 7 and failed["error"]["message"].startswith(DIED)
