"""The face `auto`: each client gets what suits it, in both eras, over whatever carries its messages."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from mcp_workbench.engine.config.load import load
from tests.faces.harness import PATIENCE, Bench, Boxes
from tests.faces.memory import MemoryClient, MemoryGateway
from tests.support.client import Json

BOXES: Boxes = {"box": {"server": ["--tools", 2]}}
FLAT = ["box__server__tool_1", "box__server__tool_2"]
TWO = ["open_toolbox", "use_tool"]


@asynccontextmanager
async def known_as(gateway: MemoryGateway, name: str, era: str, *, lasts: bool = False) -> AsyncIterator[MemoryClient]:
    """A client that calls itself this; `lasts`: of the shared workbench."""
    async with MemoryClient.of(gateway) as client:
        if lasts:
            client.session = gateway.make_session(client._link, "", lambda reason: None, lasts=True)
        info = {"name": name, "version": "1"}
        if era == "modern":
            client.stamp(clientInfo=info)
        else:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            client.introduction = await client.request("initialize", params)  # type: ignore[attr-defined]
            await client.notify("notifications/initialized")
        yield client


async def tools_of(client: MemoryClient) -> list[Json]:
    tools: list[Json] = (await client.request("tools/list"))["tools"]
    return tools


async def names_of(client: MemoryClient) -> list[str]:
    return [tool["name"] for tool in await tools_of(client)]


def auto(bench: Bench, boxes: Boxes = BOXES, **settings: Any) -> Any:
    return bench.gateway(boxes, options={"face": "auto", "list_timeout": PATIENCE}, settings=settings)


@pytest.mark.requirement("faces.auto")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", FLAT),
        ("codex-mcp-client", FLAT),
        ("qwen-cli-mcp-client-workbench", FLAT),
        ("cursor-vscode", FLAT),
        ("gemini-cli-mcp-client", TWO),
        ("opencode", TWO),
        ("copilot-cli", TWO),
        ("nobody-knows-me", TWO),
    ],
)
async def test_clients_that_defer_tools_get_them_as_they_are(
    bench: Bench, client: str, era: str, expected: list[str]
) -> None:
    async with auto(bench) as gateway, known_as(gateway, client, era) as seen:
        assert await names_of(seen) == expected
        if expected == FLAT:
            result = await seen.call_tool("box__server__tool_1", {"text": "hello"})
        else:
            result = await seen.use_tool("box", "server", "tool_1", {"text": "hello"})
        assert "hello" in json.dumps(result["content"])


async def test_a_modern_client_without_a_name_gets_two_tools(bench: Bench) -> None:
    async with auto(bench) as gateway, MemoryClient.of(gateway) as client:
        client.stamp()
        client._meta.pop("io.modelcontextprotocol/clientInfo")
        assert await names_of(client) == TWO


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_clients_of_both_kinds_are_served_side_by_side(bench: Bench, era: str) -> None:
    async with auto(bench) as gateway, AsyncExitStack() as stack:
        code = await stack.enter_async_context(known_as(gateway, "claude-code", era))
        gemini = await stack.enter_async_context(known_as(gateway, "gemini-cli-mcp-client", era))
        assert (await names_of(code), await names_of(gemini)) == (FLAT, TWO)
        # The one's names mean nothing to the other.
        refused = await gemini.start_tool("box__server__tool_1", {"text": "x"})
        assert (await refused.response())["error"]["code"] == -32602


async def test_one_connection_may_carry_requests_of_several_modern_clients(bench: Bench) -> None:
    async with auto(bench) as gateway, known_as(gateway, "claude-code", "modern") as client:
        assert await names_of(client) == FLAT
        client.stamp(clientInfo={"name": "opencode", "version": "1"})
        assert await names_of(client) == TWO
        client.stamp(clientInfo={"name": "claude-code", "version": "1"})
        assert await names_of(client) == FLAT


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_of_the_shared_workbench_is_recognised_as_well(bench: Bench, era: str) -> None:
    async with auto(bench) as gateway, known_as(gateway, "claude-code", era, lasts=True) as seen:
        assert await names_of(seen) == FLAT
        # What it opened before is its own, whoever it says to be.
        assert seen.session.view in gateway.router.views.of_sessions


@pytest.mark.requirement("faces.auto")
async def test_the_two_tools_are_those_of_the_proxy_face_byte_for_byte(bench: Bench) -> None:
    async with bench.gateway(BOXES, options={"face": "proxy"}) as gateway, known_as(gateway, "x", "legacy") as seen:
        proxy = await tools_of(seen)
    async with auto(bench) as gateway, known_as(gateway, "opencode", "legacy") as seen:
        assert json.dumps(await tools_of(seen)) == json.dumps(proxy)


async def test_the_configuration_chooses_for_a_client(bench: Bench) -> None:
    clients = {"codex": {"face": "proxy"}, "mine*": {"face": "flat", "separator": "."}}
    async with auto(bench, clients=clients) as gateway, AsyncExitStack() as stack:
        codex = await stack.enter_async_context(known_as(gateway, "codex-mcp-client", "legacy"))
        mine = await stack.enter_async_context(known_as(gateway, "mine-1", "modern"))
        assert await names_of(codex) == TWO
        # A character that clients refuse is replaced all the same.
        assert all("." not in name and name.startswith("box_server_tool_1") for name in (await names_of(mine))[:1])


async def test_a_separator_of_the_users_own_is_kept(bench: Bench) -> None:
    async with auto(bench, separator="-") as gateway, known_as(gateway, "claude-code", "legacy") as seen:
        assert await names_of(seen) == ["box-server-tool_1", "box-server-tool_2"]


async def test_names_that_a_client_would_cut_or_drop_are_made_to_fit(bench: Bench) -> None:
    toolbox, server = "t" * 40, "s" * 40
    boxes = {toolbox: {server: ["--tools", 2]}}
    async with auto(bench, boxes) as gateway, AsyncExitStack() as stack:
        for client, longest in (("qwen-cli-mcp-client-x", 63), ("claude-code", 128)):
            seen = await stack.enter_async_context(known_as(gateway, client, "legacy"))
            names = await names_of(seen)
            assert len(set(names)) == 2
            assert all(len(f"mcp__workbench__{name}") <= longest for name in names)
            result = await seen.call_tool(names[0], {"text": "hello"})
            assert "hello" in json.dumps(result["content"])


async def test_vs_code_gets_the_tools_as_they_are_while_they_are_known_and_few(bench: Bench) -> None:
    async with auto(bench) as gateway, known_as(gateway, "Visual Studio Code", "legacy") as seen:
        # Nobody knows yet how many there are.
        assert await names_of(seen) == TWO
        await seen.call_tool("open_toolbox", {"toolbox_name": "box"})
        # It does not change under a client.
        assert await names_of(seen) == TWO
        async with known_as(gateway, "Visual Studio Code - Insiders", "legacy") as later:
            assert await names_of(later) == FLAT
    clients = {"vscode": {"flatUpTo": 1}}
    async with auto(bench, clients=clients) as gateway, known_as(gateway, "opencode", "legacy") as seen:
        await seen.call_tool("open_toolbox", {"toolbox_name": "box"})
        async with known_as(gateway, "Visual Studio Code", "legacy") as later:
            assert await names_of(later) == TWO


async def test_tools_carry_the_marks_that_claude_code_honours(bench: Bench) -> None:
    async with auto(bench, pin=["box/server/tool_2"]) as gateway, AsyncExitStack() as stack:
        code = await stack.enter_async_context(known_as(gateway, "claude-code", "legacy"))
        codex = await stack.enter_async_context(known_as(gateway, "codex-mcp-client", "legacy"))
        echo, add = await tools_of(code)
        assert echo["_meta"]["anthropic/searchHint"] == "Toolbox box."
        assert "anthropic/alwaysLoad" not in echo["_meta"]
        assert add["_meta"]["anthropic/alwaysLoad"] is True
        assert all("anthropic" not in json.dumps(tool) for tool in await tools_of(codex))


@pytest.mark.parametrize("face", ["auto", "flat", "proxy"])
async def test_no_server_is_started_for_a_health_check(bench: Bench, face: str) -> None:
    async with (
        bench.gateway(BOXES, options={"face": face, "list_timeout": PATIENCE}) as gateway,
        known_as(gateway, "mcp-test-client", "legacy") as seen,
    ):
        await seen.request("ping")
        assert await names_of(seen) == ([] if face == "flat" else TWO)
        assert await seen.request("prompts/list") == {"prompts": []}
        assert gateway.started == []


async def test_a_removed_toolbox_is_announced_whichever_face_a_client_has(bench: Bench) -> None:
    async with auto(bench, {**BOXES, "other": {"second": ["--tools", 1]}}) as gateway, AsyncExitStack() as stack:
        code = await stack.enter_async_context(known_as(gateway, "claude-code", "legacy"))
        gemini = await stack.enter_async_context(known_as(gateway, "gemini-cli-mcp-client", "legacy"))
        assert await names_of(code) == [*FLAT, "other__second__tool_1"]
        await names_of(gemini)
        await gateway.apply(load(str(bench.write(BOXES)), os.environ))
        await code.wait_notification("notifications/tools/list_changed")
        assert await names_of(code) == FLAT
        # Where two tools name the toolboxes, those have changed as well.
        await gemini.wait_notification("notifications/tools/list_changed")
        called = await gemini.use_tool("box", "server", "tool_1", {"text": "x"})
        assert "these toolboxes were removed: other" in json.dumps(called)


async def test_instructions_are_as_long_as_the_client_reads_them(bench: Bench) -> None:
    long = "Everything about stones, sticks and bones. " * 6
    boxes = {f"box{number}": {"server": ["--tools", 1]} for number in range(12)}

    async def introduced(client: str, era: str) -> str:
        path = bench.write(boxes)
        written = json.loads(path.read_text())
        for box in written["toolboxes"].values():
            box["description"] = long
        path.write_text(json.dumps(written))
        gateway = MemoryGateway(load(str(path), os.environ), _options("proxy"))
        async with gateway.running(), known_as(gateway, client, era) as seen:
            if era == "legacy":
                return str(seen.introduction["instructions"])  # type: ignore[attr-defined]
            return str((await seen.discover())["instructions"])

    for era in ("legacy", "modern"):
        assert 2_048 < len(await introduced("claude-code", era)) <= 4_096
        assert 2_048 < len(await introduced("gemini-cli-mcp-client", era)) <= 4_096
        assert len(await introduced("nobody-knows-me", era)) <= 2_048
        short = await introduced("copilot-cli", era)
        assert len(short) <= 160 and "box0" in short and "open_toolbox" in short


def _options(face: str) -> Any:
    from mcp_workbench.app.gateway import Options

    return Options(face=face)
