"""Pinned tools through the real face: beside the two, under names that clients accept, told when they change."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

CREATE = {
    **tool("create_issue", "Creates an issue.", title_="string"),
    "outputSchema": {"type": "object"},
    "annotations": {"destructiveHint": False},
    "_meta": {"own": 1},
}


def boxes(**settings: Any) -> dict[str, dict[str, Server]]:
    return {
        "github": {"issues": Server(CREATE, tool("close_issue"), **settings), "pulls": Server(tool("list_pulls"))},
        "home": {"lights": Server(tool("switch"))},
    }


async def listed(seen: ConnectedClient) -> list[Json]:
    found: list[Json] = (await seen.client.request("tools/list"))["tools"]
    return found


@pytest.mark.parametrize("known", [True, False])
async def test_a_pinned_tool_stands_beside_the_two_and_can_be_called(tmp_path: Path, known: bool) -> None:
    if known:
        async with workbench_with(tmp_path, boxes()) as seen:
            await seen.open(query="anything")
    every = boxes()
    async with workbench_with(tmp_path, every, pin=["github/issues/create_issue"]) as seen:
        *two, pinned = await listed(seen)
        assert [each["name"] for each in two] == ["open_toolbox", "use_tool"]
        assert pinned["name"] == "github__issues_create_issue"
        assert pinned["inputSchema"] == CREATE["inputSchema"]
        assert pinned["_meta"] == {"own": 1, "anthropic/alwaysLoad": True}
        assert every["github"]["issues"].starts == (0 if known else 1)
        assert every["home"]["lights"].starts == 0
        await seen.client.call_tool(pinned["name"], {"title": "x"})
        assert every["github"]["issues"].calls == [("create_issue", {"title": "x"})]


async def test_without_pins_there_are_two_tools_that_never_change(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert len(await listed(seen)) == 2


async def test_arguments_of_a_pinned_tool_are_checked(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, pin=["github/issues/create_issue"]) as seen:
        await listed(seen)
        result = await seen.client.call_tool("github__issues_create_issue", {"titel": "x"})
        assert "`title` is missing (`titel` was sent)" in text_of(result)
        assert every["github"]["issues"].calls == []


async def test_a_client_that_knows_the_name_from_its_last_visit_can_call_it_at_once(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, pin=["github/issues/create_issue"]) as seen:
        await seen.client.call_tool("github__issues_create_issue", {"title": "x"})
        assert every["github"]["issues"].calls == [("create_issue", {"title": "x"})]


@pytest.mark.parametrize(
    ("toolbox", "server", "name"),
    [("büro 事務", "mail server", "senden!"), ("a" * 60, "b" * 60, "c" * 60), ("box", "server", "dotted.name/slash")],
)
async def test_names_are_such_that_every_client_accepts_them(
    tmp_path: Path, toolbox: str, server: str, name: str
) -> None:
    odd = Server(tool(name), tool(name + "2"))
    async with workbench_with(
        tmp_path, {toolbox: {server: odd}}, pin=[f"{toolbox}/{server}/{name}", f"{toolbox}/{server}/{name}2"]
    ) as seen:
        names = [each["name"] for each in (await listed(seen))[2:]]
        assert len(set(names)) == 2
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in names)
        await seen.client.call_tool(names[1])
        assert odd.calls == [(name + "2", {})]


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ("github/issues/create_isue", "`github/issues/create_isue` does not exist"),
        ("nowhere/issues/create_issue", "`nowhere/issues/create_issue` is not toolbox/server/tool"),
        ("github/create_issue", "`github/create_issue` is not toolbox/server/tool"),
        ("issues/create_issue", "`issues/create_issue` is not toolbox/server/tool"),
        ("github/issues/hidden", "`github/issues/hidden` is excluded by `toolFilters`"),
    ],
)
async def test_a_pin_that_leads_nowhere_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pin: str, said: str
) -> None:
    every = boxes(toolFilters=["*", "!hidden"])
    every["github"]["issues"].tools.append(tool("hidden"))
    async with workbench_with(tmp_path, every, pin=[pin]) as seen:
        assert len(await listed(seen)) == 2
        await listed(seen)
        assert [said in record.getMessage() for record in caplog.records if "pinned" in record.getMessage()] == [True]


async def test_a_pin_that_names_with_slashes_make_ambiguous_is_reported_and_not_guessed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = {"dev": {"one": Server(tool("two/get"))}, "dev/one": {"two": Server(tool("get"))}}
    async with workbench_with(tmp_path, every, pin=["dev/one/two/get"]) as seen:
        assert len(await listed(seen)) == 2
        assert "`dev/one/two/get` can be split in several ways" in caplog.text


async def test_a_change_of_a_pinned_tool_is_reported_and_one_of_another_server_is_not(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, pin=["github/issues/create_issue"]) as seen:
        await listed(seen)
        await seen.open(toolbox_name="home")
        every["home"]["lights"].tools.append(tool("dim"))
        every["home"]["lights"].say_changed()
        lights = seen.gateway.catalog.toolboxes["home"]["lights"]
        while "dim" not in lights.tools:
            await asyncio.sleep(0.01)
        every["github"]["issues"].tools[0] = {**CREATE, "description": "Creates another issue."}
        every["github"]["issues"].say_changed()
        await seen.client.wait_notification("notifications/tools/list_changed")
        assert (await listed(seen))[2]["description"] == "Creates another issue."
        assert len(seen.client.received("notifications/tools/list_changed")) == 1


async def test_a_pinned_tool_whose_results_are_shortened_promises_no_structure(tmp_path: Path) -> None:
    big = {"content": [{"type": "text", "text": "x" * 5000}], "structuredContent": {"a": "x" * 5000}}
    every = boxes(resultBudget=300)
    every["github"]["issues"].answer = lambda name, arguments: big
    async with workbench_with(tmp_path, every, pin=["github/issues/create_issue"]) as seen:
        pinned = (await listed(seen))[2]
        assert "outputSchema" not in pinned
        result = await seen.client.call_tool(pinned["name"], {"title": "x"})
        assert "structuredContent" not in result
        assert "workbench://results/" in text_of(result)
    async with workbench_with(tmp_path, boxes(), pin=["github/issues/create_issue"]) as seen:
        assert "outputSchema" in (await listed(seen))[2]
