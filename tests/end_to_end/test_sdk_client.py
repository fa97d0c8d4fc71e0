"""The official SDK's client in both modes, through us, in front of a server written with the SDK, in both eras.

The SDK checks every message against its own types; what it is given through us must be what it is given directly.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.end_to_end.harness import ERAS
from tests.seeing.collector import attributes_of, collecting, decoded
from tests.support.processes import eventually
from tests.support.workbench import workbench_command, write_config

SERVER = Path(__file__).parent.parent / "support" / "sdk_servers.py"
# "legacy" shakes hands; "auto" probes with `server/discover`, which finds the modern era.
MODES = {"legacy": "legacy", "modern": "auto"}
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"a": 2}),
    ("add", {"a": 2, "b": -5}),
    ("weather", {"city": "Zürich 事"}),
    ("picture", {}),
    ("everything", {}),
    ("fail", {"reason": "no such city"}),
]

every_combination = pytest.mark.parametrize(
    ("client_era", "server_era"), [(client, server) for client in ERAS for server in ERAS]
)


@asynccontextmanager
async def connect(command: list[str], era: str, **options: Any) -> AsyncIterator[Client]:
    program, *arguments = command
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with Client(parameters, mode=MODES[era], read_timeout_seconds=30, **options) as client:
        assert client.protocol_version == VERSIONS[era]
        yield client


@asynccontextmanager
async def through_us(folder: Path, client_era: str, server_era: str, **options: Any) -> AsyncIterator[Client]:
    entry = {"command": sys.executable, "args": [str(SERVER)], "protocol": server_era}
    config = write_config(folder, {"box": {"server": entry}}, budget=None)
    async with connect(workbench_command(config), client_era, **options) as client:
        yield client


def use(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool": {"toolbox": "box", "server": "server", "tool": tool}, "arguments": arguments}


def plain(value: Any) -> Any:
    """Everything that the SDK has read, but for the stamp that the modern era puts on every result."""
    fields: dict[str, Any] = value.model_dump(mode="json", by_alias=True)
    meta = {key: kept for key, kept in (fields.pop("_meta", None) or {}).items() if "modelcontextprotocol" not in key}
    fields.pop("resultType", None)
    return {**fields, "_meta": meta}


class Direct(NamedTuple):
    """What the SDK's client is given by the server itself."""

    results: list[types.CallToolResult]
    tools: dict[str, types.Tool]


_known: dict[str, Direct] = {}


async def directly(era: str) -> Direct:
    """Asked once for each era: these servers take a second to start."""
    if era not in _known:
        async with connect([sys.executable, str(SERVER)], era) as client:
            results = [await client.call_tool(tool, arguments) for tool, arguments in CALLS]
            _known[era] = Direct(results, {tool.name: tool for tool in (await client.list_tools()).tools})
    return _known[era]


@every_combination
async def test_the_sdk_sees_the_same_through_us_as_directly(tmp_path: Path, client_era: str, server_era: str) -> None:
    direct = await directly(server_era)
    told: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with through_us(tmp_path, client_era, server_era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["open_toolbox", "use_tool"]
        assert client.instructions and "box" in client.instructions

        opened = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        assert opened.structured_content is not None
        shown = {tool["name"]: tool for tool in opened.structured_content["tools"]}
        assert shown.keys() == direct.tools.keys()
        for name, tool in direct.tools.items():
            assert shown[name]["inputSchema"] == tool.input_schema
            assert shown[name]["description"] == tool.description
            assert (shown[name]["toolbox_name"], shown[name]["source_server"]) == ("box", "server")

        for (name, arguments), expected in zip(CALLS, direct.results, strict=True):
            result = await client.call_tool("use_tool", use(name, arguments))
            if expected.is_error:
                # It says where it comes from, and has what the server sent.
                own, named = expected.content[0], result.content[0]
                assert isinstance(own, types.TextContent) and isinstance(named, types.TextContent)
                assert named.text == f"[box/server/{name}] {own.text}"
                assert result.meta is not None
                original = result.meta["mcp-workbench/result"]
                assert plain(types.CallToolResult.model_validate(original)) == plain(expected)
            else:
                assert plain(result) == plain(expected)

        result = await client.call_tool("use_tool", use("steps", {"count": 3}), progress_callback=on_progress)
        assert isinstance(result.content[0], types.TextContent) and result.content[0].text == "done"
        assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]

        waiting = asyncio.create_task(client.call_tool("use_tool", use("wait", {})))
        await client.call_tool("use_tool", use("add", {"a": 1}))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.call_tool("use_tool", use("add", {"a": 1}))).structured_content == {"result": 2}

        wrong = await client.call_tool("use_tool", use("wether", {"city": "x"}))
        assert wrong.is_error
        assert isinstance(wrong.content[0], types.TextContent) and "`weather`" in wrong.content[0].text


@every_combination
async def test_the_sdks_server_continues_the_trace_of_the_sdks_client_below_our_span(
    tmp_path: Path, client_era: str, server_era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    meta: Any = {"traceparent": f"00-{trace_id}-{span_id}-01"}
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "the bench")
        async with through_us(tmp_path, client_era, server_era) as client:
            result = await client.call_tool("use_tool", use("span", {}), meta=meta)
            # What is sent regularly, not at the end: the SDK may kill us then.
            await eventually(lambda: bool(collector.bodies))
        ours, sent = sorted(collector.of_trace(trace_id), key=lambda span: span.kind)
        assert ours.parent_span_id.hex() == span_id and sent.parent_span_id == ours.span_id
        assert isinstance(result.content[0], types.TextContent)
        assert result.content[0].text == f"{trace_id} {sent.span_id.hex()}"
        (resource,) = decoded(collector.bodies[0]).resource_spans
        assert attributes_of(resource.resource)["service.name"] == "the bench"
