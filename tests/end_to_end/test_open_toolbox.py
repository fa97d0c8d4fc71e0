"""Opening a toolbox: everything its servers offer, in one answer that hides nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.end_to_end.harness import (
    ERAS,
    Workbench,
    error_text,
    open_toolbox,
    opened,
    tool_names,
    unavailable,
)
from tests.support.processes import alive
from tests.support.scripted_tools import TOOLS, definition
from tests.support.workbench import logged, scripted_entry


@pytest.mark.requirement("proxy.metadata", "proxy.open")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_every_tool_is_listed_whole_with_where_it_is_found(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era, "--instructions", "Ask me anything.")}
    async with workbench.serving({"box": box}, era=client_era) as client:
        result = await open_toolbox(client, "box")
        content = opened(result)
        shown = {tool["name"]: tool for tool in content["tools"]}
        assert shown.keys() == TOOLS.keys()
        for name, tool in shown.items():
            assert (tool["toolbox_name"], tool["source_server"]) == ("box", "server")
            for member in ("title", "description", "inputSchema"):
                assert tool[member] == definition(name)[member]
        assert content["toolbox"] == "box"
        assert content["description"] == "Toolbox box."
        assert content["unavailable"] == []
        assert content["instructions"] == {"server": "Ask me anything."}
        assert "isError" not in result
        assert result.get("resultType") == ("complete" if client_era == "modern" else None)


@pytest.mark.requirement("proxy.open")
async def test_all_servers_of_a_toolbox_are_started_side_by_side(workbench: Workbench) -> None:
    """Each server waits for all the others: started one after the other, none would ever answer."""
    names = ["one", "two", "three", "four"]
    gate = workbench.path("all-here")
    box = {
        name: workbench.held_back(gate, "--tool-names", f"tool_of_{name}", arrived=workbench.path(f"{name}-here"))
        for name in names
    }
    async with workbench.serving({"box": box}) as client:
        opening = await client.start_tool("open_toolbox", {"toolbox_name": "box"})
        while not all(workbench.path(f"{name}-here").exists() for name in names):
            await asyncio.sleep(0.01)
        assert not opening.answered
        gate.touch()
        result = await opening.result()
        assert tool_names(result) == sorted(f"tool_of_{name}" for name in names)


@pytest.mark.requirement("pagination.downstream")
async def test_every_page_of_a_list_is_fetched_once(workbench: Workbench) -> None:
    log = workbench.path("log")
    box = {"server": scripted_entry("--tools", 25, "--page-size", 4, "--log", log)}
    async with workbench.serving({"box": box}) as client:
        assert tool_names(await open_toolbox(client, "box")) == sorted(f"tool_{number}" for number in range(1, 26))
    cursors = [message["params"].get("cursor") for message in logged(log, "tools/list")]
    assert cursors == [None, "4", "8", "12", "16", "20", "24"]


@pytest.mark.requirement("proxy.idempotent")
@pytest.mark.parametrize("era", ERAS)
async def test_opening_again_is_the_same_answer_and_starts_nothing(workbench: Workbench, era: str) -> None:
    log = workbench.path("log")
    box = {"server": scripted_entry("--starts", workbench.path("starts"), "--log", log)}
    async with workbench.serving({"box": box}, era=era) as client:
        first = await open_toolbox(client, "box")
        for _ in range(3):
            assert await open_toolbox(client, "box") == first
        assert len(workbench.starts()) == 1
    assert len(logged(log, "tools/list")) == 1


@pytest.mark.requirement("proxy.idempotent")
async def test_opens_at_the_same_time_share_one_attempt(workbench: Workbench) -> None:
    gate, log = workbench.path("gate"), workbench.path("log")
    box = {"server": workbench.held_back(gate, "--starts", workbench.path("starts"), "--log", log)}
    async with workbench.serving({"box": box}) as client:
        calls = [await client.start_tool("open_toolbox", {"toolbox_name": "box"}) for _ in range(5)]
        use = await client.start_tool("use_tool", {"tool": {"toolbox": "box", "server": "server", "tool": "count"}})
        gate.touch()
        results = [await call.result() for call in calls]
        assert all(result == results[0] for result in results)
        assert (await use.result())["structuredContent"] == {"count": 1}
    assert len(workbench.starts()) == 1
    assert len(logged(log, "initialize")) == len(logged(log, "tools/list")) == 1


# Filters


@pytest.mark.requirement("tools.filters")
async def test_filters_decide_the_list(workbench: Workbench) -> None:
    everything = ["read_file", "read_dir", "write_file", "delete"]
    expected: dict[str, tuple[list[str] | None, list[str]]] = {
        "none given": (None, everything),
        "all": (["*"], everything),
        "nothing": ([], []),
        "glob": (["read_*"], ["read_file", "read_dir"]),
        "names": (["delete", "write_file"], ["write_file", "delete"]),
        "all but one": (["*", "!delete"], ["read_file", "read_dir", "write_file"]),
        "exclusion alone": (["!*_file"], ["read_dir", "delete"]),
        "no other wildcards": (["read_?ile", "[rw]*"], []),
    }
    boxes = {
        name: {
            "server": scripted_entry(
                "--tool-names", ",".join(everything), **({} if filters is None else {"toolFilters": filters})
            )
        }
        for name, (filters, _) in expected.items()
    }
    async with workbench.serving(boxes) as client:
        results = [await client.start_tool("open_toolbox", {"toolbox_name": name}) for name in boxes]
        shown = {name: tool_names(await call.result()) for name, call in zip(boxes, results, strict=True)}
        assert shown == {name: sorted(names) for name, (_, names) in expected.items()}


@pytest.mark.requirement("tools.filters")
@pytest.mark.parametrize("opened_before", [True, False])
async def test_a_tool_that_is_filtered_out_cannot_be_called_by_any_path(
    workbench: Workbench, opened_before: bool
) -> None:
    log = workbench.path("log")
    box = {"server": scripted_entry("--tool-names", "count,echo", "--log", log, toolFilters=["*", "!count"])}
    async with workbench.serving({"box": box}) as client:
        if opened_before:
            await open_toolbox(client, "box")
        text = error_text(await client.use_tool("box", "server", "count"))
        assert "`count`" in text and "toolFilters" in text
        flattened = {"toolbox": "box", "server": "server", "tool": "count", "arguments": {}}
        assert "toolFilters" in error_text(await client.call_tool("use_tool", flattened))
        assert (await client.use_tool("box", "server", "echo", {"a": 1}))["structuredContent"] == {"a": 1}
    assert [message["params"]["name"] for message in logged(log, "tools/call")] == ["echo"]


# What is not available


@pytest.mark.requirement("proxy.unavailable")
async def test_a_server_that_does_not_start_is_named_with_its_reason_and_its_siblings_stay_up(
    workbench: Workbench,
) -> None:
    box = {
        "broken": scripted_entry("--exit-at-start", 3, "--stderr", "no licence found"),
        "missing": {"command": "no-such-command-anywhere"},
        "good": scripted_entry("--starts", workbench.path("starts")),
    }
    async with workbench.serving({"box": box}) as client:
        result = await open_toolbox(client, "box")
        assert "isError" not in result
        assert tool_names(result) == sorted(TOOLS)
        failed = unavailable(result)
        assert list(failed) == ["broken", "missing"]
        assert "status 3" in failed["broken"]["reason"] and "no licence found" in failed["broken"]["reason"]
        assert "`no-such-command-anywhere` was not found on PATH" in failed["missing"]["reason"]
        assert all(entry["retry"] for entry in failed.values())
        (pid,) = workbench.starts()
        assert (await client.use_tool("box", "good", "pid"))["structuredContent"]["pid"] == pid
        assert alive(pid)
        text = error_text(await client.use_tool("box", "broken", "echo"))
        assert text.startswith("[box/broken") and "no licence found" in text


@pytest.mark.requirement("proxy.unavailable")
async def test_only_when_all_servers_fail_the_result_is_an_error(workbench: Workbench) -> None:
    box = {name: scripted_entry("--exit-at-start", code) for name, code in (("one", 4), ("two", 5))}
    async with workbench.serving({"box": box, "other": {"good": scripted_entry()}}) as client:
        result = await open_toolbox(client, "box")
        assert result["isError"] is True
        assert tool_names(result) == []
        reasons = [entry["reason"] for entry in unavailable(result).values()]
        assert "status 4" in reasons[0] and "status 5" in reasons[1]
        assert tool_names(await open_toolbox(client, "other")) == sorted(TOOLS)


@pytest.mark.requirement("proxy.unavailable")
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--cursor-loop",), "its pages never end"),
        (("--error-on", "tools/list"), "tools/list fails as asked"),
        (("--crash-on", "tools/list"), "status 9"),
        (("--error-on", "initialize", "--era", "legacy"), "initialize fails as asked"),
        (("--versions", "1999-01-01", "--era", "legacy"), "1999-01-01"),
    ],
)
async def test_a_server_that_cannot_be_listed_is_unavailable_and_not_empty(
    workbench: Workbench, flags: tuple[str, ...], reason: str
) -> None:
    box = {"bad": scripted_entry("--page-size", 5, *flags), "good": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        result = await open_toolbox(client, "box")
        assert reason in unavailable(result)["bad"]["reason"]
        assert {tool["source_server"] for tool in opened(result)["tools"]} == {"good"}
        assert error_text(await client.use_tool("box", "bad", "count"))


async def test_an_unavailable_server_comes_back_when_its_cause_is_mended(workbench: Workbench) -> None:
    needed = workbench.path("needed")
    box = {"picky": scripted_entry("--require-file", needed), "good": scripted_entry()}
    async with workbench.serving({"box": box}) as client:
        assert list(unavailable(await open_toolbox(client, "box"))) == ["picky"]
        needed.touch()
        result = await open_toolbox(client, "box")
        assert unavailable(result) == {}
        assert len(tool_names(result)) == 2 * len(TOOLS)


async def test_a_toolbox_whose_server_has_no_tools_is_empty_and_no_error(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry("--tools", 0)}}) as client:
        result = await open_toolbox(client, "box")
        assert (tool_names(result), unavailable(result)) == ([], {})
        assert "isError" not in result


# Isolation


@pytest.mark.requirement("isolation.toolboxes")
async def test_the_same_server_in_two_toolboxes_is_two_processes_that_share_nothing(workbench: Workbench) -> None:
    entry = scripted_entry()
    async with workbench.serving({"one": {"server": entry}, "two": {"server": entry}}) as client:
        pids = {(await client.use_tool(box, "server", "pid"))["structuredContent"]["pid"] for box in ("one", "two")}
        assert len(pids) == 2
        for expected in (1, 2):
            counted = await client.use_tool("one", "server", "count")
            assert counted["structuredContent"] == {"count": expected}
        assert (await client.use_tool("two", "server", "count"))["structuredContent"] == {"count": 1}
        await client.use_tool("one", "server", "crash")
        assert (await client.use_tool("two", "server", "count"))["structuredContent"] == {"count": 2}


async def test_server_settings_reach_only_that_server(workbench: Workbench) -> None:
    box = {"one": scripted_entry(env={"SECRET": "first"}), "two": scripted_entry(env={"SECRET": "second"})}
    async with workbench.serving({"box": box}) as client:
        for server, value in (("one", "first"), ("two", "second")):
            found = await client.use_tool("box", server, "env", {"name": "SECRET"})
            assert found["structuredContent"]["value"] == value
