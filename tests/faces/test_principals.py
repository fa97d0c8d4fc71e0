"""Several users of one workbench, in every face: what happens to one of them is not felt by the others."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from mcp_workbench.downstream.lifecycle import MOST_CRASHES, RestartPolicy
from tests.faces.harness import ERAS, FACES, Bench, Seen, introduce
from tests.faces.memory import MemoryClient

every_face = pytest.mark.parametrize("face", FACES)


@pytest.mark.requirement("isolation.principals")
@every_face
@pytest.mark.parametrize("era", ERAS)
async def test_principals_share_no_server_and_see_only_what_they_opened(bench: Bench, face: str, era: str) -> None:
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
async def test_a_server_that_is_given_up_for_one_principal_is_there_for_the_others(
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
        for _ in range(MOST_CRASHES):
            await seen["ann"].call("crash")
        opened = await seen["bob"].open()
        assert "isError" not in opened
        shown = opened.get("structuredContent", opened)["tools"]
        assert len(shown) > 5, "what bob's own server offers"
        assert (await seen["bob"].call("count"))["structuredContent"] == {"count": 2}
