"""Using a tool: what passes through comes out as it went in, at the cost of one message."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.end_to_end.harness import ERAS, ERROR_META, Workbench, error_text, open_toolbox, start_use
from tests.support.client import Json, RawClient, RpcError
from tests.support.workbench import logged, scripted_command, scripted_entry

# What JSON can say and careless middlemen change.
ODD_ARGUMENTS: Json = {
    "big": 123456789012345678901234567890,
    "float": 1e-7,
    "zero": -0.0,
    "null": None,
    "empty": {},
    "text": 'quote " backslash \\ newline \n tab \t nul \0 é 事 😀 </script>',
    "ключ": [[], [[1]], {"a": {"b": []}}],
    "name": "not the tool",
    "_meta": {"progressToken": "not a token"},
}


async def directly(era: str, tool: str, arguments: Json) -> Json:
    async with RawClient.spawn(scripted_command("--era", era), modern=era == "modern") as client:
        if era == "legacy":
            await client.initialize()
        return await client.call_tool(tool, arguments)


def without_stamp(result: Json) -> Json:
    """A result without what the modern era adds to every result on its way."""
    result = dict(result)
    result.pop("resultType", None)
    meta = {key: value for key, value in result.pop("_meta", {}).items() if "modelcontextprotocol" not in key}
    return {**result, "_meta": meta} if meta else result


@pytest.mark.requirement("faithful.results")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_result_is_the_same_as_without_us(workbench: Workbench, client_era: str, server_era: str) -> None:
    box = {"server": scripted_entry("--era", server_era)}
    async with workbench.serving({"box": box}, era=client_era) as client:
        for tool, arguments in (("echo", ODD_ARGUMENTS), ("all_content", {})):
            through = await client.use_tool("box", "server", tool, arguments)
            direct = await directly(server_era, tool, arguments)
            assert without_stamp(through) == without_stamp(direct)
            assert json.dumps(through["content"]) == json.dumps(direct["content"])
            if client_era == server_era:
                assert through == direct
            if client_era == "modern":
                assert through["resultType"] == "complete"


@pytest.mark.requirement("proxy.identity", "faithful.one-message")
async def test_a_call_costs_one_message_downstream_and_nothing_is_added_to_it(workbench: Workbench) -> None:
    log = workbench.path("log")
    box = {"server": scripted_entry("--era", "legacy", "--log", log)}
    async with workbench.serving({"box": box}) as client:
        await open_toolbox(client, "box")
        before = len(logged(log))
        for number in range(10):
            await client.use_tool("box", "server", "echo", {"n": number})
        messages = logged(log)[before:]
    assert [message["params"] for message in messages] == [
        {"name": "echo", "arguments": {"n": number}} for number in range(10)
    ]


@pytest.mark.requirement("faithful.meta")
async def test_meta_of_the_client_reaches_the_server(workbench: Workbench) -> None:
    meta = {"example.test/a": {"b": [1, None]}, "traceparent": "00-1-2-01"}
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        result = await client.use_tool("box", "server", "last_meta", _meta=meta)
        received = result["structuredContent"]["meta"]
        assert {key: received[key] for key in meta} == meta


@pytest.mark.requirement("asking.capabilities")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_server_learns_client_info_in_the_form_of_its_era(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    declared = workbench.path("declared")
    capabilities = {"roots": {"listChanged": True}}
    box = {"server": scripted_entry("--era", server_era, "--capabilities-log", declared)}
    async with workbench.serving({"box": box}, era=client_era, capabilities=capabilities) as client:
        result = await client.use_tool("box", "server", "last_meta", _meta={"example.test/a": 1})
        meta = result["structuredContent"]["meta"]
    entries = [json.loads(line) for line in declared.read_text().splitlines()]
    assert {entry["era"] for entry in entries} == {server_era}
    assert entries[-1]["version"] == ("2026-07-28" if server_era == "modern" else "2025-11-25")
    assert entries[-1]["capabilities"] == capabilities
    assert meta["example.test/a"] == 1
    stamped = any(key.startswith("io.modelcontextprotocol/") for key in meta)
    assert stamped == (server_era == "modern")


@pytest.mark.requirement("proxy.opens-by-itself")
@pytest.mark.parametrize("era", ERAS)
async def test_using_a_tool_starts_only_its_own_server(workbench: Workbench, era: str) -> None:
    boxes = {
        "one": {
            "a": scripted_entry("--starts", workbench.path("starts")),
            "b": scripted_entry("--starts", workbench.path("others")),
        },
        "two": {"c": scripted_entry("--starts", workbench.path("others"))},
    }
    async with workbench.serving(boxes, era=era) as client:
        assert (await client.use_tool("one", "a", "echo", {"x": 1}))["structuredContent"] == {"x": 1}
        assert (len(workbench.starts()), workbench.starts("others")) == (1, [])


@pytest.mark.requirement("faithful.ids")
async def test_calls_side_by_side_each_get_their_own_answer(workbench: Workbench) -> None:
    boxes = {"one": {"a": scripted_entry(), "b": scripted_entry()}, "two": {"a": scripted_entry()}}
    async with workbench.serving(boxes) as client:
        places = [("one", "a"), ("one", "b"), ("two", "a")]
        calls = []
        for number in range(300):
            toolbox, server = places[number % 3]
            calls.append(await client.start_tool("use_tool", start_use(toolbox, server, "echo", {"n": number})))
        for number, call in enumerate(calls):
            assert (await call.result())["structuredContent"] == {"n": number}
        assert client.unmatched == []


@pytest.mark.requirement("faithful.ids")
async def test_ids_of_every_kind_come_back_as_they_were_sent(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        ids: list[Any] = ["1", 1, 'text with " and é 😀', -5, 2**53, 2**70, "", "x" * 300]
        calls = [
            await client.start(
                "tools/call",
                {"name": "use_tool", "arguments": start_use("box", "server", "echo", {"id": repr(id)})},
                id=id,
            )
            for id in ids
        ]
        for id, call in zip(ids, calls, strict=True):
            response = await call.response()
            assert (response["id"], response["result"]["structuredContent"]) == (id, {"id": repr(id)})


# Errors


@pytest.mark.requirement("errors.shown")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_json_rpc_error_becomes_a_result_that_says_where_and_keeps_everything(
    workbench: Workbench, client_era: str, server_era: str
) -> None:
    box = {"server": scripted_entry("--era", server_era)}
    async with workbench.serving({"box": box}, era=client_era) as client:
        for code in (-32000, -32602, -32603, -32601, -32002, 42):
            error = {"code": code, "message": f"failed with {code}", "data": {"why": [1, None, "é"], "big": 2**70}}
            result = await client.use_tool("box", "server", "fail", error)
            assert error_text(result) == f"[box/server/fail] failed with {code}"
            assert result["_meta"][ERROR_META] == error
        result = await client.use_tool("box", "server", "fail", {"code": -1, "message": "without data"})
        assert result["_meta"][ERROR_META] == {"code": -1, "message": "without data"}


@pytest.mark.requirement("errors.for-clients")
@pytest.mark.parametrize("era", ERAS)
async def test_an_error_that_the_client_acts_upon_stays_an_error(workbench: Workbench, era: str) -> None:
    # The first one belongs to the legacy era; what becomes of it in the modern one is the bridge's affair.
    codes = (-32042, -32020, -32021, -32022) if era == "legacy" else (-32020, -32021, -32022)
    async with workbench.serving({"box": {"server": scripted_entry("--era", era)}}, era=era) as client:
        for code in codes:
            error = {
                "code": code,
                "message": "act upon it",
                "data": {"elicitations": [{"url": "https://example.test", "message": "[box/server]"}]},
            }
            pages = {"elicitations": [{"url": "https://example.test"}]} if code == -32042 else error["data"]
            with pytest.raises(RpcError) as caught:
                await client.use_tool("box", "server", "fail", {**error, "data": pages})
            assert caught.value.error == error


# Names and shapes that are wrong


@pytest.mark.requirement("names.nearest")
async def test_a_wrong_name_is_answered_with_the_nearest_right_ones(workbench: Workbench) -> None:
    boxes = {
        "development": {"filesystem": scripted_entry("--tool-names", "read_file,write_file")},
        "research": {"search": scripted_entry("--starts", workbench.path("starts"))},
    }
    async with workbench.serving(boxes) as client:
        wrong = {
            ("developement", "filesystem", "read_file"): ("toolbox `developement`", "`development`"),
            ("development", "filesytem", "read_file"): ("server `filesytem`", "`filesystem`"),
            ("development", "filesystem", "readfile"): ("tool `readfile`", "`read_file`"),
            ("development", "filesystem", "file_write"): ("tool `file_write`", "`write_file`"),
            ("zzz", "filesystem", "read_file"): ("toolbox `zzz`", "`research`"),
        }
        for path, (named, suggested) in wrong.items():
            text = error_text(await client.use_tool(*path))
            assert named in text and suggested in text and "does not exist" in text
        for given, suggested in (("develop", "`development`"), ("Research", "`research`"), ("", "`development`")):
            text = error_text(await open_toolbox(client, given))
            assert suggested in text
        assert workbench.starts() == []


@pytest.mark.requirement("names.odd")
async def test_odd_names_are_unknown_names_and_nothing_worse(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        for name in ("constructor", "__proto__", "x" * 20_000, "工具", "a\0b", "../../etc", "toString"):
            for path in ((name, "server", "echo"), ("box", name, "echo"), ("box", "server", name)):
                text = error_text(await client.use_tool(*path))
                assert "does not exist" in text and len(text) < 1000
        for path in (("x" * 100_000, "server", "echo"), ("box", "server", "x" * 100_000)):
            text = error_text(await client.use_tool(*path))
            assert "more than the 65536 allowed" in text and len(text) < 1000
        assert (await client.use_tool("box", "server", "count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("proxy.shapes")
async def test_the_shapes_that_models_get_wrong_are_understood(workbench: Workbench) -> None:
    identity = {"toolbox": "box", "server": "server", "tool": "echo"}
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        understood: list[Json] = [
            {"tool": identity, "arguments": {"n": 2**70}},
            {**identity, "arguments": {"n": 2**70}},
            {"tool": identity, "arguments": json.dumps({"n": 2**70})},
            {**identity, "arguments": json.dumps({"n": 2**70})},
            {"tool": {**identity, "extra": 1}, "arguments": {"n": 2**70}, "more": True},
        ]
        for arguments in understood:
            assert (await client.call_tool("use_tool", arguments))["structuredContent"] == {"n": 2**70}
        without: list[Json] = [{"tool": identity}, {"tool": identity, "arguments": None}, {**identity}]
        for arguments in without:
            assert (await client.call_tool("use_tool", arguments))["structuredContent"] == {}


@pytest.mark.requirement("proxy.shapes")
async def test_unknown_shape_is_refused_with_the_expected_one(workbench: Workbench) -> None:
    identity = {"toolbox": "box", "server": "server", "tool": "echo"}
    async with workbench.serving({"box": {"server": scripted_entry("--starts", workbench.path("starts"))}}) as client:
        for arguments, named in (
            ({}, "`toolbox`"),
            ({"tool": {"toolbox": "box"}}, "`server`"),
            ({"tool": {**identity, "server": 5}}, "`server`"),
            ({"tool": {**identity, "tool": ""}}, "`tool`"),
            ({"tool": identity, "arguments": [1, 2]}, "`arguments`"),
            ({"tool": identity, "arguments": "not JSON"}, "`arguments`"),
            ({"tool": identity, "arguments": 5}, "`arguments`"),
        ):
            text = error_text(await client.call_tool("use_tool", arguments))
            assert named in text and '"toolbox"' in text
        for given in (5, ["box"], {"name": "box"}):
            assert "toolbox_name" in error_text(await client.call_tool("open_toolbox", {"toolbox_name": given}))
        empty: list[Json] = [{}, {"arguments": None}, {"arguments": []}]
        for nothing in empty:
            result = await client.request("tools/call", {"name": "use_tool", **nothing})
            assert "toolbox" in error_text(result)
        for nameless in ({}, {"name": 5}, {"name": None}):
            with pytest.raises(RpcError) as caught:
                await client.request("tools/call", {**nameless})
            assert caught.value.code == -32602
        assert workbench.starts() == []


async def test_a_tool_that_appeared_since_is_found_without_opening_again(workbench: Workbench) -> None:
    async with workbench.serving({"box": {"server": scripted_entry()}}) as client:
        await client.use_tool("box", "server", "change_tools", {"name": "appeared"})
        async with asyncio.timeout(20):
            while (result := await client.use_tool("box", "server", "appeared", {"a": 1})).get("isError"):
                await asyncio.sleep(0.01)
        assert result["structuredContent"] == {"a": 1}
