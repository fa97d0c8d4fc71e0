"""A call names its toolbox, its server and its tool, or it is refused: whatever is opened, listed or remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

Boxes = dict[str, dict[str, Server]]
DROP = tool("drop_table", "Drops a table.", table="string")
COMPLETE = {"toolbox": "prod", "server": "db", "tool": "drop_table"}


def boxes() -> Boxes:
    # In `dev`, the tool is filtered out.
    return {
        "dev": {"db": Server(tool("list_tables"), DROP, toolFilters=["list_tables"]), "files": Server(tool("read"))},
        "prod": {"db": Server(tool("list_tables"), DROP)},
    }


def calls(every: Boxes) -> list[tuple[str, str, str]]:
    return [
        (box, name, tool) for box, servers in every.items() for name, each in servers.items() for tool, _ in each.calls
    ]


async def opens_nothing(seen: ConnectedClient) -> None:
    """Nothing is known of any server."""


async def opens_dev(seen: ConnectedClient) -> None:
    await seen.open(toolbox_name="dev")


async def opens_prod(seen: ConnectedClient) -> None:
    await seen.open(toolbox_name="prod")


async def searches(seen: ConnectedClient) -> None:
    await seen.open(query="drop a table")


INCOMPLETE = [
    # As an object.
    ({"tool": {"server": "db", "tool": "drop_table"}}, ["toolbox"]),
    ({"tool": {"toolbox": "", "server": "db", "tool": "drop_table"}}, ["toolbox"]),
    ({"tool": {"toolbox": None, "server": "db", "tool": "drop_table"}}, ["toolbox"]),
    ({"tool": {"toolbox": 1, "server": "db", "tool": "drop_table"}}, ["toolbox"]),
    ({"tool": {"toolbox": "prod", "tool": "drop_table"}}, ["server"]),
    ({"tool": {"toolbox": "prod", "tool": "db/drop_table"}}, ["server"]),
    ({"tool": {"toolbox": "prod", "server": "db"}}, ["tool"]),
    ({"tool": {"tool": "drop_table"}}, ["toolbox", "server"]),
    ({"tool": {"tool": "prod/db/drop_table"}}, ["toolbox", "server"]),
    # With its parts beside `arguments`.
    ({"server": "db", "tool": "drop_table"}, ["toolbox"]),
    ({"server": "db", "tool": "prod/db/drop_table"}, ["toolbox"]),
    ({"toolbox": "", "server": "db", "tool": "drop_table"}, ["toolbox"]),
    ({"toolbox": "prod", "tool": "drop_table"}, ["server"]),
    ({"toolbox": "prod", "tool": "db/drop_table"}, ["server"]),
    ({"toolbox": "prod", "server": "db"}, ["tool"]),
    ({"toolbox": "prod", "server": "db", "tool": ""}, ["tool"]),
    # As a path.
    ({"tool": "drop_table"}, ["toolbox", "server"]),
    ({"tool": "db/drop_table"}, ["toolbox"]),
    ({"tool": "prod/drop_table"}, ["server"]),
    ({"tool": "prod/db"}, ["tool"]),
    ({"tool": "prod/db/"}, ["tool"]),
]


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize("before", [opens_nothing, opens_dev, opens_prod, searches])
@pytest.mark.parametrize(("arguments", "missing"), INCOMPLETE)
async def test_incomplete_identifier_is_refused_with_and_without_manifests(
    tmp_path: Path, arguments: dict[str, Any], missing: list[str], before: Callable[[ConnectedClient], Awaitable[None]]
) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await before(seen)
        started = [server.starts for servers in every.values() for server in servers.values()]
        result = await seen.client.call_tool("use_tool", {**arguments, "arguments": {"table": "users"}})
        assert result["isError"] is True
        text = text_of(result)
        assert " and ".join(f"`{part}`" for part in missing) + (" is missing" if len(missing) == 1 else " are") in text
        assert '"toolbox": "…", "server": "…", "tool": "…"' in text
        assert calls(every) == []
        # Nor is a server started to find out what may have been meant.
        assert [server.starts for servers in every.values() for server in servers.values()] == started


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    ("arguments", "missing"), [each for each in INCOMPLETE if each[1] != ["tool"]], ids=lambda each: str(each)
)
async def test_the_refusal_has_the_paths_that_can_be_meant_and_no_others(
    tmp_path: Path, arguments: dict[str, Any], missing: list[str]
) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.open(query="anything")
        text = text_of(await seen.client.call_tool("use_tool", arguments))
        assert "it can be `prod/db/drop_table`" in text
        # Filtered out there, so it is none of them.
        assert "dev/" not in text


@pytest.mark.requirement("proxy.identity")
async def test_tools_in_manifests_are_candidates(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.open(query="anything")
    async with workbench_with(tmp_path, every := boxes()) as seen:
        text = text_of(await seen.use({"server": "db", "tool": "list_tables"}))
        assert "it can be `dev/db/list_tables` or `prod/db/list_tables`" in text
        assert calls(every) == []


@pytest.mark.requirement("proxy.identity")
async def test_a_server_without_its_tool_is_answered_with_its_tools_a_few_of_them(tmp_path: Path) -> None:
    many = {"box": {"one": Server(tool("other")), "two": Server(*(tool(f"tool_{number:02}") for number in range(40)))}}
    async with workbench_with(tmp_path, many) as seen:
        await seen.open(query="anything")
        text = text_of(await seen.use({"toolbox": "box", "server": "two"}))
        assert "`box/two/tool_00`" in text and "and 30 more" in text
        assert "`box/two/tool_10`" not in text and "other" not in text


@pytest.mark.requirement("proxy.identity")
async def test_candidates_that_no_server_has_listed_yet_are_reported_as_unknown(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        text = text_of(await seen.use({"server": "db", "tool": "drop_table"}))
        assert "`toolbox` is missing" in text
        assert "not been listed yet" in text and "`dev/db`" in text and "`prod/db`" in text
        assert "files" not in text


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize("known", [False, True])
async def test_a_path_that_names_with_slashes_make_ambiguous_is_refused_and_the_object_is_the_way(
    tmp_path: Path, known: bool
) -> None:
    every = {"team": {"a": Server(tool("b/run"))}, "team/a": {"b": Server(tool("run"))}}
    async with workbench_with(tmp_path, every) as seen:
        if known:
            await seen.open(query="anything")
        text = text_of(await seen.use("team/a/b/run"))
        assert "can be split in several ways" in text
        first = '{"toolbox": "team", "server": "a", "tool": "b/run"}'
        second = '{"toolbox": "team/a", "server": "b", "tool": "run"}'
        assert first in text and second in text
        assert calls(every) == []
        await seen.use({"toolbox": "team/a", "server": "b", "tool": "run"})
        assert calls(every) == [("team/a", "b", "run")]


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    "arguments",
    [
        {"tool": COMPLETE},
        {**COMPLETE},
        {"tool": "prod/db/drop_table"},
    ],
)
async def test_all_three_parts_reach_that_tool_in_every_spelling(tmp_path: Path, arguments: dict[str, Any]) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(toolbox_name="dev")
        result = await seen.client.call_tool("use_tool", {**arguments, "arguments": {"table": "users"}})
        assert "isError" not in result, text_of(result)
        assert calls(every) == [("prod", "db", "drop_table")]


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize("wanted", [{**COMPLETE, "toolbox": "dev"}, "dev/db/drop_table"], ids=["an object", "a path"])
async def test_a_tool_that_is_filtered_out_is_not_looked_for_elsewhere(tmp_path: Path, wanted: object) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(toolbox_name="prod")
        text = text_of(await seen.use(wanted))
        assert "tool `drop_table` on server `db` of toolbox `dev` is excluded by `toolFilters`" in text
        assert calls(every) == []
