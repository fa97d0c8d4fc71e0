"""What `open_toolbox` returns as structured content: for programs, and for clients that show it instead of the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.model import DEFAULT_BUDGET
from mcp_workbench.engine.economy.forms import Form
from tests.support.client import Json
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with

NOW = tool("now", "Says the time. In any zone.", zone="string")
WAIT = {
    **tool("wait", "Waits a while. Then goes on.", seconds_="number"),
    "title": "Wait",
    "outputSchema": {"type": "object", "properties": {"waited": {"type": "number"}}},
    "annotations": {"readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
    "icons": [{"src": "https://example.test/wait.png"}],
    "_meta": {"example.test/own": [1, 2.50]},
    "somethingNew": {"since": "2027"},
}
PLACE = {"toolbox_name": "desk", "source_server": "clock"}


def boxes(*tools: Json) -> dict[str, dict[str, Server]]:
    return {"desk": {"notes": Server(tool("add_note")), "clock": Server(*(tools or (NOW, WAIT)))}}


def many(count: int) -> list[Json]:
    return [tool(f"tool_{number:03}", "Does a thing. " * 20, path_="string", deep="object") for number in range(count)]


@pytest.mark.requirement("proxy.metadata")
@pytest.mark.parametrize(
    "request_",
    [
        {"toolbox_name": "desk", "detail": "full"},
        {"tools": ["desk/notes/add_note", "desk/clock/wait"]},
        {"query": "wait a while", "detail": "full"},
    ],
    ids=["opened", "by name", "searched"],
)
async def test_the_full_form_is_everything_that_the_server_sent(tmp_path: Path, request_: Json) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await seen.open(**request_)
        for content in (result["structuredContent"], json.loads(text_of(result))):
            assert content["form"] == "full"
            found = next(each for each in content["tools"] if each["name"] == "wait")
            assert {key: found[key] for key in WAIT} == WAIT
            assert {key: found[key] for key in PLACE} == PLACE


@pytest.mark.requirement("proxy.metadata")
async def test_default_form_has_required_arguments_and_the_way_to_the_rest(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await seen.open(toolbox_name="desk")
        for content in (result["structuredContent"], json.loads(text_of(result))):
            assert content["form"] == "input"
            assert '`detail: "full"`' in content["note"]
            found = next(each for each in content["tools"] if each["name"] == "wait")
            found.pop("signature", None)
            needed = {key: WAIT[key] for key in ("name", "title", "description", "inputSchema", "annotations")}
            assert found == {**PLACE, **needed}


async def test_definitions_without_more_than_calls_need_are_full(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(NOW)) as seen:
        content = (await seen.open(toolbox_name="desk"))["structuredContent"]
        assert content["form"] == "full" and "note" not in content


@pytest.mark.requirement("proxy.metadata")
async def test_instructions_that_do_not_fit_are_named_with_the_way_to_them(tmp_path: Path) -> None:
    told = {name: f"How to use {name}. " + "Carefully. " * 40 for name in ("notes", "clock")}
    servers = {
        "notes": Server(tool("add_note"), instructions=told["notes"]),
        "clock": Server(*many(5), instructions=told["clock"]),
    }
    left_out = 'instructions of servers left out ({}); `detail: "full", limit: 1` shows them'
    expected: list[tuple[Json, list[str], str | None]] = [
        ({}, ["notes", "clock"], None),
        ({"budget": 1_000}, ["notes"], "clock"),
        ({"budget": 800}, [], "notes, clock"),
        ({"detail": "names"}, [], None),
        ({"detail": "full", "limit": 1, "budget": 800}, ["notes", "clock"], None),
    ]
    async with workbench_with(tmp_path, {"desk": servers}) as seen:
        for request_, shown, named in expected:
            result = await seen.open(toolbox_name="desk", **request_)
            content = result["structuredContent"]
            assert list(content.get("instructions", {})) == shown, request_
            assert all(content["instructions"][name].strip() == told[name].strip() for name in shown)
            said = [] if named is None else [left_out.format(named)]
            assert content.get("notes", []) == said, request_
            assert all(json.dumps(each)[1:-1] in text_of(result) or each in text_of(result) for each in said)


@pytest.mark.requirement("proxy.metadata")
async def test_no_server_says_where_its_tool_comes_from(tmp_path: Path) -> None:
    lying = {**NOW, "toolbox_name": "prod", "source_server": "bank", "signature": "()"}
    async with workbench_with(tmp_path, boxes(lying, WAIT)) as seen:
        result = await seen.open(toolbox_name="desk")
        for content in (result["structuredContent"], json.loads(text_of(result))):
            found = next(each for each in content["tools"] if each["name"] == "now")
            assert {key: found[key] for key in PLACE} == PLACE
        assert '"prod"' not in json.dumps(result) and '\\"prod\\"' not in text_of(result)
        assert result["structuredContent"]["tools"][0]["signature"] == "(zone?: string)"


@pytest.mark.requirement("proxy.metadata")
@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("way", ["toolbox", "tools", "query"])
async def test_every_form_has_the_identity_and_the_signature_of_each_tool(tmp_path: Path, form: Form, way: str) -> None:
    ways: dict[str, Json] = {
        "toolbox": {"toolbox_name": "desk"},
        "tools": {"tools": ["desk/clock/now", "desk/clock/wait"]},
        "query": {"query": "time wait"},
    }
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await seen.open(**ways[way], detail=form.value)
        content = result["structuredContent"]
        assert content["form"] == form
        found = next(each for each in content["tools"] if each["name"] == "wait")
        assert {key: found[key] for key in PLACE} == PLACE
        expected = {Form.NAMES: "(…)", Form.ARGUMENTS: "(seconds)"}.get(form, "(seconds: number)")
        assert found["signature"] == expected
        if form is not Form.ARGUMENTS:
            assert found["description"].startswith("Waits a while.")
            assert ("Then goes on." in found["description"]) is (form not in (Form.SENTENCE, Form.NAMES))


async def test_a_search_says_all_that_its_text_says(tmp_path: Path) -> None:
    every = {"desk": boxes()["desk"], "lab": {"clock": Server(NOW)}}
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.open(query="what time is it in a zone")
        content = result["structuredContent"]
        first = content["tools"][0]
        assert first == {
            **PLACE,
            "name": "now",
            "signature": "(zone?: string)",
            "description": "Says the time. In any zone.",
            "same": [{"toolbox_name": "lab", "source_server": "clock"}],
        }
        assert content["matched"] >= 1
        assert content["near"]["desk"]["clock"] == ["wait"]
        assert "`open_toolbox` with `tools`" in content["note"]


@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("budget", [300, 1_000, DEFAULT_BUDGET])
async def test_text_and_structure_each_stay_within_the_budget(tmp_path: Path, count: int, budget: int) -> None:
    async with workbench_with(tmp_path, boxes(*many(count)), budget=budget) as seen:
        for asked in ({"toolbox_name": "desk"}, {"query": "deep path"}, {"toolbox_name": "desk", "detail": "text"}):
            result = await seen.open(**asked)
            assert len(text_of(result).encode()) <= 4 * budget
            written = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
            assert len(written.encode()) <= 4 * budget
            assert result["structuredContent"]["tools"], "nothing at all would be no answer"


@pytest.mark.requirement("proxy.metadata")
async def test_shortened_definitions_name_the_way_to_the_whole(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(*many(60)), budget=2_000) as seen:
        result = await seen.open(toolbox_name="desk")
        for said in (text_of(result), result["structuredContent"]["note"]):
            assert "to fit 2,000 tokens" in said and '`detail: "full"`' in said
        whole: list[Any] = []
        asked: Json = {"toolbox_name": "desk", "detail": "full"}
        while True:
            content = (await seen.open(**asked))["structuredContent"]
            whole += content["tools"]
            if "cursor" not in content:
                break
            asked["cursor"] = content["cursor"]
        assert len(whole) == 61 and all(each["inputSchema"]["properties"] is not None for each in whole)
    (tmp_path / "small").mkdir()
    async with workbench_with(tmp_path / "small", {"desk": {"other": Server(NOW, WAIT)}}) as seen:
        assert "to fit" not in json.dumps(await seen.open(toolbox_name="desk"))
        assert "to fit" not in json.dumps(await seen.open(toolbox_name="desk", detail="names"))
