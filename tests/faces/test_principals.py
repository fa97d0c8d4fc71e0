"""Several users of one workbench, in every face: what happens to one of them is not felt by the others."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial

import pytest

from mcp_workbench.engine.downstream.lifecycle import MAX_CRASHES, RestartPolicy
from tests.faces.harness import ERAS, EVERY_ABILITY, FACES, Bench, Boxes, Seen, introduce
from tests.faces.memory import MemoryClient
from tests.support.client import Json, RpcError

every_face = pytest.mark.parametrize("face", FACES)


@pytest.mark.requirement("isolation.principals")
@every_face
@pytest.mark.parametrize("era", ERAS)
async def test_principals_share_no_server_and_see_only_their_open_toolboxes(bench: Bench, face: str, era: str) -> None:
    async with bench.gateway({"box": {"server": ()}}, options={"face": face}) as gateway, AsyncExitStack() as stack:
        seen = {}
        for name in ("ann", "bob"):
            client = await stack.enter_async_context(MemoryClient.of(gateway, name))
            await introduce(client, era)
            seen[name] = Seen(client, face, era)
        await seen["ann"].open()
        if face == "dynamic":
            assert await seen["bob"].names("tools/list") == ["open_toolbox"]
        await seen["bob"].open()
        for expected in (1, 2):
            assert (await seen["ann"].call("count"))["structuredContent"] == {"count": expected}
        assert (await seen["bob"].call("count"))["structuredContent"] == {"count": 1}
        await seen["ann"].call("crash")
        assert (await seen["bob"].call("count"))["structuredContent"] == {"count": 2}


@pytest.mark.requirement("isolation.principals")
@every_face
async def test_a_server_that_fails_for_one_principal_is_there_for_the_others(
    bench: Bench, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestartPolicy, "delay", lambda self, now: 0.0)
    async with bench.gateway({"box": {"server": ()}}, options={"face": face}) as gateway, AsyncExitStack() as stack:
        seen = {}
        for name in ("ann", "bob"):
            client = await stack.enter_async_context(MemoryClient.of(gateway, name))
            await client.initialize()
            seen[name] = Seen(client, face, "legacy")
            await seen[name].open()
            await seen[name].call("count")
        gateway.forbid("box/server")
        for _ in range(MAX_CRASHES):
            await seen["ann"].call("crash")
        opened = await seen["bob"].open()
        assert "isError" not in opened
        shown = opened.get("structuredContent", opened)["tools"]
        assert len(shown) > 5, "what bob's own server offers"
        assert (await seen["bob"].call("count"))["structuredContent"] == {"count": 2}


@pytest.mark.requirement("isolation.sessions")
@pytest.mark.parametrize("era", ERAS)
async def test_opened_toolboxes_belong_to_the_session_or_else_to_the_principal(bench: Bench, era: str) -> None:
    boxes: Boxes = {"box": {"server": ("--offers", "test")}, "other": {"server": ()}}
    async with bench.gateway(boxes, options={"face": "dynamic"}) as gateway, AsyncExitStack() as stack:
        first, second = [Seen(await stack.enter_async_context(MemoryClient.of(gateway)), "dynamic", era) for _ in "12"]
        for seen in (first, second):
            await introduce(seen.client, era)
        await first.open("box")
        await first.client.request("prompts/list")
        is_shared = era == "modern"
        assert (len(await second.names("tools/list")) > 1) is is_shared
        assert bool(await second.names("prompts/list")) is is_shared
        assert bool(await second.names("resources/list")) is is_shared
        if not is_shared:
            with pytest.raises(RpcError, match="open toolbox `box` first"):
                await second.call("count")
            await second.open("other")
            await first.client.request("ping")
            assert not [name for name in await first.names("tools/list") if name.startswith("other")]
        assert (await first.call("count"))["structuredContent"] == {"count": 1}


@pytest.mark.requirement("isolation.sessions")
async def test_toolboxes_opened_in_a_session_close_with_it(bench: Bench) -> None:
    async with bench.gateway({"box": {"server": ()}}, options={"face": "dynamic"}) as gateway:
        async with MemoryClient.of(gateway) as client:
            await client.initialize()
            await Seen(client, "dynamic", "legacy").open()
            assert len(gateway.router.views.of_sessions) == 1
            view = client.session.view
            await client.initialize()
            assert client.session.view is view, "a second handshake does not close anything"
        assert len(gateway.router.views.of_sessions) == 0


@pytest.mark.requirement("asking.whose")
@every_face
@pytest.mark.parametrize("era", ERAS)
async def test_clients_of_one_user_answer_their_own_questions(bench: Bench, face: str, era: str) -> None:
    """The server has asked before, so each of them has a connection of its own when both call at once."""
    boxes: Boxes = {"box": {"server": ("--era", "legacy")}}
    async with bench.gateway(boxes, options={"face": face}) as gateway, AsyncExitStack() as stack:
        seen = {}
        for name in ("ann", "bob", "cem"):
            client = await stack.enter_async_context(MemoryClient.of(gateway))
            await introduce(client, era, EVERY_ABILITY)
            client.handlers["elicitation/create"] = partial(accept, name)
            seen[name] = Seen(client, face, era)
            await seen[name].open()
        assert len(gateway.runtime.pool.connections()) == 1
        await answer(seen["ann"], "ann", "first")
        async with asyncio.TaskGroup() as tasks:
            # Questions of one modern client's calls are put to it together, with one of them.
            for number in range(5 if era == "legacy" else 1):
                for name, each in seen.items():
                    tasks.create_task(answer(each, name, f"{name} {number}"))
        assert gateway.started.count("box/server") == 3


def accept(name: str, params: Json) -> Json:
    return {"action": "accept", "content": {"name": f"{name} to {params['message']}"}}


async def answer(seen: Seen, name: str, message: str) -> None:
    result = await seen.call("ask", {"message": message})
    if seen.era == "modern":
        (key,) = result["inputRequests"]
        assert result["inputRequests"][key]["params"]["message"] == f"[box/server] {message}"
        said = accept(name, result["inputRequests"][key]["params"])
        more = {"inputResponses": {key: said}, "requestState": result["requestState"]}
        result = await seen.call("ask", {"message": message}, **more)
    assert result["structuredContent"]["result"]["content"] == {"name": f"{name} to [box/server] {message}"}


@pytest.mark.requirement("isolation.principals")
@pytest.mark.parametrize("policy", [[], [{"tools": ["*/*/hang"], "then": "hide"}, {"then": "allow"}]])
async def test_the_state_of_other_users_servers_is_not_shown(bench: Bench, policy: list[Json]) -> None:
    settings = {"policy": policy} if policy else {}
    async with bench.gateway({"box": {"server": ()}}, settings=settings) as gateway, AsyncExitStack() as stack:
        seen = {}
        for name in ("ann", "bob"):
            client = await stack.enter_async_context(MemoryClient.of(gateway, name))
            await client.initialize()
            seen[name] = Seen(client, "proxy", "legacy")
        await seen["ann"].open()
        await seen["ann"].call("crash")

        async def told(name: str) -> Json:
            read = await seen[name].client.request("resources/read", {"uri": "workbench://status"})
            (row,) = json.loads(read["contents"][0]["text"])["servers"]
            (page,) = json.loads(gateway.readiness(name)[1])["servers"]
            assert [page[key] for key in ("lastError", "starts")] == [row[key] for key in ("lastError", "starts")]
            return dict(row)

        assert (await told("ann"))["lastError"] and (await told("ann"))["failures"] == 1
        row = await told("bob")
        assert (row["lastError"], row["starts"], row["bytesSent"]) == (None, 0, 0)
        assert json.loads(gateway.status())["servers"][0]["lastError"], "the one who runs it sees all"
