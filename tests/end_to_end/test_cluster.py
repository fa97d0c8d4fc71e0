"""Several instances with a real state server: what outlives one that is killed, and what happens without the state."""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from mcp_workbench.engine.lasting_state import OPENED, RESULT, SESSION
from tests.engine.transport.http.server.raw_client import LEGACY, initialize, legacy, raw_client
from tests.support.cluster_machines import PATIENCE, Instance, Machines, machines, needs_state_server
from tests.support.workbench import scripted_entry

pytestmark = [pytest.mark.processes, needs_state_server]

BOXES = {"box": {"server": scripted_entry()}, "other": {"second": scripted_entry()}}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the address of a Unix socket has hardly more than a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        yield Path(name)


async def use(client: Client, tool: str, /, **arguments: Any) -> Any:
    path = {"toolbox": "box", "server": "server", "tool": tool}
    return await client.call_tool("use_tool", {"tool": path, "arguments": arguments})


async def begin_long_call(client: Any, headers: dict[str, Any]) -> Any:
    """A call that does not end, and has become a stream that can be resumed."""
    path = {"toolbox": "box", "server": "server", "tool": "hang"}
    call = legacy("tools/call", {"name": "use_tool", "arguments": {"tool": path, "arguments": {}}}, id="long")
    return await client.request(body=call, **headers)


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


async def test_legacy_session_goes_on_at_another_instance(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        stranger = rig.give_key("ben", "a", "b")
        one = await rig.start("a", BOXES, "--face", "dynamic")
        other = await rig.start("b", BOXES, "--face", "dynamic")
        headers: dict[str, Any] = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY}
        async with raw_client(one.port) as client:
            response = await client.request(body=initialize(), authorization=f"Bearer {token}")
            id = response.headers["mcp-session-id"]
            call = legacy("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "other"}})
            opened = await client.request(body=call, mcp_session_id=id, **headers)
            assert opened.status == 200
        await rig.until_left(SESSION, "ann", id, b'"opened":["other"]')
        await one.kill()
        async with raw_client(other.port) as client:
            asked = legacy("tools/list", {}, id=2)
            wrong = {**headers, "authorization": f"Bearer {stranger}"}
            assert (await client.request(body=asked, mcp_session_id=id, **wrong)).status == 404
            listed = await client.request(body=asked, mcp_session_id=id, **headers)
            assert listed.status == 200
            names = [tool["name"] for tool in listed.json["result"]["tools"]]
            assert "other__second_echo" in names, "the toolbox is still open"
            ended = await client.request("DELETE", mcp_session_id=id, content_type=None, **headers)
            assert ended.status == 204
            assert (await client.request(body=asked, mcp_session_id=id, **headers)).status == 404


async def test_instances_of_one_user_may_share_their_folders(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a")
        one, other = await rig.start("a", BOXES), await rig.start("a", BOXES)
        headers: dict[str, Any] = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY}
        async with raw_client(one.port) as client:
            response = await client.request(body=initialize(), authorization=f"Bearer {token}")
            id = response.headers["mcp-session-id"]
        await rig.until_left(SESSION, "ann", id)
        shown = ["team", "cluster", "status", "--config", str(one.folder / "workbench-config.json")]
        async with asyncio.timeout(PATIENCE):
            # They say once a second whom they serve.
            while not re.search(rf"{one.port}/mcp .* 1 +1 +0 ", listed := await one.run(*shown)):
                await asyncio.sleep(0.1)
        assert f":{other.port}/mcp" in listed
        await one.kill()
        async with raw_client(other.port) as client:
            asked = legacy("tools/list", {}, id=2)
            assert (await client.request(body=asked, mcp_session_id=id, **headers)).status == 200
        await other.run("team", "key", "revoke", "ann")
        async with raw_client(other.port) as client, asyncio.timeout(PATIENCE):
            while (await client.request(body=asked, mcp_session_id=id, **headers)).status != 401:
                await asyncio.sleep(0.05)


async def test_session_is_given_up_only_once_the_state_has_said_that_it_is_unknown(folder: Path) -> None:
    async with machines(folder) as rig:
        token, stranger = rig.give_key("ann", "a", "b"), rig.give_key("ben", "a", "b")
        one, other = await rig.start("a", BOXES), await rig.start("b", BOXES)
        headers: dict[str, Any] = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY}
        ids = []
        for instance in (one, other):
            async with raw_client(instance.port) as client:
                response = await client.request(body=initialize(), authorization=f"Bearer {token}")
                ids.append(response.headers["mcp-session-id"])
                await rig.until_left(SESSION, "ann", ids[-1])
        elsewhere, here = ids
        asked = legacy("tools/list", {}, id=2)
        await one.kill()
        rig.state.signal(signal.SIGSTOP)
        try:
            async with raw_client(other.port) as client:
                for id in (elsewhere, "unknown"):
                    for method, body in (("POST", asked), ("DELETE", None)):
                        response = await client.request(method, body=body, mcp_session_id=id, **headers)
                        assert (response.status, response.headers["retry-after"]) == (503, "1"), response.body
                assert (await client.request(body=asked, mcp_session_id=here, **headers)).status == 200
                wrong = {**headers, "authorization": f"Bearer {stranger}"}
                response = await client.request(body=asked, mcp_session_id=here, **wrong)
                assert response.status == 503, "as any other that is unknown"
        finally:
            rig.state.signal(signal.SIGCONT)
        async with raw_client(other.port) as client, asyncio.timeout(PATIENCE):
            while (response := await client.request(body=asked, mcp_session_id=elsewhere, **headers)).status == 503:
                await asyncio.sleep(0.1)
            assert response.status == 200
            assert (await client.request(body=asked, mcp_session_id="unknown", **headers)).status == 404
            assert (await client.request(body=asked, mcp_session_id=here, **wrong)).status == 404


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_kept_result_is_read_on_at_another_instance(folder: Path, mode: str) -> None:
    boxes = {"box": {"server": scripted_entry(resultBudget=200)}}
    async with machines(folder) as rig:
        token, stranger = rig.give_key("ann", "a", "b"), rig.give_key("ben", "a", "b")
        one, other = await rig.start("a", boxes), await rig.start("b", boxes)
        async with rig.client(one.url, token, mode) as client:
            shown = await use(client, "big", bytes=50_000)
            uri = next(str(each.uri) for each in shown.content if each.type == "resource_link")
        await rig.until_left(RESULT, "ann", uri.rpartition("/")[2])
        await one.kill()
        read_on = {"tool": uri, "arguments": {"start": 40_000}}
        async with rig.client(other.url, stranger, mode) as client:
            refused = await client.call_tool("use_tool", read_on)
            assert refused.is_error and "no longer kept" in text_of(refused)
        async with rig.client(other.url, token, mode) as client:
            piece = await client.call_tool("use_tool", read_on)
            assert not piece.is_error and "xxxx" in text_of(piece)
            whole = await client.read_resource(uri)
            assert len(whole.contents[0].model_dump()["text"]) > 50_000


