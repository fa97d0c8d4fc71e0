"""An opened toolbox stays open: which servers are stopped for idleness, and what is said where one was in use."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from mcp_workbench.engine.config import server as server_settings
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.downstream import connection as connections
from mcp_workbench.engine.downstream.lifecycle import State
from tests.faces.harness import ERAS, FACES, Bench, Seen, introduce
from tests.faces.memory import MemoryClient, MemoryGateway
from tests.support.client import RpcError
from tests.support.processes import eventually

every_face = pytest.mark.parametrize("face", FACES)
every_client = pytest.mark.parametrize("era", ERAS)
SOON = 0.05
RESTARTED = "mcp-workbench/restarted"


@pytest.fixture
def soon_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle servers are stopped after a moment, unless the configuration says otherwise."""

    def config(**fields: Any) -> ServerConfig:
        return ServerConfig(**{"idle_timeout": SOON, **fields})

    monkeypatch.setattr(server_settings, "ServerConfig", config)


def state(gateway: MemoryGateway, label: str) -> State:
    return gateway.only_connection(label).state


async def stopped(gateway: MemoryGateway, label: str) -> None:
    await eventually(lambda: state(gateway, label) is State.STOPPED, what=f"the end of {label}")


async def count(seen: Seen, server: str, toolbox: str = "box") -> Any:
    return (await seen.call("count", server=server, toolbox=toolbox))["structuredContent"]["count"]


