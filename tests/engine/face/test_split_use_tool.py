"""`"useTool": "split"`: what only reads is called with one tool, all else with another."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.face.kept_results import KeptResults
from mcp_workbench.engine.face.split_use_tool import MAX_CACHED_ANNOTATIONS, SplitProxyFace, only_reads
from tests.faces.harness import Bench, Seen, error_text
from tests.support.client import Json

BOXES = {"box": {"server": ["--tool-names", "read_note,delete_note,silent_note,echo"]}}
NAMES = ["open_toolbox", "use_tool", "use_tool_that_writes"]


def split(bench: Bench, era: str = "legacy", face: str = "proxy", **settings: Any) -> Any:
    return bench.within(BOXES, face, era, settings={"useTool": "split", **settings})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def call(seen: Seen, with_: str, tool: object) -> Json:
    return await seen.client.call_tool(with_, {"tool": tool, "arguments": {"text": "hello"}})


@pytest.mark.requirement("faces.split")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("face", ["proxy", "auto"])
async def test_a_tool_that_writes_is_refused_by_the_one_for_reading(bench: Bench, era: str, face: str) -> None:
    async with split(bench, era, face) as seen:
        for tool in ("delete_note", "silent_note"):
            refused = error_text(await call(seen, "use_tool", f"box/server/{tool}"))
            assert refused.startswith(f"[box/server/{tool}] may change something")
            assert "use_tool_that_writes" in refused
            path = {"toolbox": "box", "server": "server", "tool": tool}
            assert error_text(await call(seen, "use_tool", path)) == refused
            done = await call(seen, "use_tool_that_writes", path)
            assert "hello" in json.dumps(done["content"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_reads_can_be_called_with_either(bench: Bench, era: str) -> None:
    async with split(bench, era) as seen:
        for name in NAMES[1:]:
            done = await call(seen, name, "box/server/read_note")
            assert not done.get("isError") and "hello" in json.dumps(done["content"])


async def test_annotations_say_which_is_which_and_the_list_stays_the_same_bytes(bench: Bench) -> None:
    lists = []
    tools: list[Json] = []
    for _ in range(2):
        async with split(bench) as seen:
            tools = (await seen.client.request("tools/list"))["tools"]
            await call(seen, "use_tool", "box/server/read_note")
            assert (await seen.client.request("tools/list"))["tools"] == tools
            lists.append(json.dumps(tools))
    assert lists[0] == lists[1]
    assert [tool["name"] for tool in tools] == NAMES
    assert [tool["annotations"]["readOnlyHint"] for tool in tools] == [True, True, False]
    assert all(tool["_meta"]["anthropic/alwaysLoad"] is True for tool in tools)


@pytest.mark.parametrize("count", [1, 12, 300])
async def test_a_model_sees_at_most_300_tokens_of_the_three(bench: Bench, count: int) -> None:
    boxes = {f"toolbox-{number}": BOXES["box"] for number in range(count)}
    async with bench.within(boxes, settings={"useTool": "split"}) as seen:
        tools = (await seen.client.request("tools/list"))["tools"]
        shown = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in tools]
        assert sum(len(json.dumps(tool, separators=(",", ":")).encode()) for tool in shown) <= 4 * 300
        assert "toolbox-0" in tools[0]["description"]
        assert "use_tool_that_writes" in (await seen.client.request("initialize", _handshake()))["instructions"]


def _handshake() -> Json:
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


async def test_manifest_does_not_let_a_writing_call_pass(bench: Bench) -> None:
    async with split(bench) as seen:
        await seen.open()
    async with split(bench) as seen:
        # A server that says otherwise by now: what is in the manifest is what it was.
        (entry,) = seen.gateway.catalog.entries()
        seen.gateway.catalog.load([entry])
        entry.tools["delete_note"] = entry.tools["read_note"]
        assert "may change something" in error_text(await call(seen, "use_tool", "box/server/delete_note"))


async def test_without_split_there_are_two_tools_and_everything_passes(bench: Bench) -> None:
    async with bench.within(BOXES) as seen:
        done = await call(seen, "use_tool", "box/server/delete_note")
        assert not done.get("isError")
        refused = await seen.client.start_tool("use_tool_that_writes", {"tool": "box/server/echo"})
        assert "use_tool" in (await refused.response())["error"]["message"]


@pytest.mark.parametrize(
    ("annotations", "reads"),
    [
        ('{"readOnlyHint":true}', True),
        ('{"readOnlyHint":true,"destructiveHint":false,"title":"x"}', True),
        ('{"readOnlyHint":true,"destructiveHint":true}', False),
        ('{"readOnlyHint":false}', False),
        ('{"readOnlyHint":"true"}', False),
        ('{"readOnlyHint":1}', False),
        ("{}", False),
        ("null", False),
        ("[]", False),
    ],
)
def test_only_declared_tools_are_read_only(annotations: str, reads: bool) -> None:
    assert only_reads(b'{"name":"x","annotations":' + annotations.encode() + b"}") is reads


def test_tools_without_annotations_write() -> None:
    assert not only_reads(b'{"name":"x"}')
    assert not only_reads(b"[]")


async def test_judgements_are_bounded(bench: Bench) -> None:
    async with split(bench) as seen:
        await seen.open()
        face = seen.gateway.face
        assert isinstance(face, SplitProxyFace)
        (entry,) = seen.gateway.catalog.entries()
        for number in range(MAX_CACHED_ANNOTATIONS + 5):
            entry.tools[f"t{number}"] = entry.tools["read_note"]
            assert face._only_reads(entry, f"t{number}")
        assert len(face._judged) <= MAX_CACHED_ANNOTATIONS


async def test_a_result_that_another_instance_may_have_is_asked_for_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def recall_of(self: KeptResults, view: object, uri: str) -> Callable[[], Awaitable[None]]:
        async def recall() -> None:
            asked.append(uri)
            # Asked for ever, this would go on until the client gives up.
            assert len(asked) < 10

        return recall

    monkeypatch.setattr(KeptResults, "recall_of", recall_of)
    uri = "workbench://results/0123456789ab"
    async with split(bench) as seen:
        gone = await seen.client.call_tool("use_tool", {"tool": uri, "arguments": {}})
        assert f"`{uri}` is no longer kept" in error_text(gone) and asked == [uri]
