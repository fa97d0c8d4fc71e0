"""Tools, the same through every face, for clients and servers of either era."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.economy.signature import signature
from tests.faces.harness import ERAS, FACES, Bench, Seen, error_text, introduce, without_stamp
from tests.faces.memory import DirectClient
from tests.support.client import Json, RpcError
from tests.support.workbench import logged

ERROR_META = "mcp-workbench/error"
# Of `open_toolbox`: everything that the server wrote, however long.
WHOLE: Json = {"detail": "full", "budget": None}
# What JSON can say and careless middlemen change.
ODD_ARGUMENTS: Json = {
    "big": 123456789012345678901234567890,
    "float": 1e-7,
    "null": None,
    "empty": {},
    "text": 'quote " backslash \\ newline \n nul \0 é 事 😀 </script>',
    "ключ": [[], [[1]], {"a": {"b": []}}],
    "name": "not the tool",
    "_meta": {"progressToken": "not a token"},
}

every_face = pytest.mark.parametrize("face", FACES)
every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("server_era", ERAS)


async def directly(server_era: str, tool: str, arguments: Json) -> Json:
    async with DirectClient.of("--era", server_era) as client:
        await introduce(client, server_era)
        return await client.call_tool(tool, arguments)


async def tools_by_own_name(seen: Seen) -> dict[str, Json]:
    """What a client is shown of each tool of `box/server`."""
    await seen.open()
    if seen.face == "proxy":
        # What an agent needs first is not all that a server wrote; that is shown when it is asked for.
        asked = {"toolbox_name": "box", "detail": "full", "budget": None}
        opened = await seen.client.call_tool("open_toolbox", asked)
        return {tool["name"]: tool for tool in opened["structuredContent"]["tools"]}
    tools = {tool["name"]: tool for tool in (await seen.client.request("tools/list"))["tools"]}
    prefix = seen.name("")
    return {name.removeprefix(prefix): tool for name, tool in tools.items() if name.startswith(prefix)}


@pytest.mark.requirement("faithful.results")
@every_face
@every_client
@every_server
async def test_a_result_is_the_same_as_without_us(bench: Bench, face: str, era: str, server_era: str) -> None:
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        for tool, arguments in (("echo", ODD_ARGUMENTS), ("all_content", {})):
            through = await seen.call(tool, arguments)
            direct = await directly(server_era, tool, arguments)
            assert without_stamp(through) == without_stamp(direct)
            assert json.dumps(through["content"]) == json.dumps(direct["content"])
            assert ("resultType" in through) == (era == "modern"), "legacy clients do not know this member"
            if era == server_era:
                assert through == direct


@pytest.mark.requirement("errors.tools", "faithful.results")
@every_face
@every_client
@every_server
async def test_a_tool_error_names_its_path_and_keeps_the_original(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    text = {"type": "text", "text": "no", "annotations": {"priority": 1}}
    result = {"isError": True, "content": [image, text, text], "unknown": [1.50, 2**70], "_meta": {"a/b": 1}}
    async with bench.within({"one": {"server": ()}, "box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        direct = await directly(server_era, "answer", {"result": result})
        through = await seen.call("answer", {"result": result}, server="server", toolbox="box")
        if face == "flat":
            assert without_stamp(through) == without_stamp(direct)
            return
        original = through["_meta"].pop("mcp-workbench/result")
        assert without_stamp(original) == without_stamp(direct)
        assert list(map(json.dumps, through["content"])) == list(
            map(json.dumps, [image, {**text, "text": "[box/server/answer] no"}, text])
        )
        assert without_stamp({**through, "content": direct["content"]}) == without_stamp(direct)


@pytest.mark.requirement("errors.tools", "faithful.results")
@every_face
async def test_a_result_that_only_mentions_an_error_is_not_touched(bench: Bench, face: str) -> None:
    inside = {"isError": True, "text": '"isError": true'}
    result = {"content": [{"type": "text", "text": '{"isError":true}'}], "structuredContent": inside, "isError": False}
    async with bench.within({"box": {"server": ()}}, face) as seen:
        await seen.open()
        assert await seen.call("answer", {"result": result}) == result


@pytest.mark.requirement("faithful.definitions", "extensions.apps")
@every_face
@every_client
@every_server
async def test_a_definition_keeps_every_field_that_the_face_does_not_write(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with DirectClient.of("--era", server_era) as direct:
        await introduce(direct, server_era)
        own = {tool["name"]: tool for tool in (await direct.request("tools/list"))["tools"]}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        shown = await tools_by_own_name(seen)
        assert list(shown) == (sorted(own) if face == "proxy" else list(own))
        for name, tool in own.items():
            expected = {**tool, "name": name if face == "proxy" else seen.name(name)}
            if face == "dynamic":
                expected["description"] = f"[box/server] {tool['description']}"
                origin = {"name": seen.name(name), "original_name": name, "server": "server", "toolbox_name": "box"}
                expected["_meta"] = {**tool["_meta"], "mcp-workbench/tool": origin}
            if face == "proxy":
                written = signature("", tool["inputSchema"]).text
                expected |= {"toolbox_name": "box", "source_server": "server", "signature": written}
            assert shown[name] == expected


@pytest.mark.requirement("errors.shown", "errors.relayed")
@every_face
@every_client
@every_server
async def test_a_json_rpc_error_of_a_server_keeps_its_code_message_and_data(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    error = {"code": -32050, "message": "failed", "data": {"why": [1, None, "é"], "big": 2**70}}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        if face == "flat":
            with pytest.raises(RpcError) as caught:
                await seen.call("fail", error)
            assert caught.value.error == error
        else:
            result = await seen.call("fail", error)
            assert error_text(result) == "[box/server/fail] failed"
            assert result["_meta"][ERROR_META] == error


@pytest.mark.requirement("errors.for-clients")
@every_face
@every_client
async def test_an_error_that_a_client_acts_upon_stays_an_error(bench: Bench, face: str, era: str) -> None:
    async with bench.within({"box": {"server": ()}}, face, era) as seen:
        await seen.open()
        # A modern client knows nothing of -32042: what becomes of that is the bridge's business.
        for code in (-32020, -32021, -32022, *((-32042,) if era == "legacy" else ())):
            page = {"url": "https://example.test", "message": "[box/server] Sign in."}
            error = {"code": code, "message": "act", "data": {"elicitations": [page]}}
            own = {**page, "message": "Sign in."} if code == -32042 else page
            with pytest.raises(RpcError) as caught:
                await seen.call("fail", {**error, "data": {"elicitations": [own]}})
            assert caught.value.error == error


@pytest.mark.requirement("faithful.meta")
@every_face
@every_client
@every_server
async def test_meta_of_the_client_reaches_the_server_and_the_stamp_is_the_servers(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    meta = {"example.test/a": {"b": [1, None]}, "traceparent": "00-1-2-01"}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        received = (await seen.call("last_meta", _meta=meta))["structuredContent"]["meta"]
        assert {key: received[key] for key in meta} == meta
        stamped = {key for key in received if key.startswith("io.modelcontextprotocol/")}
        assert bool(stamped) == (server_era == "modern")
        assert set(received) - set(meta) == stamped


@pytest.mark.requirement("faithful.unknown-members")
@every_face
@every_server
async def test_members_of_a_call_that_we_do_not_know_reach_the_server(bench: Bench, face: str, server_era: str) -> None:
    log = bench.path("log")
    async with bench.within({"box": {"server": ("--era", server_era, "--log", log)}}, face) as seen:
        await seen.open()
        others: Json = {"task": {"ttl": 5}, "x-unknown": [1, {"b": None}]}
        await seen.call("echo", {"a": 1}, **others)
        (sent,) = logged(log, "tools/call")
        members = {key: value for key, value in sent["params"].items() if key != "_meta"}
        assert members == {"name": "echo", "arguments": {"a": 1}, **others}


@pytest.mark.requirement("utilities.progress")
@every_face
@every_client
@every_server
async def test_progress_comes_under_the_token_of_the_client(bench: Bench, face: str, era: str, server_era: str) -> None:
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        calls = [await seen.start("progress", {"n": 3}, _meta={"progressToken": token}) for token in ("one", 2)]
        calls.append(await seen.start("progress", {"n": 3}))
        for call in calls:
            await call.result()
        told = await seen.client.wait_notification("notifications/progress", 6)
        for token in ("one", 2):
            assert [
                (params["progress"], params["total"], params["message"])
                for params in told
                if params["progressToken"] == token
            ] == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert len(told) == 6


@pytest.mark.requirement("utilities.cancellation")
@every_face
@every_client
@every_server
async def test_a_cancelled_call_is_cancelled_at_the_server_and_not_answered(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        hanging = await seen.start("hang")
        await seen.call("count")
        await seen.client.cancel(hanging, "enough")
        (received,) = (await seen.call("cancelled", {"wait": 1}))["structuredContent"]["cancelled"]
        assert received["reason"] == "enough"
        assert not hanging.answered
        assert seen.client.unmatched == []


@pytest.mark.requirement("utilities.ping")
@every_face
async def test_a_ping_is_answered_without_starting_anything(bench: Bench, face: str) -> None:
    async with bench.within({"box": {"server": ()}}, face) as seen:
        assert await seen.client.request("ping") == {}
        assert seen.gateway.started == []


@pytest.mark.requirement("utilities.ping")
@every_face
async def test_a_ping_of_a_server_is_answered(bench: Bench, face: str) -> None:
    async with bench.within({"box": {"server": ("--era", "legacy")}}, face) as seen:
        await seen.open()
        assert (await seen.call("request", {"method": "ping"}))["structuredContent"] == {"result": {}}
        assert seen.client.server_requests == []


@pytest.mark.requirement("isolation.toolboxes", "isolation.failures")
@every_face
@every_client
async def test_the_same_server_in_two_toolboxes_shares_nothing(bench: Bench, face: str, era: str) -> None:
    async with bench.within({"one": {"server": ()}, "two": {"server": ()}}, face, era) as seen:
        for toolbox in ("one", "two"):
            await seen.open(toolbox)
        for expected in (1, 2):
            assert (await seen.call("count", toolbox="one"))["structuredContent"] == {"count": expected}
        assert (await seen.call("count", toolbox="two"))["structuredContent"] == {"count": 1}
        crashed = await seen.call("crash", toolbox="one")
        assert error_text(crashed).startswith("[one/server/crash]")
        assert (await seen.call("count", toolbox="two"))["structuredContent"] == {"count": 2}
        assert (await seen.call("count", toolbox="one"))["structuredContent"] == {"count": 1}
        assert sorted(seen.gateway.started) == ["one/server", "one/server", "two/server"]


@pytest.mark.requirement("tools.filters")
@every_face
@every_client
async def test_a_tool_that_filters_exclude_is_neither_shown_nor_called(bench: Bench, face: str, era: str) -> None:
    entry = ({"toolFilters": ["*", "!crash"]},)
    async with bench.within({"box": {"server": entry}}, face, era) as seen:
        assert "crash" not in await tools_by_own_name(seen)
        call = await seen.start("crash")
        answer = await call.response()
        text = json.dumps(answer)
        assert "crash" in text and ("error" in answer or answer["result"]["isError"])
        assert (await seen.call("count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("manifests.answer")
@every_face
@every_client
async def test_the_cached_offer_is_shown_at_once_and_can_be_called(bench: Bench, face: str, era: str) -> None:
    boxes = {"box": {"server": ("--offers", "test")}}
    async with bench.within(boxes, face, era) as seen:
        first = await tools_by_own_name(seen)
        prompts = await seen.client.request("prompts/list")
    async with bench.within(boxes, face, era) as seen:
        assert await tools_by_own_name(seen) == first
        assert without_stamp(await seen.client.request("prompts/list")) == without_stamp(prompts)
        assert (await seen.call("count"))["structuredContent"] == {"count": 1}