async def test_kept_result_is_not_called_gone_while_the_state_is_away(folder: Path) -> None:
    boxes = {"box": {"server": scripted_entry(resultBudget=200)}}
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        one, other = await rig.start("a", boxes), await rig.start("b", boxes)
        async with rig.client(one.url, token, "auto") as client:
            shown = await use(client, "big", bytes=50_000)
            uri = next(str(each.uri) for each in shown.content if each.type == "resource_link")
        await rig.until_left(RESULT, "ann", uri.rpartition("/")[2])
        await one.kill()
        read_on = {"tool": uri, "arguments": {"start": 40_000}}
        rig.state.signal(signal.SIGSTOP)
        async with rig.client(other.url, token, "auto") as client:
            refused = await client.call_tool("use_tool", read_on)
            assert refused.is_error and "cannot be looked up now" in text_of(refused)
            with pytest.raises(MCPError, match="cannot be looked up now"):
                await client.read_resource(uri)
            rig.state.signal(signal.SIGCONT)
            async with asyncio.timeout(PATIENCE):
                while (piece := await client.call_tool("use_tool", read_on)).is_error:
                    assert "cannot be looked up now" in text_of(piece)
                    await asyncio.sleep(0.1)
            assert "xxxx" in text_of(piece)


async def test_opened_toolboxes_of_modern_clients_are_known_at_another_instance(folder: Path) -> None:
    async with machines(folder) as rig:
        token, stranger = rig.give_key("ann", "a", "b"), rig.give_key("ben", "a", "b")
        one = await rig.start("a", BOXES, "--face", "dynamic")
        other = await rig.start("b", BOXES, "--face", "dynamic")
        async with rig.client(one.url, token, "auto") as client:
            await client.call_tool("open_toolbox", {"toolbox_name": "other"})
        await rig.until_left(OPENED, "ann", "")
        await one.kill()
        seen = {}
        for name, each in (("ben", stranger), ("ann", token)):
            async with rig.client(other.url, each, "auto") as client:
                seen[name] = {tool.name for tool in (await client.list_tools()).tools}
        assert "other__second_echo" in seen["ann"]
        assert "other__second_echo" not in seen["ben"], "they are each user's own"


