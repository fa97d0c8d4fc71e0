"""Traces of calls from the client through the workbench to the server, in every pair of eras."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.traces import begin_traces
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.config.telemetry_settings import TelemetryConfig
from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.seeing import span_sender, tracing
from tests.bridge.conversation import Conversation
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, Client, InProcessWorkbench, in_process_workbench
from tests.seeing.collector import Collector, attributes_of, collecting
from tests.support.in_process_workbench import Server, tool, workbench_with
from tests.support.processes import eventually

pytestmark = pytest.mark.processes

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "baggage": "user=7"}
SERVER, CLIENT, ERROR = 2, 3, 2
BOX = {"description": "The box.", "mcpServers": {"server": {"command": "unused"}}}


def begin(
    gateway: Gateway, telemetry: TelemetryConfig | None, environ: Mapping[str, str] = MappingProxyType({})
) -> None:
    begin_traces(gateway.runtime, replace(gateway.config, telemetry=telemetry), environ, gateway.gate.trace)


class Listener:
    """As the page listens."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []

    def begun(self, call: CallRecord) -> None: ...

    def changed(self, call: CallRecord) -> None: ...

    def ended(self, call: CallRecord) -> None:
        self.calls.append(call)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@asynccontextmanager
async def traced(
    collector: Collector, client_era: str, server_era: str, *, traces: float | None = None, **settings: Any
) -> AsyncIterator[tuple[InProcessWorkbench, Client, FakeServer]]:
    """What is left is sent at the end."""
    async with in_process_workbench(server_era, **settings) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        begin(workbench.gateway, TelemetryConfig(otlp=collector.url, traces=traces))
        yield workbench, client, server


def meta_of(server: FakeServer) -> dict[str, Any]:
    found: dict[str, Any] = server.call["params"].get("_meta")
    return found


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("route", ["tool", "prompt", "resource"])
async def test_spans_of_a_call_are_children_of_the_clients_and_parents_of_the_servers(
    client_era: str, server_era: str, route: str, collector: Collector
) -> None:
    async with traced(collector, client_era, server_era) as (_, client, server):
        conversation = Conversation(client, server, route, meta=CONTEXT)
        given = meta_of(server)
        conversation.finish()
    ours, sent = sorted(collector.of_trace(TRACE), key=lambda span: span.kind)
    assert (ours.kind, sent.kind) == (SERVER, CLIENT)
    assert ours.parent_span_id.hex() == PARENT and sent.parent_span_id == ours.span_id
    assert given["traceparent"] == f"00-{TRACE}-{sent.span_id.hex()}-01"
    # Not ours to change.
    assert (given["tracestate"], given["baggage"]) == ("vendor=1", "user=7")
    assert ours.trace_state == sent.trace_state == "vendor=1"
    assert ours.start_time_unix_nano <= sent.start_time_unix_nano <= sent.end_time_unix_nano == ours.end_time_unix_nano
    versions = {"legacy": "2025-11-25", "modern": "2026-07-28"}
    assert attributes_of(ours)["mcp.protocol.version"] == versions[client_era]
    assert attributes_of(sent)["mcp.protocol.version"] == versions[server_era]


@pytest.mark.parametrize("client_era", ERAS)
async def test_spans_have_the_names_and_attributes_of_the_conventions(client_era: str, collector: Collector) -> None:
    async with traced(collector, client_era, "legacy") as (_, client, server):
        for route in ("tool", "prompt", "resource"):
            Conversation(client, server, route, meta=CONTEXT).finish()
    tool, prompt, resource = [span for span in collector.of_trace(TRACE) if span.kind == SERVER]
    assert [each.name for each in (tool, prompt, resource)] == [
        "tools/call work",
        "prompts/get write",
        "resources/read",
    ]
    found = attributes_of(tool)
    assert found.pop("workbench.call.id") > 0 and found.pop("jsonrpc.request.id").isdecimal()
    assert found == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "work",
        "mcp.protocol.version": "2025-11-25" if client_era == "legacy" else "2026-07-28",
        "workbench.toolbox": "box",
        "workbench.server": "server",
    }
    assert attributes_of(prompt)["gen_ai.prompt.name"] == "write"
    assert attributes_of(resource)["mcp.resource.uri"] == "test:///one"
    sent = attributes_of(next(span for span in collector.of_trace(TRACE) if span.kind == CLIENT))
    assert sent["network.transport"] == "pipe" and sent["gen_ai.tool.name"] == "work"
    assert not tool.HasField("status")


