"""A collector of traces on this machine, which decodes what it gets with OpenTelemetry's own definitions."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Answer = tuple[int, dict[str, str], bytes]


class Collector:
    """What was sent to it. `answer` decides how a request is answered, by its number."""

    def __init__(self) -> None:
        self.url = ""
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[int], Answer] = lambda number: (200, {}, b"{}")
        # Requests wait for this before they are answered.
        self.gate = threading.Event()
        self.gate.set()

    @property
    def spans(self) -> list[Any]:
        """Everything that it got, as messages of `opentelemetry-proto`."""
        return [
            span
            for body in self.bodies
            for resource in decoded(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def of_trace(self, trace_id: str) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace_id]


def decoded(body: bytes) -> Any:
    """The request as OpenTelemetry's protobuf definitions read it. In JSON, OTLP writes ids in hexadecimal, where
    protobuf's own mapping has base64."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    return json_format.Parse(json.dumps(_with_base64(json.loads(body))), service.ExportTraceServiceRequest())


def _with_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_base64(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(each)).decode()
        if key in ("traceId", "spanId", "parentSpanId")
        else _with_base64(each)
        for key, each in value.items()
    }


def attributes_of(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.paths.append(self.path)
            collector.bodies.append(body)
            number = len(collector.bodies)
            collector.gate.wait(60)
            status, headers, answer = collector.answer(number)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