async def test_opened_toolboxes_are_not_called_closed_while_the_state_is_slow(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        one = await rig.start("a", BOXES, "--face", "dynamic")
        other = await rig.start("b", BOXES, "--face", "dynamic")
        async with rig.client(one.url, token, "auto") as client:
            await client.call_tool("open_toolbox", {"toolbox_name": "other"})
        await rig.until_left(OPENED, "ann", "")
        await one.kill()
        rig.state.signal(signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            async with asyncio.TaskGroup() as tasks:
                named = tasks.create_task(tools_of(rig, other, token))
                await other.process.wait_for(lambda: "is away" in other.process.stderr, "a line about the outage")
                rig.state.signal(signal.SIGCONT)
        assert "other__second_echo" in named.result()


async def tools_of(rig: Machines, instance: Instance, token: str) -> set[str]:
    async with rig.client(instance.url, token, "auto") as client:
        return {tool.name for tool in (await client.list_tools()).tools}


async def test_limit_is_one_limit_for_three_instances(folder: Path) -> None:
    limits = [{"servers": ["*"], "callsPerMinute": 10}]
    async with machines(folder) as rig, AsyncExitStack() as stack:
        token = rig.give_key("ann", "a", "b", "c")
        started = [await rig.start(name, BOXES, limits=limits) for name in "abc"]
        clients = [await stack.enter_async_context(rig.client(each.url, token, "auto")) for each in started]
        await rig.until_listening(3)
        passed = 0
        for number in range(24):
            result = await use(clients[number % 3], "echo", number=number)
            passed += not result.is_error
        assert 10 <= passed <= 12


async def test_stream_of_a_killed_instance_ends_with_an_answer_at_another(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        one, other = await rig.start("a", BOXES), await rig.start("b", BOXES)
        headers: dict[str, Any] = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY}
        async with raw_client(one.port) as client:
            response = await client.request(body=initialize(), authorization=f"Bearer {token}")
            headers["mcp_session_id"] = response.headers["mcp-session-id"]
            stream = await begin_long_call(client, headers)
            begun = await stream.event()
            await rig.until_left(SESSION, "ann", headers["mcp_session_id"])
            await one.kill()
        async with raw_client(other.port) as client:
            resumed = await client.request("GET", last_event_id=begun.id, content_type=None, **headers)
            answer = await resumed.message()
            assert answer["id"] == "long"
            assert "may have been accepted" in answer["error"]["message"]
            await resumed.end()
            nonsense = await client.request("GET", last_event_id="7-1-!!", content_type=None, **headers)
            assert nonsense.status == 400


async def test_client_that_waits_for_notifications_is_sent_to_the_instance_that_serves_it(folder: Path) -> None:
    async with machines(folder) as rig:
        token = rig.give_key("ann", "a", "b")
        one, other = await rig.start("a", BOXES), await rig.start("b", BOXES)
        await rig.until_listening(2)
        headers: dict[str, Any] = {"authorization": f"Bearer {token}", "mcp_protocol_version": LEGACY}
        async with raw_client(one.port) as client, raw_client(other.port) as moved:
            response = await client.request(body=initialize(), authorization=f"Bearer {token}")
            headers["mcp_session_id"] = id = response.headers["mcp-session-id"]
            await rig.until_left(SESSION, "ann", id)
            stream = await client.request("GET", content_type=None, **headers)
            await stream.event()
            assert (await moved.request(body=legacy("tools/list", {}, id=2), **headers)).status == 200
            await stream.end()


async def test_stream_of_a_modern_client_follows_its_user_to_the_instance_that_serves_it(folder: Path) -> None:
    boxes = {"box": {"server": scripted_entry("--offers", "test")}}
    uri = "test:///one"
    async with machines(folder) as rig, AsyncExitStack() as stack:
        names = ("ann", "ben")
        tokens = {name: rig.give_key(name, "a", "b") for name in names}
        one, other = await rig.start("a", boxes), await rig.start("b", boxes)
        await rig.until_listening(2)
        streams = {}
        clients = {}
        for name, token in tokens.items():
            clients[name] = await stack.enter_async_context(rig.client(one.url, token, "auto"))
            await clients[name].call_tool("open_toolbox", {"toolbox_name": "box"})
            streams[name] = await stack.enter_async_context(clients[name].listen(resource_subscriptions=[uri]))
            assert streams[name].honored.resource_subscriptions == [uri]
        async with rig.client(other.url, tokens["ann"], "auto") as moved:
            await moved.call_tool("open_toolbox", {"toolbox_name": "box"})
            # What she does there is told nowhere else: the stream ends as a server ends one, and she asks for another.
            async with asyncio.timeout(PATIENCE):
                assert [event async for event in streams["ann"]] == []
            async with moved.listen(resource_subscriptions=[uri]) as again:
                await use(moved, "update_resource", uri=uri)
                async with asyncio.timeout(PATIENCE):
                    await anext(aiter(again))
        # Of who has stayed, it has stayed open.
        await use(clients["ben"], "update_resource", uri=uri)
        async with asyncio.timeout(PATIENCE):
            await anext(aiter(streams["ben"]))
