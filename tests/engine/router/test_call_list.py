"""Several calls in one `use_tool`: each is a call of its own, and the answer has all results in order."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.face.kept_results import KeptResults
from mcp_workbench.engine.router.call_list import LARGE_TO_READ, MAX_SIDE_BY_SIDE
from tests.support.client import Json
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

READ = tool("read", "Reads.", path_="string")


def said(name: str, arguments: Json) -> Json:
    if arguments.get("path") == "bad":
        return {"content": [{"type": "text", "text": "no such file"}], "isError": True}
    if arguments.get("path") == "refused":
        return {"code": -32000, "message": "refused by the server"}
    value = {"path": arguments.get("path"), "size": len(str(arguments.get("path")))}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def boxes(**settings: Any) -> dict[str, dict[str, Server]]:
    return {"dev": {"fs": Server(READ, answer=said, **settings), "other": Server(READ, tool("write"), answer=said)}}


def listed(*paths: str, server: str = "fs") -> list[Json]:
    return [{"tool": f"dev/{server}/read", "arguments": {"path": path}} for path in paths]


async def called(seen: ConnectedClient, calls: Any, **more: Any) -> Json:
    return await seen.client.call_tool("use_tool", {"calls": calls, **more})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_results_come_in_the_order_of_the_calls(tmp_path: Path, era: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, era=era) as seen:
        result = await called(seen, [*listed("b", "aa"), *listed("ccc", server="other")])
        assert [each["path"] for each in json.loads(text_of(result))] == ["b", "aa", "ccc"]
        assert "isError" not in result and "structuredContent" not in result
        assert len(every["dev"]["fs"].calls) == 2 and len(every["dev"]["other"].calls) == 1


async def test_one_select_holds_for_all(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await called(seen, listed("a", "bb"), select="size")
        assert json.loads(text_of(result)) == [1, 2]


async def test_kept_results_are_values_like_any(tmp_path: Path) -> None:
    rows = [{"n": number} for number in range(500)]
    every = {"dev": {"fs": Server(READ, answer=lambda *_: {"content": [{"type": "text", "text": json.dumps(rows)}]})}}
    async with workbench_with(tmp_path, every) as seen:
        uri = (await seen.use("dev/fs/read", {"path": "a"}, max_tokens=200))["content"][1]["uri"]
        result = await called(seen, [{"tool": uri}, {"tool": uri, "arguments": {"select": "[:3]"}}], select="[2]")
        assert json.loads(text_of(result)) == [{"n": 2}, {"n": 2}]
        selected = [
            {"tool": uri, "arguments": {"select": each}} for each in ("[7].n", "[7].x", "to_string([7].n)", "/x")
        ]
        *found, failed = json.loads(text_of(await called(seen, selected)))
        assert found == [7, None, "7"] and failed["error"].startswith("`select`: there is no `x`")
        (lines,) = json.loads(text_of(await called(seen, [{"tool": uri, "arguments": {"lines": "1-1"}}])))
        assert lines.startswith("(lines 1 to 1 of")


@pytest.mark.parametrize("bad", ["bad", "refused"])
async def test_an_error_stands_in_its_place(tmp_path: Path, bad: str) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await called(seen, [*listed("a", bad, "c"), {"tool": "dev/fs/raed", "arguments": {}}], select="path")
        first, failed, third, unknown = json.loads(text_of(result))
        assert (first, third) == ("a", "c") and "isError" not in result
        assert failed["error"].startswith("[dev/fs/read] ") and "`read`" in unknown["error"]


async def test_it_is_an_error_only_if_all_have_failed(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await called(seen, listed("bad", "refused"))
        assert result["isError"] is True and len(json.loads(text_of(result))) == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"calls": []}, "has 0 members"),
        ({"calls": listed(*map(str, range(51)))}, "has 51 members"),
        ({"calls": listed("a"), "tool": "dev/fs/read"}, "replaces `tool`"),
        ({"calls": listed("a"), "arguments": {"path": "x"}}, "replaces `tool`"),
        ({"calls": [*listed("a"), "dev/fs/read"]}, "`calls[1]`"),
        ({"calls": [*listed("a"), {"arguments": {"path": "b"}}]}, "`calls[1]`"),
        ({"calls": [*listed("a"), {"calls": listed("b")}]}, "`calls[1]`"),
        ({"calls": [*listed("a"), {**listed("b")[0], "select": "path"}]}, "`calls[1]`"),
        ({"calls": {"tool": "dev/fs/read"}}, "must be an array"),
        ({"calls": listed("a", "b"), "select": "a["}, "`select`"),
        ({"calls": listed("a", "b"), "select": 1}, "`select`"),
        ({"calls": listed("a", "b"), "max_tokens": -1}, "`max_tokens`"),
    ],
)
async def test_a_bad_list_is_refused_before_anything_is_called(tmp_path: Path, arguments: Json, why: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.client.call_tool("use_tool", arguments)
        assert result["isError"] is True and why in text_of(result)
        assert every["dev"]["fs"].calls == [] and every["dev"]["fs"].starts == 0


async def test_fifty_calls_are_made_eight_at_a_time(tmp_path: Path) -> None:
    every = boxes()
    server = every["dev"]["fs"]
    async with workbench_with(tmp_path, every) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        server.calls.clear()
        server.held = []
        waiting = asyncio.ensure_future(called(seen, listed(*map(str, range(50))), select="path"))
        while len(server.held) < MAX_SIDE_BY_SIDE:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(server.calls) == MAX_SIDE_BY_SIDE
        while not waiting.done():
            # The last first: the order of the answers is not that of the results.
            while server.held:
                server.held.pop()()
            await asyncio.sleep(0)
        assert json.loads(text_of(await waiting)) == [str(number) for number in range(50)]


async def test_no_more_calls_are_in_flight_than_a_limit_allows(tmp_path: Path) -> None:
    every = boxes()
    limits = [{"servers": ["*"], "callsInFlight": 2}]
    async with workbench_with(tmp_path, every, limits=limits) as seen:
        result = await called(seen, listed(*"abcdef"), select="path")
        assert json.loads(text_of(result)) == list("abcdef")


async def test_a_limit_of_one_server_does_not_hold_up_calls_of_others(tmp_path: Path) -> None:
    every = boxes()
    slow, other = every["dev"].values()
    limits = [{"servers": ["dev/fs"], "callsInFlight": 1}]
    async with workbench_with(tmp_path, every, limits=limits) as seen:
        for name in ("fs", "other"):
            await seen.use(f"dev/{name}/read", {"path": "x"})
        slow.calls.clear()
        other.calls.clear()
        slow.held = []
        calls = [*listed(*"abcdefghi"), *listed(*"klmnopqrs", server="other")]
        waiting = asyncio.ensure_future(called(seen, calls, select="path"))
        while len(other.calls) < 9:
            await asyncio.sleep(0)
        assert len(slow.calls) == 1, "those of the limited server wait for each other alone"
        while not waiting.done():
            while slow.held:
                slow.held.pop()()
            await asyncio.sleep(0)
        assert json.loads(text_of(await waiting)) == list("abcdefghiklmnopqrs")


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ([{"who": ["*"], "callsInFlight": 3}, {"servers": ["dev/*"], "callsInFlight": 5}], (3, 5, sys.maxsize)),
        ([{"servers": ["*"], "callsInFlight": 4}, {"servers": ["dev/fs"], "callsInFlight": 2}], (sys.maxsize, 2, 4)),
        ([{"servers": ["*"], "callsPerMinute": 4}], (sys.maxsize,) * 3),
    ],
)
async def test_limits_count_for_the_servers_they_name(tmp_path: Path, limits: Json, most: tuple[int, ...]) -> None:
    async with workbench_with(tmp_path, boxes(), limits=limits) as seen:
        at_once = seen.gateway.gate.calls_at_once
        assert (at_once(), at_once("dev", "fs"), at_once("lab", "x")) == most


@pytest.mark.parametrize(("budgets", "kept"), [((100, None), True), ((100, 200), True), ((100, "null"), False)])
async def test_a_list_obeys_the_budgets_of_its_servers(tmp_path: Path, budgets: tuple[Any, Any], kept: bool) -> None:
    def long(name: str, arguments: Json) -> Json:
        return {"content": [{"type": "text", "text": "a line of text\n" * 600}]}

    def server(budget: Any) -> Server:
        budget = {"null": {"resultBudget": None}, None: {}}.get(budget, {"resultBudget": budget})
        return Server(READ, answer=long, **budget)

    one, two = budgets
    every = {"dev": {"fs": server(one), "other": server(two)}}
    async with workbench_with(tmp_path, every) as seen:
        assert len(text_of(await called(seen, listed("a")))) < 1_000
        both = await called(seen, [*listed("a"), *listed(*"bcdefghijklmn", server="other")])
        assert any(block["type"] == "resource_link" for block in both["content"]) is kept
        if not kept:
            assert len(json.loads(text_of(both))) == 14


async def test_a_limit_refuses_the_calls_beyond_it_in_their_place(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, limits=[{"servers": ["*"], "callsPerMinute": 3}]) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        values = json.loads(text_of(await called(seen, listed("a", "b", "c"), select="path")))
        assert values[:2] == ["a", "b"] and "within a minute" in values[2]["error"]
        assert len(every["dev"]["fs"].calls) == 3


async def test_cancelling_ends_all_calls(tmp_path: Path) -> None:
    every = boxes()
    server = every["dev"]["fs"]
    async with workbench_with(tmp_path, every) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        server.calls.clear()
        server.held = []
        request = await seen.client.start_tool("use_tool", {"calls": listed(*"abcdefghij")})
        while len(server.held) < MAX_SIDE_BY_SIDE:
            await asyncio.sleep(0)
        await seen.client.cancel(request)
        while len(server.cancelled) < MAX_SIDE_BY_SIDE:
            await asyncio.sleep(0)
        for answer in server.held:
            answer()
        await seen.use("dev/other/read", {"path": "x"})
        assert len(server.calls) == MAX_SIDE_BY_SIDE, "no further call is made"


async def test_a_server_that_dies_gives_its_error_in_its_place(tmp_path: Path) -> None:
    every = boxes()
    dying = every["dev"]["fs"]
    async with workbench_with(tmp_path, every) as seen:
        await seen.use("dev/fs/read", {"path": "x"})
        dying.held = []
        waiting = asyncio.ensure_future(called(seen, [*listed("a"), *listed("b", server="other")], select="path"))
        while not dying.held:
            await asyncio.sleep(0)
        dying.links[-1].die("it crashed")
        failed, value = json.loads(text_of(await waiting))
        assert value == "b" and failed["error"].startswith("[dev/fs/read] ")


async def test_a_large_total_obeys_the_budget_and_is_kept(tmp_path: Path) -> None:
    def large(name: str, arguments: Json) -> Json:
        return {"content": [{"type": "text", "text": f"{arguments['path']} line\n" * 400}]}

    every = {"dev": {"fs": Server(READ, answer=large)}}
    async with workbench_with(tmp_path, every) as seen:
        result = await called(seen, listed("a", "b"), max_tokens=300)
        assert len(text_of(result)) < 2_000
        link = next(block for block in result["content"] if block["type"] == "resource_link")
        rest = await seen.use(link["uri"], {"select": "[1]"}, max_tokens=5_000)
        assert "b line" in text_of(rest)


async def test_the_arguments_of_each_call_are_checked(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        values = json.loads(
            text_of(
                await called(seen, [*listed("a"), {"tool": "dev/fs/read", "arguments": {"pth": "b"}}], select="path")
            )
        )
        assert values[0] == "a" and "path" in values[1]["error"]
        assert len(every["dev"]["fs"].calls) == 1


async def test_a_list_of_calls_that_only_read_makes_none_that_writes(tmp_path: Path) -> None:
    reads = {**READ, "annotations": {"readOnlyHint": True}}
    every = {"dev": {"fs": Server(reads, tool("write"), answer=said)}}
    both = [*listed("a"), {"tool": "dev/fs/write", "arguments": {"path": "b"}}]
    async with workbench_with(tmp_path, every, useTool="split") as seen:
        values = json.loads(text_of(await called(seen, both, select="path")))
        assert values[0] == "a" and "use_tool_that_writes" in values[1]["error"]
        assert [name for name, _ in every["dev"]["fs"].calls] == ["read"]
        written = await seen.client.call_tool("use_tool_that_writes", {"calls": both, "select": "path"})
        assert json.loads(text_of(written)) == ["a", "b"]


async def test_an_image_becomes_a_link(tmp_path: Path) -> None:
    def picture(name: str, arguments: Json) -> Json:
        return {"content": [{"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"}]}

    async with workbench_with(tmp_path, {"dev": {"fs": Server(READ, answer=picture)}}) as seen:
        values = json.loads(text_of(await called(seen, listed("a", "b"))))
        link = values[1][0]
        assert link["mimeType"] == "image/png"
        read = await seen.client.request("resources/read", {"uri": link["uri"]})
        assert read["contents"][0]["blob"] == "aW1hZ2U="


ASKING = [
    {"tools": ["dev/other/write"], "then": "ask"},
    {"tools": ["dev/other/read"], "then": "deny"},
    {"then": "allow"},
]
MIXED = [*listed("a"), {"tool": "dev/other/write", "arguments": {"path": "b"}}, *listed("c", server="other")]
YES: Json = {"action": "accept", "content": {"allow": "once"}}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_call_passes_the_steps_as_its_own_call(tmp_path: Path, era: str) -> None:
    every = boxes()
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return YES

    settings: Json = {"policy": ASKING, "audit": {"file": str(tmp_path / "audit.jsonl")}}
    async with workbench_with(tmp_path, every, era=era, abilities={"elicitation": {"form": {}}}, **settings) as seen:
        seen.client.handlers["elicitation/create"] = answer
        result = await called(seen, MIXED, select="path")
        if era == "modern":
            (key, question) = next(iter(result["inputRequests"].items()))
            asked.append(question["params"])
            result = await seen.client.call_tool(
                "use_tool",
                {"calls": MIXED, "select": "path"},
                inputResponses={key: YES},
                requestState=result["requestState"],
            )
        first, written, denied = json.loads(text_of(result))
        assert (first, written) == ("a", "b") and "policy[1]" in denied["error"]
        assert len(asked) == 1 and "dev/other/write" in asked[0]["message"]
        assert every["dev"]["other"].calls == [("write", {"path": "b"})]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = {(line["item"], line["decision"], line["rule"]) for line in lines if line["kind"] == "call"}
    assert calls == {
        ("read", "passed", "policy[2]"),
        ("write", "passed", "policy[0], approved"),
        ("read", "denied", "policy[1]"),
    }


async def test_progress_tells_how_many_calls_have_ended(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await seen.client.call_tool("use_tool", {"calls": listed("a", "b")}, _meta={"progressToken": "p"})
        told = [each["params"] for each in seen.client.notifications if each["method"] == "notifications/progress"]
        assert [(each["progressToken"], each["total"]) for each in told] == [("p", 2)] * 2
        assert told[0]["progress"] < told[1]["progress"] == 2


# one call


async def test_a_part_of_one_result_is_selected(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        assert text_of(await seen.use("dev/fs/read", {"path": "abc"}, select="size")) == "3"
        assert text_of(await seen.use("dev/fs/read", {"path": "abc"}, select="/path")) == "abc"


@pytest.mark.parametrize(
    ("structured", "text", "select", "found"),
    [
        ({"content": "abc"}, "abc", "content", "abc"),
        ({"content": "a,b\n1,2"}, "a,b\n1,2", "/content", "a,b\n1,2"),
        ({"content": "a,b\n1,2"}, "a,b\n1,2", "[0].b", "2"),
        ({"result": [{"id": 7}]}, '[{"id": 7}]', "result[0].id", "7"),
        ({"result": [{"id": 7}]}, '[{"id": 7}]', "[0].id", "7"),
    ],
)
async def test_a_part_is_selected_with_or_without_the_object_around_a_result(
    tmp_path: Path, structured: Json, text: str, select: str, found: str
) -> None:
    result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    async with workbench_with(tmp_path, {"dev": {"fs": Server(READ, answer=lambda *_: result)}}) as seen:
        assert text_of(await seen.use("dev/fs/read", {"path": "a"}, select=select)) == found


async def test_unselectable_result_is_answered_whole(tmp_path: Path) -> None:
    def prose(name: str, arguments: Json) -> Json:
        return {"content": [{"type": "text", "text": "Written."}]}

    every = {"dev": {"fs": Server(READ, answer=prose)}}
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.use("dev/fs/read", {"path": "a"}, select="size")
        texts = [block["text"] for block in result["content"]]
        assert "isError" not in result and "was called" in texts[0] and texts[1] == "Written."


async def test_an_error_is_not_selected_from(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        result = await seen.use("dev/fs/read", {"path": "bad"}, select="size")
        assert result["isError"] is True and text_of(result) == "[dev/fs/read] no such file"


async def test_a_selection_larger_than_the_budget_is_kept(tmp_path: Path) -> None:
    def many(name: str, arguments: Json) -> Json:
        rows = [{"name": f"name {number}", "unwanted": "x" * 50} for number in range(500)]
        return {"content": [{"type": "text", "text": json.dumps(rows)}]}

    async with workbench_with(tmp_path, {"dev": {"fs": Server(READ, answer=many)}}) as seen:
        result = await seen.use("dev/fs/read", {"path": "a"}, select="[].name", max_tokens=300)
        assert "unwanted" not in text_of(result)
        rest = await seen.use(result["content"][1]["uri"], {"select": "[-1]"})
        assert text_of(rest).endswith('"name 499"')


async def test_a_bad_expression_is_refused_before_the_call(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        result = await seen.use("dev/fs/read", {"path": "a"}, select="size[")
        assert result["isError"] is True and "nothing was called" in text_of(result)
        assert every["dev"]["fs"].calls == []


async def test_large_results_with_images_are_kept_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept may be sent to other instances, by a writer that no other thread may touch."""
    where: list[bool] = []
    keep = KeptResults._keep

    def noted(self: KeptResults, *arguments: Any) -> None:
        where.append(threading.current_thread() is threading.main_thread())
        keep(self, *arguments)

    monkeypatch.setattr(KeptResults, "_keep", noted)
    image = {"type": "image", "data": "A" * LARGE_TO_READ, "mimeType": "image/png"}
    server = Server(tool("draw"), answer=lambda name, arguments: {"content": [image]})
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        result = await seen.client.call_tool("use_tool", {"calls": [{"tool": "box/server/draw"}] * 2})
        first, second = json.loads(text_of(result))
        assert first[0]["uri"].startswith("workbench://results/") and first != second
        read = await seen.client.request("resources/read", {"uri": first[0]["uri"]})
        assert read["contents"][0]["blob"] == image["data"]
    assert where == [True, True]
