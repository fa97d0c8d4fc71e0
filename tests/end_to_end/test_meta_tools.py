"""The first words: instructions, exactly two tools, and nothing started."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.end_to_end.harness import ERAS, Workbench
from tests.support.client import RpcError
from tests.support.processes import descendants
from tests.support.workbench import scripted_entry, workbench_command, write_config

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def two_boxes(workbench: Workbench) -> dict[str, dict[str, object]]:
    starts = workbench.path("starts")
    return {
        "dev": {
            "description": "Everything for developers.",
            "mcpServers": {
                "git": scripted_entry("--starts", starts, "--tools", 2),
                "files": scripted_entry("--starts", starts, "--tools", 3),
            },
        },
        "büro 事務": {"description": "Büroarbeit.", "mcpServers": {"mail": scripted_entry("--starts", starts)}},
    }


@pytest.mark.requirement("instructions.toolboxes")
@pytest.mark.parametrize("era", ERAS)
async def test_the_instructions_name_every_toolbox_and_say_how_to_call(workbench: Workbench, era: str) -> None:
    async with workbench.serving(two_boxes(workbench), era=era) as client:
        if era == "modern":
            told = await client.discover()
            assert told["supportedVersions"] == ["2026-07-28"]
            assert told["resultType"] == "complete"
            assert told["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcp-workbench"
        else:
            told = await client.initialize()
            assert told["serverInfo"]["name"] == "mcp-workbench"
        assert "tools" in told["capabilities"]
        instructions = told["instructions"]
        for expected in ("dev", "Everything for developers.", "büro 事務", "Büroarbeit."):
            assert expected in instructions
        for expected in ("open_toolbox", "toolbox_name", "use_tool", "arguments"):
            assert expected in instructions


@pytest.mark.requirement("eras.clients")
async def test_a_legacy_client_gets_its_own_revision_or_our_latest(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        for version in LEGACY_VERSIONS:
            assert (await client.initialize(version))["protocolVersion"] == version
        for version in ("2099-01-01", "", "2026-07-28"):
            assert (await client.initialize(version))["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("lazy")
@pytest.mark.parametrize("era", ERAS)
async def test_nothing_is_started_before_it_is_needed(workbench: Workbench, era: str) -> None:
    async with workbench.serving(two_boxes(workbench), era=era) as client:
        await (client.discover() if era == "modern" else client.initialize())
        listed = await client.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["open_toolbox", "use_tool"]
        assert descendants(client.pid) == set()
    assert workbench.starts() == []


@pytest.mark.requirement("proxy.two-tools")
async def test_the_two_tools_describe_the_arguments_that_they_take(workbench: Workbench) -> None:
    async with workbench.serving(two_boxes(workbench)) as client:
        open_tool, use_tool = (await client.request("tools/list"))["tools"]
        assert "toolbox_name" in open_tool["inputSchema"]["properties"]
        assert "dev" in json.dumps(open_tool, ensure_ascii=False)
        # A list of calls stands instead of a tool.
        assert "required" not in use_tool["inputSchema"] and "calls" in use_tool["inputSchema"]["properties"]
        written = json.dumps(use_tool["inputSchema"]["properties"]["tool"])
        assert all(f'"{part}"' in written for part in ("toolbox", "server", "tool"))
        assert use_tool["inputSchema"]["properties"]["arguments"]["type"] == "object"


@pytest.mark.requirement("proxy.two-tools")
@pytest.mark.parametrize("era", ERAS)
def test_the_list_of_tools_is_the_same_bytes_every_time(workbench: Workbench, era: str) -> None:
    config = write_config(workbench.folder, two_boxes(workbench))
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    stamp = {"_meta": meta} if era == "modern" else {}
    shake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

    def request(id: int, method: str, **params: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, **stamp}}

    asked = [
        *([request(0, "initialize", **shake)] if era == "legacy" else []),
        request(1, "tools/list"),
        request(2, "tools/call", name="open_toolbox", arguments={"toolbox_name": "dev"}),
        request(1, "tools/list"),
        request(3, "ping") if era == "legacy" else request(3, "server/discover"),
        request(1, "tools/list"),
    ]
    lines: set[bytes] = set()
    for flags in ((), (), ("--no-cache",), ("--debug",)):
        done = subprocess.run(
            workbench_command(config, *flags),
            input="".join(json.dumps(message) + "\n" for message in asked).encode(),
            capture_output=True,
            check=True,
        )
        answers = done.stdout.splitlines()
        assert len(answers) == len(asked)
        lines.update(line for line in answers if json.loads(line)["id"] == 1)
    assert len(lines) == 1
    assert len(json.loads(lines.pop())["result"]["tools"]) == 2


@pytest.mark.requirement("cli.serve")
async def test_the_name_and_version_that_clients_are_told_can_be_chosen(workbench: Workbench) -> None:
    box = {"box": {"server": scripted_entry()}}
    async with workbench.serving(box, "--name", "my bench", "--version", "9.8") as client:
        info = (await client.initialize())["serverInfo"]
        # Clients show the title where there is one.
        assert info == {"name": "my bench", "title": "my bench", "version": "9.8"}
    async with workbench.serving(box) as client:
        info = (await client.initialize())["serverInfo"]
        assert (info["name"], info["title"]) == ("mcp-workbench", "MCP Workbench")


async def test_request_before_the_handshake_names_the_missing_part(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}, era="modern") as client:
        client._meta = {}
        with pytest.raises(RpcError, match="initialize") as caught:
            await client.request("tools/list")
        assert caught.value.code == -32602
        assert await client.request("ping") == {}
        client.stamp("2031-01-01")
        with pytest.raises(RpcError) as caught:
            await client.request("tools/list")
        assert (caught.value.code, caught.value.data) == (
            -32022,
            {"supported": ["2026-07-28"], "requested": "2031-01-01"},
        )


async def test_unknown_methods_are_refused_and_the_connection_survives(workbench: Workbench) -> None:
    async with workbench.serving({"one": {"a": scripted_entry()}, "two": {"b": scripted_entry()}}) as client:
        with pytest.raises(RpcError) as caught:
            await client.request("no/such/method")
        assert caught.value.code == -32601
        with pytest.raises(RpcError) as caught:
            await client.call_tool("open_tolbox")
        assert caught.value.code == -32602
        assert "`open_toolbox`" in caught.value.message
        await client.notify("notifications/no/such/notification", {"a": 1})
        assert await client.request("ping") == {}