async def test_call_without_a_trace_begins_one(collector: Collector) -> None:
    async with traced(collector, "legacy", "legacy") as (_, client, server):
        conversation = Conversation(client, server)
        version, trace_id, span_id, flags = meta_of(server)["traceparent"].split("-")
        conversation.finish()
    ours, sent = sorted(collector.of_trace(trace_id), key=lambda span: span.kind)
    assert (version, flags) == ("00", "01") and not ours.parent_span_id
    assert sent.span_id.hex() == span_id and sent.parent_span_id == ours.span_id


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize(
    ("meta", "traces"),
    [
        ({"traceparent": f"00-{TRACE}-{PARENT}-00", "tracestate": "vendor=1"}, None),
        ({"own/key": [1.50, {"a": "ü"}]}, 0.0),
        ({"traceparent": "not one"}, 0.0),
        (None, 0.0),
    ],
)
async def test_meta_of_a_call_that_is_not_traced_passes_as_it_came(
    client_era: str, server_era: str, meta: dict[str, Any] | None, traces: float | None, collector: Collector
) -> None:
    sent: list[bytes] = []
    for is_traced in (False, True):
        async with in_process_workbench(server_era) as workbench:
            client = workbench.client(client_era)
            server = await workbench.connect(client)
            if is_traced:
                begin(workbench.gateway, TelemetryConfig(otlp=collector.url, traces=traces))
            written: list[bytes] = []
            send = server.send
            server.send = lambda *parts, send=send, written=written: (  # type: ignore[method-assign]
                written.append(b"".join(bytes(part) for part in parts)),
                send(*parts),
            )[1]
            Conversation(client, server, meta=meta).finish()
            sent.append(written[0].partition(b'"method"')[2])
    assert sent[0] == sent[1]
    assert not collector.bodies


