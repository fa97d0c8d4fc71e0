"""Where the bounds of a reader lie, to the byte and the second; and that bytes mean the same however they are split."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.engine.transport.http.server.admission import Refusal
from mcp_workbench.engine.transport.http.server.body_budget import BodyBudget
from mcp_workbench.engine.transport.http.server.limits import (
    LARGE_BODY,
    MAX_REQUEST_HEAD_BYTES,
    MAX_UNUSED_BODY_BYTES,
    SMALL_BODY,
    Limits,
)
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.request_reader import CompleteRequest, RequestReader
from mcp_workbench.engine.transport.pieces import Pieces
from tests.engine.transport.http.server.raw_client import modern, modern_headers, written

CHUNKED: dict[str, Any] = {"transfer_encoding": "chunked", "content_length": None}


class Receiver:
    """Admits every request, unless it is told otherwise, and writes down what it hears (`RequestReceiver`)."""

    def __init__(self) -> None:
        self.takes_body = True
        self.refusal: Refusal | None = None
        self.pending: Any = None
        self.fault: Exception | None = None
        self.on_refused: Callable[[], None] = lambda: None
        self.heads: list[RequestHead] = []
        self.awaited = 0
        self.refusals: list[int] = []
        self.complete: list[CompleteRequest] = []

    def head_arrived(self, head: RequestHead) -> None:
        if self.fault is not None:
            raise self.fault
        head.takes_body, head.refusal, head.pending = self.takes_body, self.refusal, self.pending
        self.heads.append(head)

    def body_awaited(self) -> None:
        self.awaited += 1

    def refused(self, head: RequestHead) -> None:
        assert head.refusal is not None
        self.refusals.append(head.refusal.status)
        self.on_refused()

    def arrived(self, request: CompleteRequest) -> None:
        self.complete.append(request)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body if isinstance(each.body, bytes) else each.body.take() for each in self.complete]


class Reading:
    """A reader, whom it tells, and a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, budget: int = 100 * SMALL_BODY, **limits: Any) -> None:
        self.now = 1000.0
        loop: Any = SimpleNamespace(time=lambda: self.now, call_later=asyncio.get_running_loop().call_later)
        self.receiver, self.budget = Receiver(), BodyBudget(budget)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "get_running_loop", lambda: loop)
            self.reader = RequestReader(self.receiver, Limits(**limits), self.budget)

    def feed(self, data: bytes) -> int | None:
        return self.reader.feed(data)

    def is_late_after(self, seconds: float) -> bool:
        self.now += seconds
        return self.reader.is_late(self.now)


def post(size: int | None = None, body: bytes | None = None, **headers: Any) -> bytes:
    """A request, or its head if only a size is given."""
    more = headers if size is None else {"content_length": str(size), **headers}
    return written("POST", "/mcp", body, **modern_headers("echo"), **more)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def head_of(size: int) -> bytes:
    """A head of so many bytes, with the empty line."""
    empty = post(0, x_filler="")
    return post(0, x_filler="x" * (size - len(empty)))


# ── however it is split ──

BODIES = [json.dumps(modern("echo", id=number)).encode() for number in range(5)]
# The parser passes the last one to the request that follows.
TRAILERS = b"mcp-session-id: s\r\nmcp-method: other\r\nmcp-param-a: 1\r\nmcp-param-b: 2\r\n\r\n"
CONVERSATION = b"".join(
    (
        post(body=BODIES[0]),
        b"\r\n",
        post(body=None, **CHUNKED) + chunk(BODIES[1][:7]) + chunk(BODIES[1][7:]) + b"0\r\n" + TRAILERS,
        post(body=BODIES[2], connection="Upgrade", upgrade="h2c"),
        post(body=None, **CHUNKED) + chunk(BODIES[3]) + b"0\r\n\r\n",
        post(body=b"", connection="Upgrade", upgrade="h2c"),
        post(body=BODIES[4], connection="close"),
    )
)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 64, 1000, 10**6])
async def test_requests_are_the_same_however_their_bytes_arrive(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    reading = Reading(monkeypatch)
    for start in range(0, len(CONVERSATION), step):
        assert reading.feed(CONVERSATION[start : start + step]) is None
    receiver = reading.receiver
    assert receiver.bodies == [*BODIES[:4], b"", BODIES[4]]
    assert [head.path for head in receiver.heads] == ["/mcp"] * 6
    assert [head.get("mcp-method") for head in receiver.heads] == ["echo"] * 6
    assert [each.head for each in receiver.complete] == receiver.heads
    # Trailers prove nothing, neither in their request nor in the next.
    assert not any(head.repeated or head.parameters or head.get("mcp-session-id") for head in receiver.heads)
    assert [(each.is_chunking, each.is_kept) for each in receiver.complete] == [(True, True)] * 5 + [(True, False)]
    assert not reading.reader.is_in_the_middle and reading.reader.head is None
    assert [each.reserved for each in receiver.complete] == [len(body) for body in receiver.bodies]


async def test_requests_that_arrive_together_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.feed(b"".join(written("DELETE", path, None) for path in ("/a?1", "/between", "/a?2")))
    assert [head.target for head in reading.receiver.heads] == [b"/a?1", b"/between", b"/a?2"]
    assert len(reading.receiver.complete) == 3


async def test_body_of_a_request_that_would_switch_protocols_may_have_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b"", b"1", b"22", b"x" * (SMALL_BODY + 1)]
    for step in (100, 10**6):
        reading = Reading(monkeypatch)
        data = b"".join(post(body=body, connection="Upgrade", upgrade="h2c") for body in bodies)
        for start in range(0, len(data), step):
            assert reading.feed(data[start : start + step]) is None
        assert reading.receiver.bodies == bodies
        assert [head.get("mcp-method") for head in reading.receiver.heads] == ["echo"] * 4


