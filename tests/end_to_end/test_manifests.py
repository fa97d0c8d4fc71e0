"""What is remembered from one run to the next, and what happens when it is no longer true."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.end_to_end.harness import (
    ERAS,
    Workbench,
    error_text,
    open_toolbox,
    start_use,
    tool_names,
    unavailable,
)
from tests.support.client import Json, RawClient
from tests.support.processes import descendants
from tests.support.workbench import scripted_entry


def gated(workbench: Workbench, gate: Path, *flags: object) -> dict[str, dict[str, Json]]:
    return {"box": {"server": workbench.held_back(gate, *flags)}}


def manifest_files(cache_folder: Path) -> list[Path]:
    return sorted(cache_folder.rglob("*.json"))


async def learn(workbench: Workbench, gate: Path, *flags: object) -> None:
    """A first run, in which the server is there and is remembered."""
    gate.touch()
    async with workbench.serving(gated(workbench, gate, *flags)) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]
    gate.unlink()


@pytest.mark.requirement("manifests.answer")
@pytest.mark.parametrize("era", ERAS)
async def test_a_known_toolbox_opens_before_its_servers_have_started(workbench: Workbench, era: str) -> None:
    gate = workbench.path("gate")
    await learn(workbench, gate, "--tools", 2)
    async with workbench.serving(gated(workbench, gate, "--tools", 2), era=era) as client:
        assert descendants(client.pid) == set()
        result = await open_toolbox(client, "box")
        # The server is held back: this can only come from what is remembered.
        assert (tool_names(result), unavailable(result)) == (["tool_1", "tool_2"], {})
        call = await client.start_tool("use_tool", start_use("box", "server", "tool_1", {"a": 1}))
        assert not call.answered
        gate.touch()
        assert (await call.result())["structuredContent"] == {"a": 1}


@pytest.mark.requirement("manifests.off")
async def test_no_cache_asks_the_server_each_time_and_writes_nothing(workbench: Workbench, cache_folder: Path) -> None:
    gate = workbench.path("gate")
    gate.touch()
    async with workbench.serving(gated(workbench, gate, "--tools", 2), "--no-cache") as client:
        await open_toolbox(client, "box")
    assert manifest_files(cache_folder) == []
    await learn(workbench, gate, "--tools", 2)
    assert len(manifest_files(cache_folder)) == 1
    async with workbench.serving(gated(workbench, gate, "--tools", 2), "--no-cache") as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        assert await client.request("ping") == {}
        assert not opening.answered
        gate.touch()
        assert tool_names(await opening.result()) == ["tool_1", "tool_2"]


async def noticed(client: RawClient, name: str) -> Json:
    """The answer of `open_toolbox` once it lists this tool."""
    async with asyncio.timeout(20):
        while name not in tool_names(result := await open_toolbox(client, "box")):
            await asyncio.sleep(0.01)
    return result


@pytest.mark.requirement("manifests.changed")
async def test_changed_offer_replaces_the_cached_one(workbench: Workbench) -> None:
    gate, names = workbench.path("gate"), workbench.path("names")
    entry = scripted_entry()
    wait = f"while [ ! -e {gate} ]; do sleep 0.01; done"
    script = f"{wait}; exec {entry['command']} {entry['args'][0]} --tool-names $(cat {names})"
    boxes = {"box": {"server": {"command": "/bin/sh", "args": ["-c", script]}}}
    gate.touch()
    names.write_text("old,count")
    async with workbench.serving(boxes) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["count", "old"]
    gate.unlink()
    names.write_text("new,count")
    async with workbench.serving(boxes) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["count", "old"], "not yet known better"
        gate.touch()
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}
        assert tool_names(await noticed(client, "new")) == ["count", "new"]
        assert "does not exist" in error_text(await client.use_tool("box", "server", "old"))
        assert (await client.use_tool("box", "server", "new", {"a": 1}))["structuredContent"] == {"a": 1}
    gate.unlink()
    async with workbench.serving(boxes) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["count", "new"], "remembered"


@pytest.mark.requirement("changes.proxy", "manifests.changed")
async def test_the_client_is_told_that_a_toolbox_it_opened_has_changed(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--era", "legacy")}}) as client:
        await open_toolbox(client, "box")
        await client.use_tool("box", "server", "change_tools", {"name": "added"})
        async with asyncio.timeout(20):
            while True:
                result = await client.use_tool("box", "server", "echo", {"a": 1})
                if "changed" in json.dumps(result.get("_meta", {})):
                    break
                await asyncio.sleep(0.01)
        assert result["structuredContent"] == {"a": 1}
        assert any("box" in block["text"] and "changed" in block["text"] for block in result["content"][1:])
        assert (await client.use_tool("box", "server", "echo", {"a": 1}))["content"] == result["content"][:1], (
            "told once"
        )
        assert "added" in tool_names(await open_toolbox(client, "box"))
        # The two tools themselves are the same, so no change of their list is announced.
        assert client.received("notifications/tools/list_changed") == []


async def test_a_tool_that_is_not_remembered_is_asked_for_at_the_server(workbench: Workbench) -> None:
    names = workbench.path("names")
    entry = scripted_entry()
    script = f"exec {entry['command']} {entry['args'][0]} --tool-names $(cat {names})"
    boxes = {"box": {"server": {"command": "/bin/sh", "args": ["-c", script]}}}
    names.write_text("old")
    async with workbench.serving(boxes) as client:
        await open_toolbox(client, "box")
    names.write_text("new")
    async with workbench.serving(boxes) as client:
        assert (await client.use_tool("box", "server", "new", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_changed_command_line_is_another_server(workbench: Workbench) -> None:
    gate = workbench.path("gate")
    await learn(workbench, gate, "--tools", 2)
    async with workbench.serving(gated(workbench, gate, "--tools", 3)) as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        assert await client.request("ping") == {}
        assert not opening.answered
        gate.touch()
        assert len(tool_names(await opening.result())) == 3


@pytest.mark.requirement("manifests.safe")
@pytest.mark.parametrize("content", [b"\xff garbage", b'{"format": 99, "tools": []}'])
async def test_a_corrupt_or_foreign_manifest_is_ignored_and_rewritten(
    workbench: Workbench, cache_folder: Path, content: bytes
) -> None:
    gate = workbench.path("gate")
    await learn(workbench, gate, "--tools", 2)
    (manifest,) = manifest_files(cache_folder)
    good = manifest.read_bytes()
    manifest.write_bytes(content)
    gate.touch()
    async with workbench.serving(gated(workbench, gate, "--tools", 2)) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]
    assert manifest.read_bytes() == good


async def test_a_cache_that_cannot_be_written_changes_nothing(workbench: Workbench, cache_folder: Path) -> None:
    cache_folder.write_text("a file where the folder should be")
    async with workbench.serving({"box": {"server": scripted_entry("--tools", 2)}}) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]
        assert (await client.use_tool("box", "server", "tool_1", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_without_a_home_it_works_without_a_memory(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    async with workbench.serving({"box": {"server": scripted_entry("--tools", 2)}}, "--no-cache") as client:
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]


async def test_a_remembered_server_that_does_not_start_any_more_says_so_when_it_is_used(workbench: Workbench) -> None:
    needed = workbench.path("needed")
    needed.touch()
    boxes = {"box": {"server": scripted_entry("--tools", 2, "--require-file", needed)}}
    async with workbench.serving(boxes) as client:
        await open_toolbox(client, "box")
    needed.unlink()
    async with workbench.serving(boxes) as client:
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]
        text = error_text(await client.use_tool("box", "server", "tool_1"))
        assert text.startswith("[box/server/tool_1] ") and "status 1" in text and "missing" in text
        assert list(unavailable(await open_toolbox(client, "box"))) == ["server"]
        needed.touch()
        assert tool_names(await open_toolbox(client, "box")) == ["tool_1", "tool_2"]


async def test_two_workbenches_over_one_cache_do_not_disturb_each_other(workbench: Workbench) -> None:
    boxes = {"box": {"server": scripted_entry("--tools", 2)}}
    async with workbench.serving(boxes) as one, workbench.serving(boxes) as other:
        opening = [await client.start_tool("open_toolbox", {"toolbox_name": "box"}) for client in (one, other)]
        for call in opening:
            assert tool_names(await call.result()) == ["tool_1", "tool_2"]
