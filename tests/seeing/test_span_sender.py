"""Spans are sent beside calls, whatever the collector does."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from email.utils import formatdate
from time import time

import pytest

from mcp_workbench.seeing import span_sender
from mcp_workbench.seeing.otlp_settings import OtlpSettings
from mcp_workbench.seeing.span_sender import SpanSender
from mcp_workbench.seeing.spans import CallSubject, TracedCall
from mcp_workbench.seeing.trace_context import Sampler
from tests.seeing.collector import Collector, attributes_of, collecting, decoded
from tests.support.processes import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_sender, "SEND_INTERVAL", 0.001)
    monkeypatch.setattr(span_sender, "FIRST_BACKOFF", 0.001)


def settings(url: str, **changed: object) -> OtlpSettings:
    given = {"url": url + "/v1/traces", "headers": {}, "sampler": Sampler(), "resource": {"service.name": "bench"}}
    return OtlpSettings(**{**given, **changed})  # type: ignore[arg-type]


SUBJECT = CallSubject("tools/call", "work", "box", "server", "stdio", "2025-11-25", "2025-11-25", None)


def finished(number: int = 1) -> TracedCall:
    return TracedCall(
        trace_id=b"%032x" % number,
        span_id=b"%016x" % 2,
        client_span_id=b"%016x" % 3,
        flags=1,
        parent=None,
        id=number,
        subject=SUBJECT,
        request_id=b'"seven"',
        wire_id=4,
        epoch=0,
        arrived=1e-6,
        sent=1e-6,
        ended=2e-6,
    )


def test_spans_arrive_with_resource_headers_and_path(collector: Collector) -> None:
    sender = SpanSender(settings(collector.url, headers={"x-key": "secret"}))
    sender.put(finished(1))
    sender.put(finished(2))
    sender.close()
    assert set(collector.paths) == {"/v1/traces"}
    assert {(each["x-key"], each["content-type"], each["content-encoding"]) for each in collector.headers} == {
        ("secret", "application/json", "gzip")
    }
    assert [int(span.trace_id.hex(), 16) for span in collector.spans] == [1, 1, 2, 2]
    (resource, *_) = decoded(collector.bodies[0]).resource_spans
    assert attributes_of(resource.resource) == {"service.name": "bench"}
    assert attributes_of(collector.spans[0])["jsonrpc.request.id"] == "seven"
    assert sender.dropped == 0


def test_collector_that_wants_no_compression_gets_none(collector: Collector) -> None:
    sender = SpanSender(settings(collector.url, is_compressed=False))
    sender.put(finished())
    sender.close()
    assert "content-encoding" not in collector.headers[0] and len(collector.spans) == 2


def test_hanging_collector_delays_no_call_and_the_oldest_spans_are_dropped(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_sender, "MAX_QUEUED", 10)
    monkeypatch.setattr(span_sender, "BATCH_SIZE", 4)
    monkeypatch.setattr(span_sender, "FLUSH_TIMEOUT", 0.01)
    collector.gate.clear()
    sender = SpanSender(settings(collector.url))
    sender.put(finished(1))
    wait_until(lambda: bool(collector.bodies))
    # It hangs with the first request, and takes no more.
    for number in range(2, 32):
        sender.put(finished(number))
    assert sender.dropped == 20
    sender.close()
    assert not any(each.name == "spans" for each in threading.enumerate())
    # What hung, and what waited.
    assert sender.dropped == 31 and len(collector.bodies) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_collector_that_is_busy_gets_the_same_spans_again(
    status: int, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = lambda number: (status if number < 4 else 200, {"retry-after": "0"}, b"{}")
    sender = SpanSender(settings(collector.url))
    with caplog.at_level(logging.INFO):
        sender.put(finished())
        wait_until(lambda: len(collector.bodies) == 4)
        sender.close()
    assert len(set(collector.bodies)) == 1 and sender.dropped == 0
    # Said once, and that it is over.
    assert [str(status) in each for each in caplog.messages] == [True, False]


@pytest.mark.parametrize("is_date", [False, True])
def test_collector_decides_how_long_it_is_left_alone(
    is_date: bool, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    collector.answer = lambda number: (
        503 if number == 1 else 200,
        {"retry-after": formatdate(time() + 40, usegmt=True) if is_date else "40"},
        b"",
    )
    sender = SpanSender(settings(collector.url))
    wait = sender._closing.wait

    def noted(seconds: float | None = None) -> bool:
        waited.append(seconds or 0.0)
        return wait(0)

    monkeypatch.setattr(sender._closing, "wait", noted)
    sender.put(finished())
    wait_until(lambda: len(collector.bodies) == 2)
    sender.close()
    assert len(waited) == 1 and 35 < waited[0] <= 40


def test_refused_spans_are_counted_and_not_sent_again(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.answer = lambda number: (400 if number == 1 else 200, {}, b"")
    sender = SpanSender(settings(collector.url))
    sender.put(finished(1))
    wait_until(lambda: sender.dropped == 1)
    sender.put(finished(2))
    sender.close()
    assert [int(span.trace_id.hex(), 16) for span in collector.spans] == [1, 1, 2, 2] and sender.dropped == 1
    assert "refused traces of 1 calls with 400" in caplog.text


def test_spans_that_are_refused_one_by_one_are_counted(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    answer = b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}'
    # The last of four may come too late for the first batch.
    collector.answer = lambda number: (200, {}, answer if number == 1 else b"{}")
    sender = SpanSender(settings(collector.url))
    for number in (1, 2, 3):
        sender._queue.append(finished(number))
    sender.put(finished(4))
    sender.close()
    assert sender.dropped == 2 and "3 spans: too old" in caplog.text


def test_connection_that_is_reset_is_made_again(collector: Collector) -> None:
    """A listener that resets the first connection, and hands the next one to the collector's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = SpanSender(settings(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        sender.put(finished())
        first, _ = listener.accept()
        # Closing with a linger of 0 sends a reset.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        first.close()
        second, _ = listener.accept()
        with second:
            second.recv(1)
            second.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            sender.close()
    assert sender.dropped == 0


def test_nothing_is_started_before_the_first_call(collector: Collector) -> None:
    sender = SpanSender(settings(collector.url))
    assert not any(each.name == "spans" for each in threading.enumerate())
    sender.close()
    assert not collector.bodies
