"""Clients whose patience progress renews hear of a call that takes long, ahead of their timeout; no others do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from mcp_workbench.engine.face.client_behaviour import behaviours
from mcp_workbench.engine.jsonrpc.pending import REMIND_INTERVAL
from tests.faces.harness import Bench, Boxes
from tests.faces.memory import MemoryClient, MemoryGateway
from tests.support.client import Json

BOXES: Boxes = {"box": {"server": []}}
PROGRESS = "notifications/progress"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for module in ("engine.jsonrpc.pending", "engine.downstream.clients", "engine.router.routed_call"):
        monkeypatch.setattr(f"mcp_workbench.{module}.REMIND_INTERVAL", 0.05)
    return Bench(tmp_path)


@asynccontextmanager
async def client_named(gateway: MemoryGateway, name: str, era: str = "legacy") -> AsyncIterator[MemoryClient]:
    async with MemoryClient.of(gateway) as client:
        info = {"name": name, "version": "1"}
        if era == "modern":
            client.stamp(clientInfo=info)
        else:
            await client.request(
                "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            )
        yield client


def tool(name: str) -> Json:
    return {"tool": f"box/server/{name}"}


def told(client: MemoryClient) -> list[Json]:
    return client.received(PROGRESS)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_takes_long_is_reported_as_under_way(bench: Bench, era: str) -> None:
    async with bench.gateway(BOXES) as gateway, AsyncExitStack() as stack:
        waiting = await stack.enter_async_context(client_named(gateway, "opencode", era))
        # Codex counts its 300 s whatever it hears, and of others nothing is known.
        codex = await stack.enter_async_context(client_named(gateway, "codex-mcp-client", era))
        unknown = await stack.enter_async_context(client_named(gateway, "nobody-knows-me", era))
        for client in (codex, unknown, waiting):
            call = await client.start_tool("use_tool", tool("hang"), _meta={"progressToken": "mine"})
            stack.push_async_callback(client.cancel, call)
        without_token = await waiting.start_tool("use_tool", tool("hang"))
        stack.push_async_callback(waiting.cancel, without_token)
        # While its server is being started, a call has no better name than its method.
        still_running = "[box/server/hang] still running"
        await waiting.wait_for(lambda: [each["message"] for each in told(waiting)].count(still_running) > 1, PROGRESS)
        assert {each["progressToken"] for each in told(waiting)} == {"mine"}
        values = [each["progress"] for each in told(waiting)]
        assert values == sorted(set(values))
        assert told(codex) == told(unknown) == []


async def test_own_progress_continues_from_that_of_the_server(bench: Bench) -> None:
    async with bench.gateway(BOXES) as gateway, client_named(gateway, "qwen-cli-mcp-client-x") as client:
        arguments = {"tool": "box/server/slow", "arguments": {"seconds": 3.0}}
        call = await client.start_tool("use_tool", arguments, _meta={"progressToken": 7})

        def pairs() -> list[tuple[Json, Json]]:
            heard = told(client)
            return [
                (before, after)
                for before, after in pairwise(heard)
                if before["message"].startswith("step") and after["message"].endswith("still running")
            ]

        await client.wait_for(lambda: bool(pairs()), "ours behind the server's")
        from_server, ours = pairs()[0]
        assert from_server["progress"] < ours["progress"] < from_server["progress"] + 0.001
        await client.cancel(call)


async def test_a_server_that_takes_long_to_start_is_reported_as_awaited(bench: Bench) -> None:
    async with bench.gateway(BOXES) as gateway, client_named(gateway, "opencode") as client:
        gate = gateway.close_gate("box/server")
        call = await client.start_tool(
            "use_tool", {"tool": "box/server/echo", "arguments": {"text": "x"}}, _meta={"progressToken": 1}
        )
        await client.wait_notification(PROGRESS, 2)
        gate.set()
        assert not (await call.result()).get("isError")


def test_every_client_hears_in_time() -> None:
    patient = [row.call_seconds for row in behaviours().values() if row.progress_extends]
    assert patient and min(seconds or 0 for seconds in patient) >= 3 * REMIND_INTERVAL
