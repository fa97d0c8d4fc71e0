"""Tools with a user interface: listed by themselves where tools are not, and called by the names that apps know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.catalog.names import is_accepted_by_clients
from mcp_workbench.engine.face.app_tools import shows_apps
from mcp_workbench.engine.face.pins import ExposedNames
from mcp_workbench.team.lock.lock_file import written
from tests.faces.harness import ERAS
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with
from tests.support.processes import eventually
from tests.team.lock.test_definition_lock import lock_of

APPS: Json = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
CHART: Json = {**tool("draw", "Draws a chart."), "_meta": {"ui": {"resourceUri": "ui://charts/view.html"}, "own": 1}}
OLDER: Json = {**tool("map"), "_meta": {"ui/resourceUri": "ui://maps/view.html"}}
NO_APP: Json = {**tool("guide", "Has a `ui` in its text."), "_meta": {"ui": {"theme": "dark"}}}
every_era = pytest.mark.parametrize("era", ERAS)


def boxes() -> dict[str, dict[str, Server]]:
    return {
        "office": {"charts": Server(CHART, tool("refresh"), NO_APP), "maps": Server(OLDER, tool("zoom"))},
        "home": {"lights": Server(tool("switch"))},
    }


async def names(seen: ConnectedClient) -> list[str]:
    return [each["name"] for each in (await seen.client.request("tools/list"))["tools"]]


async def failure(seen: ConnectedClient, name: str) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await seen.client.request("tools/call", {"name": name, "arguments": {}})
    return caught.value


TWO = ["open_toolbox", "use_tool"]
APP_TOOLS = ["office__charts_draw", "office__maps_map"]


@every_era
async def test_a_client_that_shows_apps_gets_their_tools_beside_the_two(tmp_path: Path, era: str) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, era=era, abilities=APPS) as seen:
        assert await names(seen) == TWO
        await seen.open(toolbox_name="office")
        assert await names(seen) == [*TWO, *APP_TOOLS]
        found = {each["name"]: each for each in (await seen.client.request("tools/list"))["tools"]}
        assert found["office__charts_draw"] == {**CHART, "name": "office__charts_draw"}
        await seen.client.call_tool("office__charts_draw", {"x": 1})
        assert every["office"]["charts"].calls == [("draw", {"x": 1})]


@every_era
async def test_app_tools_are_listed_from_manifests_without_a_start(tmp_path: Path, era: str) -> None:
    async with workbench_with(tmp_path, boxes(), era=era) as seen:
        await seen.open(toolbox_name="office")
    every = boxes()
    async with workbench_with(tmp_path, every, era=era, abilities=APPS) as seen:
        assert await names(seen) == [*TWO, *APP_TOOLS]
        assert every["office"]["charts"].starts == every["home"]["lights"].starts == 0


@every_era
async def test_other_clients_get_the_same_bytes_as_ever(tmp_path: Path, era: str) -> None:
    async with workbench_with(tmp_path, boxes(), era=era) as seen:
        before = await seen.client.request("tools/list")
        await seen.open(toolbox_name="office")
        assert await seen.client.request("tools/list") == before
        assert len(before["tools"]) == 2


async def test_a_client_that_shows_apps_is_told_when_their_tools_change(tmp_path: Path) -> None:
    every = boxes()
    charts = every["office"]["charts"]
    async with workbench_with(tmp_path, every, abilities=APPS) as seen:
        assert await names(seen) == TWO

        def told() -> int:
            return len(seen.client.received("notifications/tools/list_changed"))

        await seen.open(toolbox_name="office")
        await eventually(lambda: told() >= 1, what="the first list")
        assert await names(seen) == [*TWO, *APP_TOOLS]
        before, charts.tools = told(), [tool("refresh")]
        charts.say_changed()
        await eventually(lambda: told() > before, what="a removed tool")
        assert await names(seen) == [*TWO, "office__maps_map"]


async def test_an_app_calls_the_tools_of_its_server_by_their_own_names(tmp_path: Path) -> None:
    every = boxes()
    async with workbench_with(tmp_path, every, abilities=APPS) as seen:
        await seen.open(toolbox_name="office")
        await seen.client.call_tool("refresh", {})
        assert every["office"]["charts"].calls == [("refresh", {})]
        # No app can come from a server without a user interface.
        assert (await failure(seen, "switch")).code == -32602


@every_era
@pytest.mark.parametrize("face", ["flat", "auto"])
async def test_a_bare_name_that_one_server_has_is_accepted(tmp_path: Path, era: str, face: str) -> None:
    every = boxes()
    # `auto` shows all tools to a client that defers them.
    clients: Json = {"clients": {"*": {"face": "flat"}}} if face == "auto" else {}
    async with workbench_with(tmp_path, every, era=era, face=face, **clients) as seen:
        assert len(await names(seen)) > 5
        await seen.client.call_tool("switch", {"on": True})
        assert every["home"]["lights"].calls == [("switch", {"on": True})]


async def test_a_bare_name_of_several_servers_is_refused_with_the_candidates(tmp_path: Path) -> None:
    every = boxes()
    every["home"]["more"] = Server(tool("switch"))
    async with workbench_with(tmp_path, every, face="flat") as seen:
        await names(seen)
        error = await failure(seen, "switch")
        assert (error.code, error.data) == (-32600, {"candidates": ["home:lights:switch", "home:more:switch"]})
        assert every["home"]["lights"].calls == every["home"]["more"].calls == []
        assert (await failure(seen, "nothing")).code == -32600


async def test_bare_name_does_not_reach_hidden_tools(tmp_path: Path) -> None:
    every = boxes()
    every["home"]["lights"].settings["toolFilters"] = ["!switch"]
    rules: list[Any] = [{"tools": ["office/charts/**"], "then": "hide"}, {"then": "allow"}]
    async with workbench_with(tmp_path, every, face="flat", policy=rules) as seen:
        await names(seen)
        assert (await failure(seen, "switch")).code == -32600
        assert (await failure(seen, "refresh")).code == -32600
        await seen.client.call_tool("zoom", {})
    async with workbench_with(tmp_path, every, policy=rules, abilities=APPS) as seen:
        assert await names(seen) == [*TWO, "office__maps_map"]
        assert (await failure(seen, "draw")).code == (await failure(seen, "office__charts_draw")).code == -32602
    assert every["office"]["charts"].calls == []


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        (b'{"extensions":{"io.modelcontextprotocol/ui":{}}}', True),
        (b'{"experimental":{"io.modelcontextprotocol/ui":{}}}', False),
        (b'{"extensions":"io.modelcontextprotocol/ui"}', False),
        (b"{}", False),
    ],
)
def test_which_clients_show_apps(capabilities: bytes, declared: bool) -> None:
    assert shows_apps(capabilities) is declared


@every_era
@pytest.mark.parametrize("face", ["proxy", "flat", "auto"])
async def test_a_call_of_a_withheld_tool_does_not_go_to_another_server(tmp_path: Path, era: str, face: str) -> None:
    every = {"office": {"charts": Server(CHART, tool("save")), "maps": Server(OLDER, tool("save"))}}
    charts, maps = every["office"].values()
    async with workbench_with(tmp_path, every) as seen:
        await seen.open(toolbox_name="office")
        (tmp_path / "workbench.lock").write_bytes(written(lock_of(seen)))
    charts.tools[1] = tool("save", "Does something else now.")
    async with workbench_with(tmp_path, every, era=era, face=face, abilities=APPS, lock="enforce") as seen:
        # Which waits until the server has listed what it offers now.
        await seen.client.call_tool("office:charts:draw" if face == "flat" else APP_TOOLS[0], {})
        assert "is withheld" in str(await failure(seen, "save"))
        assert maps.calls == [] and charts.calls == [("draw", {})]


@every_era
async def test_names_that_two_servers_could_have_lead_to_neither_by_chance(tmp_path: Path, era: str) -> None:
    def draws(name: str) -> Json:
        return {**CHART, "name": name}

    every = {"box": {"one": Server(draws("x_y"), draws("plain")), "one_x": Server(draws("y")), "two": Server()}}
    async with workbench_with(tmp_path, every, era=era, abilities=APPS) as seen:
        await seen.open(toolbox_name="box")
        first, plain, second = (await names(seen))[2:]
        assert plain == "box__one_plain"
        for name, server, own in ((first, "one", "x_y"), (second, "one_x", "y")):
            assert name.startswith("box__one_x_y_")
            await seen.client.call_tool(name, {})
            assert every["box"][server].calls == [(own, {})]
        assert first != second
        assert (await failure(seen, "box__one_x_y")).code == -32602
        # Nor does the other one take it over when it is alone.
        every["box"]["one"].tools = []
        every["box"]["one"].say_changed()
        while first in await names(seen):
            pass
        assert (await failure(seen, "box__one_x_y")).code == -32602
        assert [len(each.calls) for each in every["box"].values()] == [1, 1, 0]


def test_different_tools_never_share_a_name() -> None:
    servers = [("box", "one"), ("box", "one_x"), ("box__one", "x"), ("box", "é" * 70), ("box", "è" * 70)]
    exposed = ExposedNames(servers)
    tools = ["y", "x_y", "x_x_y", "_y", "x", "x__y", "z" * 80, "z" * 81, "é", "è"]
    found = {exposed.of(*server, each) for server in servers for each in tools}
    assert len(found) == len(servers) * len(tools)
    assert all(map(is_accepted_by_clients, found))