@pytest.mark.parametrize(
    "framing",
    [{**CHUNKED, "transfer_encoding": "gzip, chunked"}, {"transfer_encoding": "chunked", "content_length": "5"}],
    ids=["two codings", "two lengths"],
)
async def test_end_of_a_body_is_never_guessed_where_protocols_would_be_switched(
    monkeypatch: pytest.MonkeyPatch, framing: dict[str, Any]
) -> None:
    """A proxy in front of us may have read it differently."""
    reading = Reading(monkeypatch)
    head = post(body=None, connection="Upgrade", upgrade="h2c", **framing)
    assert reading.feed(head + chunk(b"12345") + b"0\r\n\r\n") == 400
    assert reading.receiver.complete == []


async def test_an_old_client_gets_no_chunks_and_no_second_request(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.feed(post(body=b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"))
    (request,) = reading.receiver.complete
    assert (request.is_chunking, request.is_kept) == (False, False)


# ── sizes ──


@pytest.mark.parametrize("step", [1000, 10**6])
async def test_a_head_may_have_its_bound_and_no_byte_more(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    for size, status in ((MAX_REQUEST_HEAD_BYTES, None), (MAX_REQUEST_HEAD_BYTES + 1, 431)):
        reading = Reading(monkeypatch)
        # Those of the request before do not count.
        reading.feed(head_of(MAX_REQUEST_HEAD_BYTES - 10))
        unfinished = head_of(size + 2)[:-2]
        found = [reading.feed(unfinished[start : start + step]) for start in range(0, len(unfinished), step)]
        assert found[-1] == status and not any(found[:-1])
        assert len(reading.receiver.heads) == 1


async def test_empty_lines_before_a_request_count_as_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    lines = MAX_REQUEST_HEAD_BYTES // 4
    assert [reading.feed(b"\r\n\r\n") for _ in range(lines + 1)] == [None] * lines + [431]


async def test_trailers_may_have_the_bound_of_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, status in ((MAX_REQUEST_HEAD_BYTES, None), (MAX_REQUEST_HEAD_BYTES + 1, 431)):
        reading = Reading(monkeypatch)
        reading.feed(post(body=None, **CHUNKED))
        # A piece of the body begins the count again.
        for _ in range(2):
            assert reading.feed(chunk(b"{")[:-2]) is None
            assert reading.feed(b"\r\n") is None
        line = b"0\r\nx: "
        assert reading.feed(line) is None
        assert reading.feed(b"x" * (size - len(line) - 2)) == status


async def test_a_message_may_have_the_largest_size_and_no_byte_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for more, refusals in ((0, []), (1, [413])):
        reading = Reading(monkeypatch, message_bytes=2000)
        reading.feed(post(body=None, **CHUNKED) + chunk(b"x" * 1990) + chunk(b"x" * (10 + more)))
        assert reading.receiver.refusals == refusals
        assert reading.budget.reserved == (0 if more else 2000)
        assert reading.feed(b"0\r\n\r\n") is None
        assert [len(body) for body in reading.receiver.bodies] == [0 if more else 2000]


async def test_a_connection_that_is_given_up_at_a_refusal_hears_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further chunks and the end may be in the same bytes."""
    reading = Reading(monkeypatch, message_bytes=2000)
    reading.receiver.on_refused = reading.reader.stop
    rest = chunk(b"x" * 2 * SMALL_BODY) + chunk(b"x") + b"0\r\n\r\n"
    assert reading.feed(post(body=None, **CHUNKED) + chunk(b"x" * 2001) + rest) is None
    assert reading.receiver.refusals == [413] and reading.receiver.complete == []
    assert reading.budget.reserved == 0


async def test_what_was_reserved_for_a_body_that_never_came_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.feed(post(5000))
    assert reading.budget.reserved == 5000
    reading.reader.close()
    assert reading.budget.reserved == 0


async def test_only_a_client_that_waits_is_told_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for expect, awaited in (("100-continue", 1), ("something else", 0)):
        reading = Reading(monkeypatch)
        reading.feed(post(5, expect=expect))
        assert reading.receiver.awaited == awaited and reading.budget.reserved == 5


@pytest.mark.parametrize("is_declared", [False, True])
async def test_where_no_body_is_wanted_a_few_bytes_are_read_past(
    monkeypatch: pytest.MonkeyPatch, is_declared: bool
) -> None:
    for size, refusals in ((MAX_UNUSED_BODY_BYTES, []), (MAX_UNUSED_BODY_BYTES + 1, [413])):
        reading = Reading(monkeypatch)
        reading.receiver.takes_body = False
        body = b"x" * size
        reading.feed(post(body=body) if is_declared else post(body=None, **CHUNKED) + chunk(body) + b"0\r\n\r\n")
        assert reading.receiver.refusals == refusals and reading.budget.reserved == 0
        assert reading.receiver.bodies == [b""]


async def test_of_a_request_that_was_refused_no_more_than_a_small_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, refusals in ((SMALL_BODY, []), (SMALL_BODY + 1, [413])):
        reading = Reading(monkeypatch)
        reading.receiver.refusal = Refusal.no_body()
        reading.feed(post(size) + b"x" * size)
        assert reading.receiver.refusals == refusals and reading.budget.reserved == 0
        assert reading.receiver.bodies == [b""]


@pytest.mark.parametrize("is_declared", [False, True])
async def test_bodies_reserve_what_they_hold_and_nothing_after_a_refusal(
    monkeypatch: pytest.MonkeyPatch, is_declared: bool
) -> None:
    reading, size = Reading(monkeypatch, budget=3 * SMALL_BODY), 2 * SMALL_BODY
    head, body = post(size) if is_declared else post(body=None, **CHUNKED), b"x" * size
    reading.feed(head)
    assert reading.budget.reserved == (size if is_declared else 0)
    reading.feed(body if is_declared else chunk(body) + b"0\r\n\r\n")
    (request,) = reading.receiver.complete
    assert (request.reserved, request.held_bytes, reading.budget.reserved) == (size, size, size)
    # It is held until it is handed on, so another of its size has no room.
    reading.feed(head)
    reading.feed(body if is_declared else chunk(body))
    assert reading.receiver.refusals[:1] == [503] and reading.budget.reserved == size
    assert len(reading.receiver.complete) == 1 + is_declared


async def test_a_large_body_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, kind in ((LARGE_BODY, bytes), (LARGE_BODY + 1, Pieces)):
        reading = Reading(monkeypatch)
        reading.feed(post(size) + b"x" * (size // 2))
        assert reading.reader.is_in_large_body
        reading.feed(b"x" * (size - size // 2))
        (request,) = reading.receiver.complete
        assert type(request.body) is kind and request.held_bytes == size
        reading.feed(post(body=b"{}"))
        assert reading.receiver.complete[1].body == b"{}"


async def test_a_body_is_large_beyond_an_ordinary_call_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reader = reading.reader
    assert (reader.is_in_the_middle, reader.is_in_body, reader.is_in_large_body) == (False, False, False)
    reading.feed(post(SMALL_BODY + 2)[:-2])
    assert (reader.is_in_the_middle, reader.is_in_body, reader.is_in_large_body) == (True, False, False)
    reading.feed(b"\r\n" + b"x" * SMALL_BODY)
    assert (reader.is_in_the_middle, reader.is_in_body, reader.is_in_large_body) == (True, True, False)
    reading.feed(b"x")
    assert (reader.is_in_the_middle, reader.is_in_body, reader.is_in_large_body) == (True, True, True)
    reader.stop()
    assert not reader.is_in_large_body and reading.budget.reserved == 0
    assert reading.feed(b"x") is None and reading.receiver.complete == []


# ── times ──


async def test_a_head_may_take_its_time_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, head_seconds=10.0)
    assert not reading.is_late_after(1000), "nobody waits between two requests"
    for _ in range(2):
        reading.feed(post(0)[:-2])
        assert not reading.is_late_after(10.0)
        reading.feed(b"\r\n")
        assert not reading.is_late_after(1000)
    reading.feed(post(0)[:-2])
    assert reading.is_late_after(10.5)


@pytest.mark.parametrize(("came", "is_late"), [(1000, False), (999, True)])
async def test_a_body_must_come_at_its_rate_in_each_window(
    monkeypatch: pytest.MonkeyPatch, came: int, is_late: bool
) -> None:
    reading = Reading(monkeypatch, head_seconds=1.0, body_seconds=10.0, body_rate=100)
    reading.feed(post(10**6)[:-2])
    reading.now += 0.5
    reading.feed(b"\r\n" + b"x" * 5000)
    assert not reading.is_late_after(10.0)
    assert not reading.is_late_after(0.5), "what came in the first window was enough"
    for _ in range(2):
        reading.feed(b"x" * came)
        assert not reading.is_late_after(10.0)
        assert reading.is_late_after(0.5) is is_late, "earlier bytes earn no credit"
    # The next body is measured from its own beginning.
    reading.feed(b"x" * (10**6 - 5000 - 2 * came))
    reading.now += 100
    reading.feed(post(10**6) + b"x" * came)
    assert not reading.is_late_after(10.0)
    assert reading.is_late_after(0.5) is is_late


# ── who is asked, and what fails ──


async def test_a_caller_who_is_not_known_yet_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.receiver.pending = object()
    reading.feed(post(5000, expect="100-continue"))
    (head,) = reading.receiver.heads
    assert reading.receiver.awaited == 0 and reading.budget.reserved == 0
    assert reading.reader.is_reading(head) and not reading.reader.is_reading(RequestHead())
    reading.feed(b"x" * 100)
    assert reading.budget.reserved == 100
    reading.reader.go_on(RequestHead())
    assert reading.receiver.awaited == 0 and reading.receiver.refusals == [], "that of another request"
    reading.reader.go_on(head)
    assert reading.receiver.awaited == 1 and reading.budget.reserved == 5000
    reading.reader.close()
    assert reading.budget.reserved == 0


@pytest.mark.parametrize("takes_body", [False, True])
async def test_no_client_is_told_to_send_what_is_refused(monkeypatch: pytest.MonkeyPatch, takes_body: bool) -> None:
    reading = Reading(monkeypatch, budget=SMALL_BODY)
    reading.receiver.takes_body = takes_body
    reading.feed(post(SMALL_BODY + 1, expect="100-continue"))
    assert reading.receiver.refusals == [503 if takes_body else 413]
    assert reading.receiver.awaited == 0 and reading.budget.reserved == 0


@pytest.mark.parametrize(
    "data",
    [b"hello\r\n\r\n", post(body=None, **CHUNKED) + b"zz\r\n", post(5, transfer_encoding="chunked")],
    ids=["no request", "no chunk", "two lengths"],
)
async def test_what_is_no_request_has_no_second_chance(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    reading = Reading(monkeypatch)
    assert reading.feed(data) == 400
    assert reading.receiver.complete == []


async def test_a_defect_of_ours_is_not_the_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reading = Reading(monkeypatch)
    reading.receiver.fault = RuntimeError("a defect")
    assert reading.feed(post(body=b"{}")) == 500
    assert "please report" in caplog.text and reading.receiver.complete == []


async def test_after_its_end_nothing_is_read_and_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.feed(post(5000) + b"x" * 100)
    assert reading.budget.reserved == 5000
    reading.reader.stop()
    assert reading.reader.is_over and reading.budget.reserved == 0
    assert reading.feed(b"x" * 4900 + b"hello\r\n\r\n") is None
    assert reading.receiver.complete == [] and len(reading.receiver.heads) == 1
    reading.reader.close()
    assert reading.feed(post(body=b"{}")) is None


async def test_a_request_knows_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.reader.peer, reading.reader.address, reading.reader.peer_names = "10.0.0.0/24", "10.0.0.7", ("client",)
    reading.feed(written("DELETE", "/mcp?a=1", None) + post(0))
    first, second = reading.receiver.heads
    assert (first.method, first.path, first.target) == ("DELETE", "/mcp", b"/mcp?a=1")
    assert (second.method, second.target) == ("POST", b"/mcp")
    for head in (first, second):
        assert (head.peer, head.address, head.peer_names) == ("10.0.0.0/24", "10.0.0.7", ("client",))


async def test_headers_are_read_in_any_spelling_and_repeated_ones_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    lines = b"HOST: a\r\nAccept: x/y\r\naccept:  z/w \r\nX-Other: 1\r\nMcp-Method: one\r\nMCP-METHOD: two\r\n"
    reading.feed(b"POST /mcp HTTP/1.1\r\n" + lines + b"content-length: 0\r\n\r\n")
    (head,) = reading.receiver.heads
    assert head.headers == {"host": "a", "accept": "x/y, z/w", "mcp-method": "one", "content-length": "0"}
    assert head.repeated == "mcp-method"
