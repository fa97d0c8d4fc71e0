"""What every conversation pays for: the two tools and the instructions, through the real face."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.face.proxy import ProxyFace
from mcp_workbench.engine.router import toolbox_summaries
from mcp_workbench.errors import DownstreamError
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with


def boxes(count: int = 2) -> dict[str, dict[str, Server]]:
    return {f"toolbox {number:03} ä": {"server": Server(tool("read"))} for number in range(count)}


def minified(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def first_words(seen: ConnectedClient, era: str) -> Json:
    return await (seen.client.discover() if era == "modern" else seen.client.initialize())


def named_boxes(*names: str) -> dict[str, dict[str, Server]]:
    return {name: {"a": Server()} for name in names}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "names",
    [
        ("dev", "team"),
        tuple(f"toolbox-{number}" for number in range(20)),
        tuple(f"toolbox-{number}" for number in range(293)),
        tuple(f'"quoted" \\ {number}' for number in range(50)),
        ("x" * 60, "工具箱" * 20, *(f"工具{number}" for number in range(50))),
    ],
    ids=["two", "twenty", "many", "escaped", "long"],
)
async def test_the_two_tools_never_cost_more_than_300_tokens(tmp_path: Path, era: str, names: tuple[str, ...]) -> None:
    async with workbench_with(tmp_path, named_boxes(*names), era=era) as seen:
        listed = await seen.client.request("tools/list")
        two = listed["tools"]
        assert [each["name"] for each in two] == ["open_toolbox", "use_tool"]
        assert all(each["_meta"]["anthropic/alwaysLoad"] is True for each in two)
        # The o200k tokenizer counted 3.82 bytes a token in these definitions, so that 300 tokens are 1,146 bytes.
        assert sum(tokens(minified(each)) for each in two) <= 300
        assert sum(len(minified(each)) for each in two) <= 1_146
        assert set(two[0]["inputSchema"]["properties"]) == {
            *("toolbox_name", "query", "tools", "detail", "limit", "cursor")
        }


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_agents_are_taught_the_object_form(tmp_path: Path, era: str) -> None:
    async with workbench_with(tmp_path, boxes(2), era=era) as seen:
        use_tool = (await seen.client.request("tools/list"))["tools"][1]
        taught = '{"tool": {"toolbox": …, "server": …, "tool": …}, "arguments": {…}}'
        assert taught in use_tool["description"]
        assert taught in (await first_words(seen, era))["instructions"]
        schema = use_tool["inputSchema"]["properties"]["tool"]
        name = {"type": "string", "minLength": 1}
        parts = {"toolbox": name, "server": name, "tool": name}
        assert schema["anyOf"][0] == {"type": "object", "properties": parts, "required": list(parts)}
        # Models write paths all the same, and clients that check arguments let them pass.
        assert schema["anyOf"][1:] == [{"type": "string"}]


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
async def test_nothing_that_clients_cut_is_longer_than_2048_bytes(tmp_path: Path, count: int) -> None:
    async with workbench_with(tmp_path, boxes(count)) as seen:
        for each in (await seen.client.request("tools/list"))["tools"]:
            assert len(each["description"].encode()) <= 2048
        instructions = (await first_words(seen, "legacy"))["instructions"]
        assert len(instructions.encode()) <= 2048
        assert "open_toolbox" in instructions and "use_tool" in instructions


async def test_toolboxes_are_named_in_the_description_for_clients_that_ignore_instructions(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(2)) as seen:
        described = (await seen.client.request("tools/list"))["tools"][0]["description"]
        assert "toolbox 000 ä, toolbox 001 ä" in described
    async with workbench_with(tmp_path, named_boxes("dev", "team", "ops")) as seen:
        described = (await seen.client.request("tools/list"))["tools"][0]["description"]
        assert described.endswith("Toolboxes: dev, team, ops")
    async with workbench_with(tmp_path, boxes(200)) as seen:
        described = (await seen.client.request("tools/list"))["tools"][0]["description"]
        assert described.endswith("200 toolboxes. `open_toolbox {}` lists them.")


async def test_both_eras_are_told_the_same(tmp_path: Path) -> None:
    told = {}
    for era in ("legacy", "modern"):
        async with workbench_with(tmp_path, boxes(), era=era) as seen:
            told[era] = (await first_words(seen, era))["instructions"]
    assert told["legacy"] == told["modern"]


def words(number: int) -> Server:
    subject = ("weather", "invoice", "branch")[number]
    return Server(*(tool(f"{subject}_{verb}", f"{verb.title()}s the {subject}.") for verb in ("get", "list", "delete")))


async def test_once_known_toolboxes_are_told_by_count_and_by_the_words_that_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox_summaries, "SUMMARISE_AFTER", 0.0)
    every = {"one": {"a": words(0)}, "two": {"b": words(1), "c": words(2)}}
    async with workbench_with(tmp_path, every) as seen:
        assert "tools)" not in (await first_words(seen, "legacy"))["instructions"]
        await seen.open(query="weather")
        while not list(tmp_path.rglob("summary-*.bin")):
            await asyncio.sleep(0.01)
    async with workbench_with(tmp_path, every) as seen:
        instructions = (await first_words(seen, "legacy"))["instructions"]
        assert "- one (3 tools): Toolbox one. [weather" in instructions
        assert "- two (6 tools): Toolbox two. [" in instructions
        assert "invoice" in instructions and "branch" in instructions
        # The same in the index that `open_toolbox` gives without arguments.
        _, first, second = (await seen.said()).split("\n")
        assert first.startswith("- one (3 tools): Toolbox one. [weather") and second.startswith("- two (6 tools)")


async def test_a_server_that_is_listed_alone_does_not_make_its_toolbox_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox_summaries, "SUMMARISE_AFTER", 0.0)
    every = {"two": {"b": words(1), "c": words(2)}}
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(query="branch")
    every["two"]["b"].tools.append(tool("invoice_send", "Sends the invoice."))
    async with workbench_with(tmp_path, every) as seen:
        await seen.use("two/b/invoice_send")
        while "two (7 tools)" not in await seen.said():
            await asyncio.sleep(0.01)


async def test_servers_listed_meanwhile_by_another_process_are_introduced_on_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its servers list what their manifests say by then, so nothing changes that would be told."""
    monkeypatch.setattr(toolbox_summaries, "SUMMARISE_AFTER", 0.0)
    every = {"one": {"a": words(0)}}
    async with workbench_with(tmp_path, every) as seen:
        assert "tools)" not in (await first_words(seen, "legacy"))["instructions"]
        async with workbench_with(tmp_path, every) as other:
            await other.open(toolbox_name="one")
        await seen.open(toolbox_name="one")
        while "one (3 tools)" not in await seen.said():
            await asyncio.sleep(0.01)


