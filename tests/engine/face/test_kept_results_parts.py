"""What is shown of a large result: the part that was asked for, shapes, ends of logs, and nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import MODERN_VERSION, Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

CITIES = "name,city,amount\n" + "".join(
    f"person {number},{'Wien' if number % 4 == 0 else 'Graz'},{number}\n" for number in range(1000)
)
EVENTS = "".join(json.dumps({"service": "auth" if number % 2 else "web", "ms": number}) + "\n" for number in range(800))
LOG = "".join(
    f"12:00:{number % 60:02} {'ERROR' if number % 10 == 3 else 'info'} web {number}\n" for number in range(2000)
)
ISSUES = [{"id": number, "title": f"Issue {number}"} for number in range(5000)]


def text(value: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": value}], **more}


def boxes(result: Json, **settings: Any) -> dict[str, dict[str, Server]]:
    return {"dev": {"api": Server(tool("get"), answer=lambda name, arguments: result, **settings)}}


async def kept_uri(seen: ConnectedClient, **more: Any) -> tuple[str, str]:
    result = await seen.use("dev/api/get", **more)
    return text_of(result), result["content"][1]["uri"]


# tables


@pytest.mark.parametrize(
    ("table", "expression", "found"),
    [
        (CITIES, "[?city=='Wien'] | length(@)", "250"),
        (CITIES, "sum([?city=='Graz'].to_number(amount))", str(sum(n for n in range(1000) if n % 4))),
        (EVENTS, "[?service=='auth'].ms | max(@)", "799"),
    ],
)
async def test_select_reads_csv_and_json_lines_as_records(
    tmp_path: Path, table: str, expression: str, found: str
) -> None:
    async with workbench_with(tmp_path, boxes(text(table))) as seen:
        assert float(text_of(await seen.use("dev/api/get", select=expression))) == float(found)
        _, uri = await kept_uri(seen, max_tokens=300)
        piece = text_of(await seen.use(uri, {"select": expression}))
        assert float(piece.partition("\n")[2]) == float(found)


@pytest.mark.parametrize("arguments", [None, {"start": 0}])
async def test_select_may_stand_beside_the_address_as_beside_any_tool(tmp_path: Path, arguments: Json | None) -> None:
    async with workbench_with(tmp_path, boxes(text(json.dumps(ISSUES)))) as seen:
        _, uri = await kept_uri(seen, max_tokens=300)
        given = {} if arguments is None else {"arguments": arguments}
        result = await seen.client.call_tool("use_tool", {"tool": uri, "select": "[7].title", **given})
        assert text_of(result) == '(characters 0 to 9 of 9)\n"Issue 7"'


async def test_the_shape_of_a_table_is_reported(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(CITIES))) as seen:
        head, _ = await kept_uri(seen, max_tokens=300)
        assert "Shape: 1,000 × {name: string, city: string, amount: string}" in head


# shapes instead of values


async def test_a_large_value_is_shown_by_its_shape_and_a_sample(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(json.dumps(ISSUES)))) as seen:
        head, _ = await kept_uri(seen)
        assert "Shape: 5,000 × {id: integer, title: string}" in head and '"Issue 1"' in head
        assert len(head) < 3_000, "the budget is 20,000 tokens, of which values would take all"


# logs


async def test_of_a_log_the_first_and_the_last_lines_are_shown(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LOG))) as seen:
        head, _ = await kept_uri(seen, max_tokens=400)
        lines = head.split("\n")
        assert LOG.split("\n")[0] in lines and LOG.split("\n")[-2] in lines
        shown = sum(line in lines for line in LOG.split("\n")[:-1])
        (gap,) = [line for line in lines if line.startswith("… (")]
        assert f"{2000 - shown:,} lines" in gap


async def test_one_long_line_is_shown_from_its_start(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text("word " * 20_000))) as seen:
        head, _ = await kept_uri(seen, max_tokens=300)
        assert "word word" in head and "… (" not in head


async def test_lines_are_counted_in_all_and_for_each_alternative(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LOG))) as seen:
        _, uri = await kept_uri(seen, max_tokens=300)
        counted = text_of(await seen.use(uri, {"grep": "ERROR", "count": True}))
        assert counted == "(200 matching lines)"
        each = text_of(await seen.use(uri, {"grep": "12:00:03*ERROR|12:00:13*ERROR|none of it", "count": True}))
        assert each.split("\n")[1:] == ["34: 12:00:03*ERROR", "34: 12:00:13*ERROR", "0: none of it"]


# nothing twice

VALUE = {"rows": [{"id": number, "title": f"Title {number}"} for number in range(100)]}
TWICE = text(json.dumps(VALUE, indent=2), structuredContent=VALUE)
WRAPPED = text("a long text\n" * 200, structuredContent={"content": "a long text\n" * 200})
DIFFERENT = text("100 rows were found. " * 60, structuredContent=VALUE)


async def introduced(seen: ConnectedClient, name: str, era: str) -> None:
    info = {"name": name, "version": "1"}
    if era == "modern":
        seen.client.stamp(MODERN_VERSION)
        seen.client._meta["io.modelcontextprotocol/clientInfo"] = info
    else:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        await seen.client.request("initialize", params)


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["claude-code", "copilot-cli", "gemini-cli-mcp-client"])
async def test_clients_that_read_one_of_text_and_structure_get_it_once(tmp_path: Path, client: str, era: str) -> None:
    async with workbench_with(tmp_path, boxes(TWICE), era=era) as seen:
        await introduced(seen, client, era)
        result = await seen.use("dev/api/get")
        assert "structuredContent" not in result and json.loads(text_of(result)) == VALUE
        # Where the model sees nothing but text, it sees what the server wrote.
        is_shorter = len(text_of(result)) < len(json.dumps(VALUE, indent=2))
        assert is_shorter == (client != "gemini-cli-mcp-client")


async def test_a_text_in_an_object_is_sent_as_text(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(WRAPPED)) as seen:
        await introduced(seen, "claude-code", "legacy")
        result = await seen.use("dev/api/get")
        assert "structuredContent" not in result and text_of(result) == "a long text\n" * 200


@pytest.mark.parametrize("client", ["raw-client", "cursor-vscode"])
async def test_clients_of_which_nothing_is_known_get_both(tmp_path: Path, client: str) -> None:
    async with workbench_with(tmp_path, boxes(TWICE)) as seen:
        await introduced(seen, client, "legacy")
        assert await seen.use("dev/api/get") == TWICE


@pytest.mark.parametrize(
    "result",
    [
        DIFFERENT,
        {**TWICE, "isError": True},
        {**TWICE, "content": [*TWICE["content"], {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"}]},
    ],
)
async def test_different_contents_are_both_sent(tmp_path: Path, result: Json) -> None:
    async with workbench_with(tmp_path, boxes(result)) as seen:
        await introduced(seen, "claude-code", "legacy")
        got = await seen.use("dev/api/get")
        assert got["structuredContent"] == VALUE and len(got["content"]) == len(result["content"])
