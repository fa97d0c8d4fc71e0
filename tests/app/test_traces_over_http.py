"""The header `traceparent` of the HTTP request that a call came in: a link of its span, never its parent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.transport.http.server.raw_client import (
    RawClient,
    legacy,
    modern,
    modern_headers,
    raw_client,
    written,
)
from tests.faults.running_workbench import port_of
from tests.seeing.collector import Collector, collecting
from tests.support.client import RawClient as Process
from tests.support.workbench import scripted_entry, workbench_command, write_config

pytestmark = pytest.mark.processes

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
CALL = {"name": "use_tool", "arguments": {"tool": {"toolbox": "box", "server": "s", "tool": "echo"}, "arguments": {}}}
SERVER = 2


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@asynccontextmanager
async def serving(tmp_path: Path, **settings: Any) -> AsyncIterator[RawClient]:
    """What is left of traces is sent when this ends."""
    config = write_config(tmp_path, {"box": {"s": scripted_entry("--tool-names", "echo")}}, **settings)
    async with Process.spawn(workbench_command(config, "--http", "127.0.0.1:0", "--no-token")) as process:
        async with raw_client(await port_of(process)) as client:
            yield client
        process.process.terminate()
        assert await process.wait_exit() == 0, process.stderr
        process.close_stdin()


async def call(client: RawClient, era: str, meta: dict[str, str] | None = None, **headers: str) -> None:
    if era == "modern":
        body = modern("tools/call", CALL)
        headers |= modern_headers("tools/call", "use_tool")
    else:
        body = legacy("tools/call", {**CALL, "_meta": {}})
        headers["mcp_session_id"] = await client.begin_session()
    body["params"]["_meta"] = {**body["params"]["_meta"], **(meta or {})}
    connection = await client.connect()
    await connection.send(written("POST", "/mcp", body, **headers))
    response = await connection.response()
    if response.is_stream:
        while "result" not in await response.message():
            pass
    else:
        assert "result" in response.json, response.body


def links(collector: Collector) -> list[list[tuple[str, str]]]:
    spans = [span for span in collector.spans if span.kind == SERVER]
    return [[(link.trace_id.hex(), link.span_id.hex()) for link in span.links] for span in spans]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_header_is_a_link_and_begins_no_trace(era: str, tmp_path: Path, collector: Collector) -> None:
    async with serving(tmp_path, telemetry={"otlp": collector.url}) as client:
        await call(client, era, traceparent=HEADER)
        await call(client, era)
    assert links(collector) == [[(TRACE, SPAN)], []]
    assert not collector.of_trace(TRACE)
    assert all(not span.parent_span_id for span in collector.spans if span.kind == SERVER)


async def test_header_beside_another_context_is_a_link_and_beside_the_same_none(
    tmp_path: Path, collector: Collector
) -> None:
    other = f"00-{TRACE}-00000000000000aa-01"
    async with serving(tmp_path, telemetry={"otlp": collector.url}) as client:
        await call(client, "modern", {"traceparent": other}, traceparent=HEADER)
        await call(client, "modern", {"traceparent": HEADER}, traceparent=HEADER)
    assert links(collector) == [[(TRACE, SPAN)], []]
    assert [span.parent_span_id.hex() for span in collector.of_trace(TRACE) if span.kind == SERVER] == [
        "00000000000000aa",
        SPAN,
    ]


@pytest.mark.parametrize("value", ["not one", f"{HEADER}\r\ntraceparent: {HEADER}", ""])
async def test_header_that_is_invalid_or_repeated_is_ignored(value: str, tmp_path: Path, collector: Collector) -> None:
    async with serving(tmp_path, telemetry={"otlp": collector.url}) as client:
        await call(client, "modern", traceparent=value)
    assert links(collector) == [[]]


async def test_without_traces_the_header_is_not_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await call(client, "modern", traceparent=f"{HEADER}\r\ntraceparent: {HEADER}")