async def test_the_same_tools_are_told_in_the_same_bytes_whenever_a_process_ended(tmp_path: Path) -> None:
    every = {f"box {number}": {"a": words(number % 3)} for number in range(12)}
    async with workbench_with(tmp_path, every) as seen:
        # Ends before anybody had the time to sum up what was learnt.
        await seen.open(query="weather")
    told = set()
    for number in range(4):
        async with workbench_with(tmp_path, every) as seen:
            told.add((await first_words(seen, "legacy"))["instructions"])
            await seen.use(f"box {number}/a/weather_get")
            told.add((await first_words(seen, "legacy"))["instructions"])
    (text,) = told
    assert text.count("(3 tools)") == 12


async def test_servers_listed_by_another_process_are_introduced(tmp_path: Path) -> None:
    every = {"one": {"a": words(0)}, "two": {"b": words(1)}}
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(toolbox_name="one")
    async with workbench_with(tmp_path, every) as first:
        assert "two (3 tools)" not in (await first_words(first, "legacy"))["instructions"]
        async with workbench_with(tmp_path, every) as second:
            await second.open(toolbox_name="two")
    async with workbench_with(tmp_path, every) as seen:
        instructions = (await first_words(seen, "legacy"))["instructions"]
        assert "- one (3 tools)" in instructions and "- two (3 tools)" in instructions


async def test_a_server_that_failed_for_good_is_introduced_as_it_was_known(tmp_path: Path) -> None:
    every = {"one": {"a": words(0)}, "two": {"b": words(1)}}
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(query="weather")
    async with workbench_with(tmp_path, every) as seen:
        before = (await first_words(seen, "legacy"))["instructions"]
        seen.gateway.catalog.load(seen.gateway.catalog.entries())
        seen.gateway.catalog.servers.withdraw(seen.gateway.catalog.toolboxes["two"]["b"], DownstreamError("crashed"))
        face = seen.gateway.face
        assert isinstance(face, ProxyFace)
        face.tool_index.summarise()
        assert (await first_words(seen, "legacy"))["instructions"] == before
