"""`open_toolbox` through the real face: the index, a toolbox, definitions, and nothing over the budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

READ = tool("read_file", "Reads a file. Lines may be chosen.", path_="string", lines={"type": "integer", "default": 10})
WRITE = tool("write_file", "Writes a file.", path_="string", text_="string")
FILES = Server(READ, WRITE)


def many(count: int, words: int = 40, arguments: int = 4) -> Server:
    about = "what this argument is for, told at length " * 2
    # Three kinds of tools, so that no argument is one that most of them share.
    properties: list[dict[str, Any]] = [
        {f"argumen{kind}_{number}_": {"type": "string", "description": about} for number in range(arguments)}
        for kind in range(3)
    ]
    return Server(
        *(tool(f"tool_{each:04}", "Does it. " + "word " * words, **properties[each % 3]) for each in range(count))
    )


def tokens(result: Json) -> int:
    """What the answer costs a client that shows the text, or one that shows the structured content: the larger."""
    structured = json.dumps(result.get("structuredContent", ""), ensure_ascii=False, separators=(",", ":"))
    return max(len(text_of(result).encode()), len(structured.encode())) // 4


# what there is


async def test_without_arguments_the_toolboxes_are_listed_and_nothing_is_started(tmp_path: Path) -> None:
    files = Server(READ)
    async with workbench_with(tmp_path, {"dev": {"files": files}, "ops": {"logs": Server()}}) as seen:
        result = await seen.open()
        assert text_of(result).split("\n") == [
            "2 toolboxes:",
            "- dev: Toolbox dev. (servers: files)",
            "- ops: Toolbox ops. (servers: logs)",
        ]
        assert "structuredContent" not in result
        assert files.starts == 0


@pytest.mark.parametrize("empty", [{}, {"toolbox_name": None, "query": None, "tools": [], "cursor": ""}])
async def test_arguments_that_are_empty_count_as_absent(tmp_path: Path, empty: Json) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        assert (await seen.said(**empty)).startswith("1 toolbox:\n- dev")
        found = await seen.open(toolbox_name="dev", query="", tools=None)
        assert [each["name"] for each in found["structuredContent"]["tools"]] == ["read_file", "write_file"]


async def test_five_hundred_toolboxes_are_introduced_within_the_budget_and_none_is_lost(tmp_path: Path) -> None:
    boxes = {f"toolbox number {number:03} with a long name": {"server": Server()} for number in range(500)}
    descriptions = dict.fromkeys(boxes, "What it is for, told at length. " * 20)
    async with workbench_with(tmp_path, boxes, descriptions=descriptions, budget=1000) as seen:
        found: list[str] = []
        cursor = None
        while True:
            result = await seen.open(**({} if cursor is None else {"cursor": cursor}))
            assert tokens(result) <= 1000
            head, *lines = text_of(result).split("\n")
            assert head == "500 toolboxes:"
            found += [line.removeprefix("- ").partition(":")[0] for line in lines if line.startswith("- ")]
            _, told, cursor = lines[-1].partition(" more follow: the same with `cursor: ")
            if not told:
                break
            cursor = json.loads(cursor.partition("`")[0])
        assert found == list(boxes)


async def test_an_index_tells_as_much_of_each_toolbox_as_fits(tmp_path: Path) -> None:
    boxes = {f"box {number}": {"server": Server()} for number in range(30)}
    descriptions = dict.fromkeys(boxes, "What it is for. " * 20)
    async with workbench_with(tmp_path, boxes, descriptions=descriptions, budget=1500) as seen:
        text = await seen.said()
        assert 4 * 1400 < len(text.encode()) <= 4 * 1500
        assert text.count("\n- box ") == 30 and text.count("What it is for. What it is for.") >= 30


# one toolbox


async def test_a_small_toolbox_comes_with_full_schemas_and_no_note(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        content = (await seen.open(toolbox_name="dev"))["structuredContent"]
        assert content["form"] == "full"
        assert "note" not in content
        first = content["tools"][0]
        assert (first["toolbox_name"], first["source_server"], first["name"]) == ("dev", "files", "read_file")
        assert first["inputSchema"] == READ["inputSchema"]


async def test_lean_definitions_have_no_output_schemas_and_unknown_fields(tmp_path: Path) -> None:
    rich = {**READ, "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}, "x-own": [1]}
    async with workbench_with(tmp_path, {"dev": {"files": Server(rich)}}) as seen:
        for arguments in ({"toolbox_name": "dev"}, {"tools": ["dev/read_file"]}, {"query": "read"}):
            text = await seen.said(**arguments, detail="lean")
            assert "read_file" in text
            assert "outputSchema" not in text and "x-own" not in text and "annotations" not in text


@pytest.mark.parametrize("budget", [300, 500, 1000, 2000, 6000, 20_000])
@pytest.mark.parametrize("count", [1, 30, 400])
async def test_nothing_is_over_the_budget_however_many_tools_there_are(tmp_path: Path, budget: int, count: int) -> None:
    box = {"big": many(count), "broken": Server(), "talkative": Server(READ, instructions="Mind the gap. " * 200)}
    box["broken"].failing = "it does not start: " + "stderr " * 2000
    async with workbench_with(tmp_path, {"dev": box}, descriptions={"dev": "About it. " * 300}, budget=budget) as seen:
        seen_tools: list[str] = []
        arguments: Json = {"toolbox_name": "dev"}
        for _ in range(1000):
            result = await seen.open(**arguments)
            assert tokens(result) <= budget
            text = text_of(result)
            assert "broken" in text
            if '"cursor"' not in text and "`cursor:" not in text:
                break
            cursor = (
                text.split('`cursor: "')[1].split('"`')[0]
                if "structuredContent" not in result
                else (result["structuredContent"]["cursor"])
            )
            seen_tools.append(cursor)
            arguments = {"toolbox_name": "dev", "cursor": cursor}
        else:
            pytest.fail("the pages do not end")
        assert len(seen_tools) == len(set(seen_tools))


async def test_a_budget_is_that_of_the_request_else_of_the_toolbox_else_of_the_file(tmp_path: Path) -> None:
    boxes = {"one": {"big": many(50)}, "two": {"big": many(50)}, "three": {"big": many(50)}}
    async with workbench_with(tmp_path, boxes, budget=400, budgets={"two": 3000, "three": None}) as seen:
        assert 300 < len((await seen.said(toolbox_name="one")).encode()) <= 4 * 400
        one, two = [len((await seen.said(toolbox_name=name)).encode()) for name in ("one", "two")]
        assert one < two <= 4 * 3000
        everything = await seen.open(toolbox_name="three")
        assert len(everything["structuredContent"]["tools"]) == 50
        assert everything["structuredContent"]["form"] == "full"
        assert await seen.open(toolbox_name="one", budget=None) != await seen.open(toolbox_name="one")
        assert len((await seen.open(toolbox_name="one", budget=None))["structuredContent"]["tools"]) == 50
        assert len((await seen.said(toolbox_name="three", budget=300)).encode()) <= 4 * 300


async def test_a_budget_of_the_request_may_be_spent_whole_in_every_form(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"all": many(60, words=150)}}) as seen:
        forms = []
        for budget in range(300, 27_000, 200):
            result = await seen.open(toolbox_name="dev", budget=budget)
            assert tokens(result) <= budget
            text = text_of(result)
            told = json.loads(text)["form"] if text.startswith("{") else text.partition(",")[2].partition(", to fit")[0]
            if told not in forms:
                forms.append(told)
        assert forms == [
            " names with a sentence, arguments left out",
            " names with arguments, types left out",
            " signatures with first sentences",
            " signatures with clipped descriptions",
            " signatures with full descriptions",
            "lean",
            "full",
        ]


@pytest.mark.parametrize("budget", [0, -1, 299])
async def test_a_budget_that_cannot_hold_an_answer_is_refused(tmp_path: Path, budget: int) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        result = await seen.open(toolbox_name="dev", budget=budget)
        assert result["isError"] is True
        assert "from 300 up" in text_of(result)


@pytest.mark.parametrize("detail", ["full", "lean", "text", "clipped", "sentence", "arguments", "names"])
async def test_every_form_can_be_asked_for_and_says_which_it_is(tmp_path: Path, detail: str) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        result = await seen.open(toolbox_name="dev", detail=detail)
        text = text_of(result)
        assert "read_file" in text and "write_file" in text
        if detail in ("full", "lean"):
            assert result["structuredContent"]["form"] == detail
            signatures = [each.pop("signature") for each in result["structuredContent"]["tools"]]
            assert signatures == ["(path: string, lines?: integer = 10)", "(path: string, text: string)"]
            assert json.loads(text) == result["structuredContent"]
        else:
            assert text.startswith("dev: 2 tools, ")
            assert "`open_toolbox` with `tools`" in text


async def test_a_shorter_form_shows_paths_that_can_be_used(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        lines = (await seen.said(toolbox_name="dev", detail="sentence")).split("\n")
        assert lines[1:] == [
            "dev/files/",
            "read_file(path: string, lines?: integer = 10) - Reads a file.",
            "write_file(path: string, text: string) - Writes a file.",
        ]


async def test_a_signature_that_is_not_complete_is_marked(tmp_path: Path) -> None:
    deep: Json = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "object"}}}}}
    deep["properties"]["a"]["properties"]["b"]["properties"] = {"c": {"type": "string"}}
    async with workbench_with(tmp_path, {"dev": {"files": Server(tool("deep", "Goes deep.", value=deep))}}) as seen:
        text = await seen.said(toolbox_name="dev", detail="sentence")
        assert "deep(value?: {a?: {b?: {…}}}) - Goes deep." in text
        assert "`…` marks what is left out." in text


async def test_a_limit_cuts_a_toolbox_into_pages(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"big": many(25, words=2, arguments=0)}}) as seen:
        first = (await seen.open(toolbox_name="dev", limit=10))["structuredContent"]
        assert len(first["tools"]) == 10
        assert first["note"].startswith("10 of 25 tools")
        second = (await seen.open(toolbox_name="dev", limit=10, cursor=first["cursor"]))["structuredContent"]
        third = (await seen.open(toolbox_name="dev", limit=10, cursor=second["cursor"]))["structuredContent"]
        names = [each["name"] for page in (first, second, third) for each in page["tools"]]
        assert names == [f"tool_{number:04}" for number in range(25)]
        assert "cursor" not in third


async def test_instructions_of_servers_are_told_where_they_cost_no_schema(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": Server(READ, instructions="Paths are relative.")}}) as seen:
        content = (await seen.open(toolbox_name="dev"))["structuredContent"]
        assert content["instructions"] == {"files": "Paths are relative."}


async def test_a_toolbox_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    broken = Server()
    broken.failing = "no licence found"
    async with workbench_with(tmp_path, {"dev": {"broken": broken}}) as seen:
        result = await seen.open(toolbox_name="dev")
        assert result["isError"] is True
        (entry,) = result["structuredContent"]["unavailable"]
        assert entry["server"] == "broken"
        assert "no licence found" in entry["reason"]
        assert entry["retry"]


async def test_the_index_says_which_toolbox_could_not_be_opened(tmp_path: Path) -> None:
    broken = Server()
    broken.failing = "no licence found"
    async with workbench_with(tmp_path, {"dev": {"broken": broken}, "ops": {"files": FILES, "broken": broken}}) as seen:
        assert "not available" not in await seen.said()
        await seen.open(toolbox_name="dev")
        await seen.open(toolbox_name="ops")
        _, dev, why, ops = (await seen.said()).split("\n")
        assert dev.startswith("- dev") and ops.startswith("- ops")
        assert why == "  not available: no licence found"


async def test_unavailable_servers_are_listed_beside_text_lines_too(tmp_path: Path) -> None:
    broken = Server()
    broken.failing = "no licence found"
    async with workbench_with(tmp_path, {"dev": {"files": FILES, "broken": broken}}) as seen:
        text = await seen.said(toolbox_name="dev", detail="names")
        assert "Not available: broken: " in text and "no licence found" in text


# definitions


@pytest.mark.parametrize(
    "arguments",
    [
        {"tools": ["dev/files/read_file"]},
        {"tools": ["dev/read_file"]},
        {"tools": ["files/read_file"]},
        {"tools": "dev/files/read_file"},
        {"tools": [{"toolbox": "dev", "server": "files", "tool": "read_file"}]},
        {"tools": [{"toolbox_name": "dev", "source_server": "files", "name": "read_file"}]},
        {"toolbox_name": "dev", "tools": ["files/read_file"]},
        {"toolbox_name": "dev", "tools": ["read_file"]},
        {"toolbox_name": "dev", "tools": ["dev/files/read_file"]},
        {"toolbox": "dev", "tools": ["read_file"]},
        {"query": "write", "tools": ["dev/read_file", "dev/files/read_file"]},
    ],
)
async def test_named_tools_come_with_their_whole_schema(tmp_path: Path, arguments: Json) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        content = (await seen.open(**arguments))["structuredContent"]
        (shown,) = content["tools"]
        del shown["signature"]
        assert shown == {"toolbox_name": "dev", "source_server": "files", **READ}


async def test_a_wrong_name_is_reported_with_the_nearest_and_the_right_ones_are_shown(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        content = (await seen.open(tools=["dev/files/read_file", "dev/files/wriet_file"]))["structuredContent"]
        assert [each["name"] for each in content["tools"]] == ["read_file"]
        assert "did you mean `dev/files/write_file`" in content["missing"][0]
        alone = await seen.open(tools=["dev/files/wriet_file"])
        assert alone["isError"] is True
        assert "`dev/files/write_file`" in text_of(alone)


async def test_definitions_that_do_not_fit_become_lean_or_are_named_as_left_out(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"big": many(40)}}) as seen:
        asked = [f"dev/big/tool_{number:04}" for number in range(40)]
        left, rounds = asked, 0
        while left:
            result = await seen.open(tools=left, budget=2000)
            assert tokens(result) <= 2000
            content = result["structuredContent"]
            shown = [f"dev/big/{each['name']}" for each in content["tools"]]
            assert shown == left[: len(shown)]
            assert content.get("left_out", []) == left[len(shown) :]
            left, rounds = left[len(shown) :], rounds + 1
        assert rounds > 1


async def test_one_definition_that_is_over_the_budget_alone_is_shown_shorter_and_says_how_to_get_it(
    tmp_path: Path,
) -> None:
    huge = tool("huge", "Does everything.", value={"type": "string", "enum": [f"choice {n}" for n in range(3000)]})
    async with workbench_with(tmp_path, {"dev": {"files": Server(huge)}}) as seen:
        result = await seen.open(tools=["dev/huge"])
        assert tokens(result) <= 6000
        text = text_of(result)
        assert "dev/files/huge(" in text and "…" in text
        assert "`budget: null`" in text
        whole = (await seen.open(tools=["dev/huge"], budget=None))["structuredContent"]["tools"][0]
        assert whole["inputSchema"] == huge["inputSchema"]


# what is wrong with a request


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"toolbox_name": "dve"}, "did you mean `dev`?"),
        ({"toolbx_name": "dev"}, "did you mean `toolbox_name`?"),
        ({"detail": "everything"}, "full, input, lean, text"),
        ({"toolbox_name": "dev", "limit": 0}, "from 1 to 50"),
        ({"toolbox_name": 5}, "toolbox_name"),
        ({"tools": [f"dev/{number}" for number in range(51)]}, "at most 50"),
        ({"query": "read", "cursor": "full:a"}, "raise `limit`"),
        ({"tools": [5]}, "tools"),
    ],
)
async def test_malformed_request_explains_the_mistake(tmp_path: Path, arguments: Json, said: str) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        result = await seen.open(**arguments)
        assert result["isError"] is True
        assert said in text_of(result)


async def test_arguments_that_are_no_object_are_refused(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        result = await seen.client.request("tools/call", {"name": "open_toolbox", "arguments": ["dev"]})
        assert result["isError"] is True


async def opened_names(seen: ConnectedClient, **arguments: Any) -> list[str]:
    return [each["name"] for each in (await seen.open(**arguments))["structuredContent"]["tools"]]


async def test_a_cursor_of_another_time_is_harmless(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"files": FILES}}) as seen:
        assert await opened_names(seen, toolbox_name="dev", cursor="full:files/read_file") == ["write_file"]
        assert await opened_names(seen, toolbox_name="dev", cursor="full:") == ["read_file", "write_file"]