@pytest.mark.requirement("servers.idle", "dynamic.no-close", "proxy.idempotent")
@pytest.mark.usefixtures("soon_idle")
@every_face
@every_client
async def test_a_server_that_was_used_keeps_its_state_while_its_client_is_connected(
    bench: Bench, face: str, era: str
) -> None:
    boxes = {"box": {"server": (), "used": ()}, "clock": {"server": ()}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open("box")
        assert await count(seen, "used") == 1
        # Started to be listed, later than the other was used, and by nobody else.
        clock = seen.gateway.runtime.pool.connection(
            seen.gateway.catalog.toolboxes["clock"]["server"], seen.gateway.only_connection("box/used").caller
        )
        await clock.ensure_listed()
        await stopped(seen.gateway, "clock/server")
        assert await count(seen, "used") == 2
        assert seen.gateway.started.count("box/used") == 1


@pytest.mark.requirement("servers.idle", "dynamic.no-close")
@pytest.mark.usefixtures("soon_idle")
@pytest.mark.parametrize("face", ["proxy", "dynamic"])
@every_client
async def test_all_servers_of_an_opened_toolbox_stay_up(bench: Bench, face: str, era: str) -> None:
    async with bench.within({"box": {"one": (), "two": ()}}, face, era) as seen:
        await seen.open("box")
        for label in ("box/one", "box/two"):
            found = seen.gateway.only_connection(label)
            await found.ensure_ready()
            assert found.is_held and found.stops_at is None


@pytest.mark.requirement("servers.idle")
@pytest.mark.usefixtures("soon_idle")
async def test_servers_that_were_started_for_a_list_are_stopped(bench: Bench) -> None:
    async with bench.within({"box": {"one": (), "two": ()}}, "flat") as seen:
        await seen.client.request("tools/list")
        await stopped(seen.gateway, "box/one")
        await stopped(seen.gateway, "box/two")


@pytest.mark.requirement("servers.idle")
@pytest.mark.usefixtures("soon_idle")
async def test_a_server_is_stopped_when_the_last_client_that_had_it_open_has_left(bench: Bench) -> None:
    async with bench.within({"box": {"other": (), "server": ()}}, "proxy") as seen:
        seen.gateway.runtime.pool.serve_many()
        await seen.open("box")
        assert await count(seen, "server") == 1
        connection = seen.gateway.only_connection("box/server")
        async with MemoryClient.of(seen.gateway) as second:
            await introduce(second, "legacy")
            assert await count(Seen(second, "proxy", "legacy", gateway=seen.gateway), "server") == 2
            seen.client.session.leave()  # type: ignore[attr-defined]
            assert connection.is_held and connection.stops_at is None
        await stopped(seen.gateway, "box/server")


@pytest.mark.requirement("servers.idle")
@pytest.mark.usefixtures("soon_idle")
async def test_a_client_without_a_session_is_connected_while_its_principal_calls_something(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request over HTTP is a new client; what they have in common is the principal."""
    async with bench.gateway({"box": {"clock": (), "server": ()}}, options={"face": "proxy"}) as gateway:
        gateway.runtime.pool.serve_many()

        async def call(principal: str, server: str) -> Any:
            async with MemoryClient.of(gateway, principal) as client:
                await introduce(client, "modern")
                return await count(Seen(client, "proxy", "modern", gateway=gateway), server)

        assert await call("ann", "server") == 1
        mine = gateway.only_connection("box/server")
        limit = connections.PRESENCE_LIMIT
        assert mine.stops_at == mine.traffic.last_used + limit
        # Another principal's calls are not hers; her own at another server are.
        before = mine.stops_at
        assert await call("bob", "clock") == 1
        assert mine.stops_at == before
        assert await call("ann", "clock") == 1
        (hers,) = [
            each for each in gateway.runtime.pool.connections() if each.label == "box/clock" and each.principal == "ann"
        ]
        assert mine.stops_at == hers.traffic.last_used + limit > before
        monkeypatch.setattr(connections, "PRESENCE_LIMIT", SOON)
        mine.adjust(mine.config)
        await stopped(gateway, "box/server")


@pytest.mark.requirement("servers.idle-in-use")
@every_face
@every_client
async def test_where_the_idle_timeout_ends_a_server_in_use_its_next_result_says_so_once(
    bench: Bench, face: str, era: str
) -> None:
    boxes = {"box": {"other": (), "server": ({"idleTimeout": SOON},)}}
    async with bench.within(boxes, face, era) as seen:
        await seen.open("box")
        assert await count(seen, "server") == 1
        await stopped(seen.gateway, "box/server")
        assert RESTARTED not in (await seen.call("echo", server="other")).get("_meta", {})
        # A JSON-RPC error is no result of the server.
        with suppress(RpcError):
            assert RESTARTED not in (await seen.call("fail", server="server"))["_meta"]
        result = await seen.call("count", server="server")
        assert result["structuredContent"] == {"count": 1}
        assert result["_meta"][RESTARTED] == "box/server"
        assert result["content"][-1]["text"].startswith(f"Note: box/server was stopped after {SOON} s without a call")
        assert "\n" not in result["content"][-1]["text"]
        result = await seen.call("count", server="server")
        assert result["structuredContent"] == {"count": 2} and RESTARTED not in result.get("_meta", {})


@pytest.mark.requirement("servers.idle-in-use")
async def test_only_clients_that_had_it_open_are_told_of_the_restart(bench: Bench) -> None:
    async with bench.within({"box": {"other": (), "server": ({"idleTimeout": SOON},)}}, "proxy") as seen:
        seen.gateway.runtime.pool.serve_many()
        assert await count(seen, "server") == 1
        await stopped(seen.gateway, "box/server")
        async with MemoryClient.of(seen.gateway) as second:
            await introduce(second, "legacy")
            newcomer = Seen(second, "proxy", "legacy", gateway=seen.gateway)
            assert RESTARTED not in (await newcomer.call("count", server="server")).get("_meta", {})
        assert RESTARTED in (await seen.call("count", server="server"))["_meta"]


@pytest.mark.requirement("servers.idle")
@pytest.mark.usefixtures("soon_idle")
@pytest.mark.parametrize("never", [0, None])
async def test_a_server_without_idle_timeout_keeps_running_unused(bench: Bench, never: object) -> None:
    async with bench.within({"box": {"clock": (), "server": ({"idleTimeout": never},)}}, "flat") as seen:
        await seen.client.request("tools/list")
        await stopped(seen.gateway, "box/clock")
        assert seen.gateway.only_connection("box/server").stops_at is None
        assert state(seen.gateway, "box/server") is State.READY