async def test_without_a_setting_or_variable_nothing_is_traced() -> None:
    async with in_process_workbench("legacy") as workbench:
        begin(workbench.gateway, None, {"OTEL_SERVICE_NAME": "x"})
        begin(workbench.gateway, TelemetryConfig(is_on=False), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"})
        assert workbench.gateway.gate.tracer is None and workbench.gateway.runtime.figures is None


@pytest.mark.parametrize(
    ("answer", "of_ours", "of_server"),
    [
        ({"result": {"content": [], "isError": True}}, ("tool_error", True), ("tool_error", True)),
        ({"error": {"code": -32602, "message": "wrong"}}, ("-32602", False), ("-32602", True)),
        ({"error": {"code": -32603, "message": "broken"}}, ("-32603", True), ("-32603", True)),
        ({"error": {"code": -32050, "message": "own"}}, ("-32050", True), ("-32050", True)),
    ],
)
async def test_spans_mark_the_side_that_failed(
    answer: dict[str, Any], of_ours: tuple[str, bool], of_server: tuple[str, bool], collector: Collector
) -> None:
    async with traced(collector, "legacy", "legacy") as (_, client, server):
        client.call(meta=CONTEXT)
        if "error" in answer:
            server.fail(server.call, answer["error"]["code"], answer["error"]["message"])
        else:
            server.reply(server.call, answer["result"])
    for span in collector.of_trace(TRACE):
        expected = of_ours if span.kind == SERVER else of_server
        found = attributes_of(span)
        assert (found["error.type"], span.status.code == ERROR) == expected
        code = answer.get("error", {}).get("code")
        assert found.get("rpc.response.status_code") == (None if code is None else str(code))


async def test_error_that_an_agent_is_shown_as_a_result_keeps_its_code_in_the_span_of_the_server(
    collector: Collector,
) -> None:
    async with traced(collector, "legacy", "legacy", face="proxy") as (_, client, server):
        client.call(meta=CONTEXT)
        server.fail(server.call, -32602, "wrong")
    ours, sent = sorted(collector.of_trace(TRACE), key=lambda span: span.kind)
    assert attributes_of(ours)["error.type"] == "tool_error"
    assert attributes_of(sent)["error.type"] == "-32602"


async def test_cancelled_call_has_ended(collector: Collector) -> None:
    async with traced(collector, "legacy", "legacy") as (_, client, _server):
        request = client.call(meta=CONTEXT)
        client.cancel(request)
    ours, sent = sorted(collector.of_trace(TRACE), key=lambda span: span.kind)
    assert attributes_of(ours)["error.type"] == attributes_of(sent)["error.type"] == "cancelled"
    assert (ours.status.code, sent.status.code) == (0, ERROR)


async def test_refused_call_has_one_span_and_reaches_no_server(collector: Collector) -> None:
    deny = (PolicyRule(then="deny", tools=("box/server/work",)), PolicyRule(then="allow"))
    async with traced(collector, "legacy", "legacy", policy=deny) as (_, client, server):
        client.call(meta=CONTEXT)
        assert not server.open_calls()
    (ours,) = collector.of_trace(TRACE)
    assert ours.kind == SERVER and attributes_of(ours)["error.type"]


async def test_call_that_waits_for_its_server_has_events(collector: Collector, tmp_path: Path) -> None:
    server = Server(tool("work"))
    async with workbench_with(tmp_path, {"box": {"s": server}}) as seen:
        # Now its tools are known, and it is not running.
        await seen.use("box/s/work")
        (connection,) = seen.gateway.runtime.pool.connections()
        connection.request_stop()
        await connection.wait_stopped()
        begin(seen.gateway, TelemetryConfig(otlp=collector.url))
        await seen.use("box/s/work")
    ours, sent = sorted(collector.spans, key=lambda span: span.kind)
    assert [event.name for event in ours.events] == ["waiting", "sent"]
    assert ours.start_time_unix_nano < sent.start_time_unix_nano < ours.end_time_unix_nano
    assert ours.start_time_unix_nano < ours.events[0].time_unix_nano < ours.events[1].time_unix_nano


@pytest.mark.parametrize(("client_era", "server_era"), [("legacy", "modern"), ("modern", "legacy")])
async def test_questions_of_a_server_are_rounds_of_one_call(
    client_era: str, server_era: str, collector: Collector
) -> None:
    async with traced(collector, client_era, server_era) as (_, client, server):
        conversation = Conversation(client, server, meta=CONTEXT)
        await conversation.ask("form")
        await conversation.ask("form")
        conversation.finish()
    ours, sent = sorted(collector.of_trace(TRACE), key=lambda span: span.kind)
    assert [event.name for event in ours.events] == ["input_required", "input_received"] * 2
    times = [event.time_unix_nano for event in ours.events]
    assert ours.start_time_unix_nano <= times[0] and times == sorted(times) and times[-1] <= ours.end_time_unix_nano
    assert sent.parent_span_id == ours.span_id


async def test_events_of_a_call_are_limited(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_EVENTS", 3)
    async with traced(collector, "legacy", "modern") as (_, client, server):
        conversation = Conversation(client, server, meta=CONTEXT)
        await conversation.ask("form")
        await conversation.ask("form")
        conversation.finish()
    assert max(len(span.events) for span in collector.of_trace(TRACE)) == 3


async def test_traces_are_made_from_figures_of_calls(collector: Collector) -> None:
    async with traced(collector, "legacy", "legacy") as (workbench, client, server):
        figures = workbench.gateway.runtime.figures
        assert figures is not None
        Conversation(client, server).finish()
        (row,) = figures.totals().rows
        assert (row.item, row.calls) == ("work", 1) and not figures.running()
    assert workbench.gateway.runtime.figures is None


async def test_secrets_of_headers_are_fetched_sent_and_never_printed(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key").write_text("very-secret-key\n")
    path = tmp_path / "workbench.json"
    path.write_text(
        json.dumps(
            {
                "telemetry": {
                    "otlp": collector.url,
                    "headers": {"plain": "literal-secret-1", "x-key": "Bearer ${file:key}"},
                },
                "toolboxes": {"box": BOX},
            }
        )
    )
    gateway = Gateway(load(str(path), os.environ), Options(use_cache=False))
    async with gateway.running():
        async with asyncio.timeout(30):
            while gateway.gate.tracer is None:
                await asyncio.sleep(0)
        headers = gateway.gate.tracer.sender.settings.headers
        assert headers == {"plain": "literal-secret-1", "x-key": "Bearer very-secret-key"}
        assert "very-secret-key" not in gateway.runtime.redactor.text("it is very-secret-key")
        assert "literal-secret-1" not in gateway.runtime.redactor.text("it is literal-secret-1")


async def test_secret_that_cannot_be_fetched_is_named_and_calls_go_on(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "workbench.json"
    headers = {"x-key": "${file:missing}"}
    path.write_text(json.dumps({"telemetry": {"otlp": collector.url, "headers": headers}, "toolboxes": {"box": BOX}}))
    gateway = Gateway(load(str(path), os.environ), Options(use_cache=False))
    with caplog.at_level(logging.WARNING):
        async with gateway.running(), asyncio.timeout(30):
            while not caplog.messages:
                await asyncio.sleep(0)
    assert "no traces are sent" in caplog.messages[0] and "missing" in caplog.messages[0]
    assert gateway.gate.tracer is None


async def test_call_has_one_number_in_audit_trace_page_and_log(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, listener = Server(tool("work")), Listener()
    telemetry = {"otlp": collector.url}
    with caplog.at_level(logging.DEBUG, "mcp_workbench"):
        async with workbench_with(
            tmp_path, {"box": {"s": server}}, telemetry=telemetry, audit={"file": "audit.jsonl"}
        ) as seen:
            figures = seen.gateway.runtime.figures
            assert figures is not None
            figures.subscribe(listener)
            for _ in range(2):
                await seen.use("box/s/work")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    audited = [line["call"] for line in lines if line["kind"] == "call"]
    spans = [attributes_of(span)["workbench.call.id"] for span in collector.spans if span.kind == SERVER]
    shown = [call.id for call in listener.calls]
    assert audited == spans == shown and len(set(audited)) == 2
    assert all(f"call {number})" in caplog.text for number in audited)


@contextmanager
def resetting() -> Iterator[tuple[str, list[int]]]:
    """A collector that resets each connection; the list grows with them."""
    connections: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def reset() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # Closing with a linger of 0 sends a reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            connections.append(1)

    thread = threading.Thread(target=reset)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", connections
    finally:
        # Closing alone does not wake the thread.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("fault", ["hangs", "resets", "answers 503"])
async def test_calls_are_answered_and_lost_spans_counted_while_the_collector(
    fault: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_sender, "MAX_QUEUED", 8)
    monkeypatch.setattr(span_sender, "BATCH_SIZE", 4)
    with ExitStack() as stack:
        asked: list[Any] = collector.bodies
        if fault == "hangs":
            collector.gate.clear()
        elif fault == "resets":
            collector.url, asked = stack.enter_context(resetting())
        else:
            collector.answer = lambda number: (503, {}, b"")
        async with traced(collector, "modern", "legacy") as (workbench, client, server):
            (sender,) = workbench.gateway.runtime.counting.span_senders
            for number in range(20):
                # The answer is asserted there.
                Conversation(client, server, meta=CONTEXT).finish()
                if number == 3:
                    await eventually(lambda: bool(asked))
            assert sender.dropped > 0, "there is no room for so many"
        assert sender.dropped == 20
