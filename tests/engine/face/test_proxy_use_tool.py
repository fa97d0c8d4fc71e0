"""`use_tool` through the real face: names in every form, and arguments that are checked before the call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.face.argument_check import MAX_CHECKED_BYTES
from tests.support.client import Json
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with

READ = tool("read_file", "Reads a file.", path_="string", lines={"type": "integer", "minimum": 1})
LOG = tool("log", "Shows commits.", branch="string")


def boxes(**settings: Any) -> dict[str, dict[str, Server]]:
    return {
        "dev": {"files": Server(READ, tool("stat"), **settings), "git": Server(LOG, tool("stat"), tool("a/b"))},
        "team/work": {"ti/ckets": Server(tool("create"), tool("list/all")), "ti": Server(tool("ckets/create"))},
    }


# names


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ("dev/files/read_file", ("dev", "files", "read_file")),
        ("dev/git/a/b", ("dev", "git", "a/b")),
        ({"toolbox": "dev", "server": "files", "tool": "read_file"}, ("dev", "files", "read_file")),
        ({"toolbox": "team/work", "server": "ti", "tool": "ckets/create"}, ("team/work", "ti", "ckets/create")),
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_a_tool_is_found_by_its_identity_or_by_its_path(
    tmp_path: Path, given: Any, called: tuple[str, str, str], known: bool
) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        if known:
            await seen.open(query="anything")
        result = await seen.use(given, {"path": "x"})
        assert "isError" not in result, text_of(result)
        box, server, name = called
        assert every[box][server].calls == [(name, {"path": "x"})]


@pytest.mark.parametrize(
    "arguments",
    [
        {"toolbox": "dev", "server": "git", "tool": "a/b", "arguments": {"n": 1}},
        {"tool": {"toolbox": "dev", "server": "git", "tool": "a/b"}, "arguments": '{"n": 1}'},
        {"tool": "dev/git/a/b", "arguments": '{"n": 1}'},
    ],
)
async def test_the_parts_may_stand_beside_the_arguments_also_with_slashes(tmp_path: Path, arguments: Json) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.client.call_tool("use_tool", arguments)
        assert "isError" not in result, text_of(result)
        assert every["dev"]["git"].calls == [("a/b", {"n": 1})]


async def test_a_whole_path_starts_no_other_server(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.use("dev/files/read_file", {"path": "x"})
        assert every["dev"]["git"].starts == 0


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("dev/files/raed_file", "`read_file`"),
        ("dve/files/read_file", "`dev/files/read_file`"),
        ("dev/raed_file", "`dev/files/read_file`"),
        ("read_file", "`dev/files/read_file`"),
        ("raed_file", "`dev/files/read_file`"),
    ],
)
async def test_a_wrong_path_is_answered_with_the_nearest(tmp_path: Path, path: str, near: str) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.open(query="anything")
        result = await seen.use(path)
        assert result["isError"] is True
        assert near in text_of(result)


# arguments


async def test_wrong_arguments_are_refused_with_place_suggestion_and_schema(
    tmp_path: Path,
) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.use("dev/files/read_file", {"pth": "x", "lines": 0})
        assert result["isError"] is True
        first, *problems, schema = text_of(result).split("\n")
        assert first == "[dev/files/read_file] the arguments are invalid, so it was not called:"
        assert problems == ["- $: `path` is missing (`pth` was sent).", "- $.lines: expected at least 1, got 0."]
        assert json.loads(schema.removeprefix("Its schema: ")) == READ["inputSchema"]
        assert every["dev"]["files"].calls == []


async def test_checking_can_be_switched_off(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, checkArguments=False) as seen:
        assert "isError" not in await seen.use("dev/files/read_file", {"lines": "many"})
        assert every["dev"]["files"].calls == [("read_file", {"lines": "many"})]


async def test_arguments_that_are_too_large_to_look_at_are_the_servers_to_judge(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        large = {"path": "x" * MAX_CHECKED_BYTES, "lines": "many"}
        assert "isError" not in await seen.use("dev/files/read_file", large)
        assert every["dev"]["files"].calls == [("read_file", large)]


DRAFTS = {
    "none": {},
    "2020-12": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
    "2019-09": {"$schema": "https://json-schema.org/draft/2019-09/schema"},
    "draft 7": {"$schema": "http://json-schema.org/draft-07/schema#"},
    "draft 6": {"$schema": "http://json-schema.org/draft-06/schema#"},
    "draft 4": {"$schema": "http://json-schema.org/draft-04/schema#"},
}


@pytest.mark.parametrize("draft", DRAFTS)
async def test_references_are_followed_in_every_draft(tmp_path: Path, draft: str) -> None:
    home = "$defs" if draft.startswith("20") else "definitions"
    schema = {
        **DRAFTS[draft],
        "type": "object",
        "properties": {"point": {"$ref": f"#/{home}/point"}, "speed": {"type": "number", "minimum": 0}},
        home: {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }
    if draft == "draft 4":
        schema["properties"]["speed"]["exclusiveMinimum"] = True  # type: ignore[index]
    server = Server({"name": "go", "inputSchema": schema})
    async with workbench_with(tmp_path, {"dev": {"car": server}}) as seen:
        assert "$.point: `x` is missing" in text_of(await seen.use("dev/car/go", {"point": {}}))
        assert "isError" not in await seen.use("dev/car/go", {"point": {"x": 1}, "speed": 1})
        assert len(server.calls) == 1


async def test_limits_of_draft_four_do_not_stop_a_call_that_fits(tmp_path: Path) -> None:
    limited = {
        "name": "go",
        "inputSchema": {"properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}},
    }
    server = Server(limited)
    async with workbench_with(tmp_path, {"dev": {"car": server}}) as seen:
        assert "isError" not in await seen.use("dev/car/go", {"n": 1})
        assert "expected more than 0" in text_of(await seen.use("dev/car/go", {"n": 0}))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$schema": "https://example.test/own-dialect", "required": ["x"]},
        {"properties": {"a": {"$ref": "https://example.test/elsewhere"}}},
        {"anyOf": [{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"$ref": "#"}]},
        "not a schema",
        None,
    ],
)
async def test_a_schema_that_cannot_be_judged_stops_no_call(tmp_path: Path, schema: Any) -> None:
    server = Server({"name": "go", "inputSchema": schema})
    async with workbench_with(tmp_path, {"dev": {"car": server}}) as seen:
        assert "isError" not in await seen.use("dev/car/go", {"a": {"b": [1]}})
        assert server.calls == [("go", {"a": {"b": [1]}})]


async def test_a_stale_schema_stops_no_call_that_the_server_accepts_now(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": Server(READ)}}) as seen:
        await seen.open(toolbox_name="dev")
    newer = Server(tool("read_file", "Reads a file.", file_="string"))
    async with workbench_with(tmp_path, {"dev": {"files": newer}}) as seen:
        assert "isError" not in await seen.use("dev/files/read_file", {"file": "x"})
        assert newer.calls == [("read_file", {"file": "x"})]
        assert "`file` is missing (`path` was sent)" not in text_of(
            await seen.use("dev/files/read_file", {"file": "x"})
        )
        assert "`file` is missing" in text_of(await seen.use("dev/files/read_file", {"path": "x"}))


async def test_a_remembered_schema_lets_right_arguments_through_without_a_list(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": Server(READ)}}) as seen:
        await seen.open(toolbox_name="dev")
    again = Server(READ)
    async with workbench_with(tmp_path, {"dev": {"files": again}}) as seen:
        assert "isError" not in await seen.use("dev/files/read_file", {"path": "x"})
        assert again.calls == [("read_file", {"path": "x"})]


async def test_a_schema_that_changes_while_we_run_counts_from_then_on(tmp_path: Path) -> None:
    server = Server(READ)
    async with workbench_with(tmp_path, {"dev": {"files": server}}) as seen:
        await seen.use("dev/files/read_file", {"path": "x"})
        server.tools = [tool("read_file", "Reads a file.", file_="string")]
        server.say_changed()
        entry = seen.gateway.catalog.toolboxes["dev"]["files"]
        while b'"file"' not in bytes(entry.tools["read_file"]):
            await asyncio.sleep(0.01)
        assert "`file` is missing" in text_of(await seen.use("dev/files/read_file", {"path": "x"}))


async def test_an_error_of_the_server_names_its_tool_and_has_the_original_beside_it(tmp_path: Path) -> None:
    own = {"content": [{"type": "text", "text": "no such file"}], "isError": True, "_meta": {"a": 1}}
    async with workbench_with(tmp_path, {"dev": {"files": Server(READ, answer=lambda name, given: own)}}) as seen:
        shown = await seen.use("dev/files/read_file", {"path": "x"})
        assert shown["isError"] is True and text_of(shown) == "[dev/files/read_file] no such file"
        assert shown["_meta"] == {"a": 1, "mcp-workbench/result": own}


async def test_a_huge_schema_is_answered_with_the_signature_and_where_to_get_it(tmp_path: Path) -> None:
    huge = tool("huge", "", value_={"type": "string", "enum": [f"choice {number}" for number in range(3000)]})
    async with workbench_with(tmp_path, {"dev": {"files": Server(huge)}}) as seen:
        text = text_of(await seen.use("dev/files/huge", {"value": "x"}))
        assert len(text) < 2000
        assert "open_toolbox with `tools`: `dev/files/huge`" in text


async def test_large_arguments_are_not_looked_at(tmp_path: Path) -> None:
    server = Server(READ)
    async with workbench_with(tmp_path, {"dev": {"files": server}}) as seen:
        assert "isError" not in await seen.use("dev/files/read_file", {"path": 5, "text": "x" * (1 << 20)})
        assert len(server.calls) == 1


async def test_a_path_that_leads_nowhere_is_looked_for_by_its_words(tmp_path: Path) -> None:
    files = Server(tool("read_text_file"), tool("write_text_file"), tool("delete_directory"), *map(tool, "abcdefgh"))
    async with workbench_with(tmp_path, {"dev": {"filesystem": files}, "ops": {"logs": Server(tool("tail"))}}) as seen:
        await seen.open(query="everything")
        for text in (
            text_of(await seen.use("company-tools/file-service/fileReadContentsAsText")),
            await seen.said(tools=["company-tools/file-service/fileReadContentsAsText"]),
        ):
            assert "; similar tools are `dev/filesystem/read_text_file`, `dev/filesystem/write_text_file`" in text
            assert "logs" not in text and "/a`" not in text
        text = text_of(await seen.use("zzzz/zzzz/qqqqqqqqqqqqqqqqqqqqqqqqqq"))
        assert text.endswith('does not exist; find one with open_toolbox {"query": "…"}')


async def test_members_in_another_case_are_not_the_ones_that_count(tmp_path: Path) -> None:
    served = boxes()
    async with workbench_with(tmp_path, served) as client:
        await client.open(toolbox_name="dev")
        params = {
            "name": "use_tool",
            "Name": "open_toolbox",
            "arguments": {"tool": "dev/git/stat", "Tool": "dev/git/log", "arguments": {}, "Arguments": {"branch": "x"}},
        }
        await client.client.request("tools/call", params)
    assert [name for name, _ in served["dev"]["git"].calls] == ["stat"]
