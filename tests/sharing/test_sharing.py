"""Who shares a server, and that everything else of a client stays its own."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.client import Json, RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

Toolboxes = Mapping[str, Mapping[str, Any]]


class Crowd:
    """Clients of one shared workbench, in folders and with environments of their own."""

    def __init__(self, shared: Shared, stack: AsyncExitStack) -> None:
        self._shared = shared
        self._stack = stack

    def config(self, toolboxes: Toolboxes, folder: str = "", **settings: Any) -> Path:
        place = self._shared.folder / folder
        place.mkdir(exist_ok=True)
        return write_config(place, toolboxes, **settings)

    async def join(
        self,
        config: Path,
        *flags: str,
        folder: str = "",
        era: str = "legacy",
        capabilities: dict[str, Any] | None = None,
        **variables: str,
    ) -> RawClient:
        place = self._shared.folder / folder
        place.mkdir(exist_ok=True)
        command, env = workbench_command(config, *flags), {**os.environ, **variables}
        client = await self._stack.enter_async_context(RawClient.spawn(command, env=env, cwd=place))
        if era == "modern":
            client.stamp(capabilities=capabilities)
        else:
            await client.initialize(capabilities=capabilities)
        return client

    def status(self) -> Any:
        (found,) = (each for each in decode(run("status", "--json").stdout) if each["serving"] == "shared")
        return found


@asynccontextmanager
async def crowded(shared: Shared) -> AsyncIterator[Crowd]:
    async with AsyncExitStack() as stack:
        yield Crowd(shared, stack)


async def used(client: RawClient, tool: str, server: str = "server", box: str = "box", **arguments: Any) -> Any:
    return (await client.use_tool(box, server, tool, arguments))["structuredContent"]


async def process(client: RawClient, server: str = "server", box: str = "box") -> int:
    pid: int = (await used(client, "pid", server, box))["pid"]
    return pid


@pytest.mark.requirement("sharing.equal-servers")
async def test_clients_of_both_eras_share_a_server_in_the_same_folder(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config(
            {"box": {"server": scripted_entry("--era", "dual")}, "other": {"server": scripted_entry()}}
        )
        first, second = await crowd.join(config), await crowd.join(config, era="legacy")
        modern, also = await crowd.join(config, era="modern"), await crowd.join(config, "--face", "flat", era="modern")
        assert await process(first) == await process(second) == await process(modern)
        flat = await also.call_tool("box:server:pid", {})
        assert await process(modern) == flat["structuredContent"]["pid"], "another face is another catalogue"
        assert await process(first) != await process(first, box="other"), "toolboxes never share"


@pytest.mark.requirement("sharing.equal-servers")
async def test_sessions_with_a_random_folder_in_path_share_a_server(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"first": scripted_entry(), "server": {**scripted_entry(), "command": "python"}}})
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
        sessions = []
        for name in ("codex-arg0a", "codex-arg0b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "apply_patch").touch(0o755)
            path = f"{tmp_path / name}:{tmp_path / 'bin'}:{os.environ['PATH']}"
            sessions.append(await crowd.join(config, PATH=path))
        assert await process(sessions[0]) == await process(sessions[1])


@pytest.mark.requirement("sharing.ask")
async def test_a_legacy_client_that_can_be_asked_is_served_in_its_own_era(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", "dual")}})
        able = await crowd.join(config, capabilities={"elicitation": {}})
        able.handlers["elicitation/create"] = partial(_accept, "anna")
        unable, modern = await crowd.join(config), await crowd.join(config, era="modern")
        assert await process(unable) == await process(modern) != await process(able)
        # Asked in the middle of the call, which no server of the modern era does.
        assert "result" in await used(able, "ask")


@pytest.mark.requirement("sharing.ask")
async def test_a_legacy_client_on_a_modern_connection_misses_nothing(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", "dual", "--offers", "test")}})
        modern, legacy = await crowd.join(config, era="modern"), await crowd.join(config)
        assert await process(modern) == await process(legacy)
        await legacy.request("logging/setLevel", {"level": "error"})
        await legacy.request("resources/subscribe", {"uri": "test:///one"})
        await legacy.use_tool("box", "server", "log", {"levels": ["info", "error"]})
        (message,) = await legacy.wait_notification("notifications/message")
        assert message["level"] == "error"
        await modern.use_tool("box", "server", "update_resource", {"uri": "test:///one"})
        assert await legacy.wait_notification("notifications/resources/updated")
        assert not [each for each in modern.notifications if each["method"].endswith(("/message", "/updated"))]


async def test_clients_in_other_folders_share_servers_of_the_user(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        servers = {"own": scripted_entry(), "everywhere": scripted_entry(share="user")}
        config = crowd.config({"box": servers})
        one, other = await crowd.join(config, folder="one"), await crowd.join(config, folder="other")
        assert await process(one, "own") != await process(other, "own")
        assert await process(one, "everywhere") == await process(other, "everywhere")
        assert (await used(one, "env", "own", name="PWD"))["value"] is None


async def test_folder_environment_and_variables_are_the_clients(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        where = {"command": "sh", "args": ["-c", 'exec "$0" "$@"', *_line(scripted_entry())]}
        config = crowd.config({"box": {"server": {**where, "env": {"FROM": "${NAME}"}, "inheritEnv": ["HANDED"]}}})
        anna = await crowd.join(config, folder="a", NAME="anna", HANDED="1")
        bert = await crowd.join(config, folder="a", NAME="bert", HANDED="1")
        also = await crowd.join(config, folder="a", NAME="anna", HANDED="1", IRRELEVANT="x", TERM="dumb")
        other = await crowd.join(config, folder="a", NAME="anna", HANDED="2")
        assert [(await used(each, "env", name="FROM"))["value"] for each in (anna, bert)] == ["anna", "bert"]
        assert (await used(other, "env", name="HANDED"))["value"] == "2"
        assert await process(anna) == await process(also)
        assert len({await process(each) for each in (anna, bert, other)}) == 3
        assert os.readlink(f"/proc/{await process(anna)}/cwd") == str((shared.folder / "a").resolve())


def _line(entry: dict[str, Any]) -> list[str]:
    return [entry["command"], *entry["args"]]


@pytest.mark.requirement("sharing.state")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_with_state_is_each_clients_own_and_goes_with_it(shared: Shared, era: str) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", "dual", share="session")}})
        stays = await crowd.join(config, era=era)
        async with crowded(shared) as others:
            goes = await others.join(config, era=era)
            own, its = await process(stays), await process(goes)
            assert own != its
            assert await process(stays) == own and await process(goes) == its
            assert [(await used(stays, "count"))["count"] for _ in range(3)][-1] == 3
            assert (await used(goes, "count"))["count"] == 1
        assert _ended(its), "it ends with its client"
        assert await process(stays) == own


def _ended(pid: int) -> bool:
    from tests.support.processes import wait_until

    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    return True


@pytest.mark.requirement("sharing.ask")
async def test_capabilities_count_only_where_they_matter(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        servers = {
            "old": scripted_entry("--era", "legacy"),
            "mute": scripted_entry("--era", "legacy", ask=False),
            "new": scripted_entry("--era", "modern"),
            "both": scripted_entry("--era", "dual", ask=False),
        }
        config = crowd.config({"box": servers})
        able = await crowd.join(config, capabilities={"elicitation": {}, "roots": {}})
        also = await crowd.join(config, capabilities={"elicitation": {"form": {}}, "roots": {"listChanged": False}})
        unable = await crowd.join(config)
        assert await process(able, "old") == await process(also, "old") != await process(unable, "old")
        modern = await crowd.join(config, era="modern", capabilities={"sampling": {}})
        for server in ("mute", "new", "both"):
            assert len({await process(each, server) for each in (able, also, unable, modern)}) == 1
        able.handlers["elicitation/create"] = partial(_accept, "anna")
        assert "error" in await used(able, "ask", "mute"), "nobody can be asked"
        assert "result" in await used(able, "ask", "old")


async def test_a_server_that_asks_becomes_each_clients_own(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", "legacy")}})
        able: Json = {"elicitation": {}}
        anna, bert = await crowd.join(config, capabilities=able), await crowd.join(config, capabilities=able)
        assert await process(anna) == await process(bert)
        for client, name in ((anna, "anna"), (bert, "bert")):
            client.handlers["elicitation/create"] = partial(_accept, name)
        first = await anna.use_tool("box", "server", "ask", {})
        said = [await bert.use_tool("box", "server", "ask", {}) for _ in range(2)]
        assert "anna" in str(first) or first.get("isError")
        assert all("anna" not in str(each) for each in said)
        assert await process(anna) != await process(bert)


def _accept(name: str, params: Json) -> Json:
    return {"action": "accept", "content": {"name": name}}


@pytest.mark.requirement("sharing.log-levels")
async def test_each_client_gets_the_log_messages_that_it_asked_for(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry("--era", "legacy")}})
        loud, quiet = await crowd.join(config), await crowd.join(config)
        await loud.request("logging/setLevel", {"level": "debug"})
        await quiet.request("logging/setLevel", {"level": "error"})
        assert await process(loud) == await process(quiet)
        for client in (loud, quiet):
            await client.use_tool("box", "server", "log", {"levels": ["debug", "info", "error"]})

        def levels(client: RawClient) -> set[str]:
            return {params["level"] for params in client.received("notifications/message")}

        assert levels(loud) == {"debug", "info", "error"}
        assert levels(quiet) == {"error"}


async def test_an_opened_toolbox_is_open_for_one_client_only(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry()}})
        one = await crowd.join(config, "--face", "dynamic", era="modern")
        other = await crowd.join(config, "--face", "dynamic", era="modern")
        before = await other.request("tools/list")
        await one.call_tool("open_toolbox", {"toolbox_name": "box"})
        assert len((await one.request("tools/list"))["tools"]) > len(before["tools"])
        assert (await other.request("tools/list"))["tools"] == before["tools"]


async def test_status_shows_which_clients_share_which_servers(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry(), "unused": scripted_entry(share="user")}})
        one, other = await crowd.join(config, folder="a"), await crowd.join(config, folder="a")
        await process(one)
        await process(other)
        shown = crowd.status()
        pids = sorted((one.pid, other.pid))
        assert sorted(client["pid"] for client in shown["clients"]) == pids
        assert {client["folder"] for client in shown["clients"]} == {str(shared.folder / "a")}
        assert {client["config"] for client in shown["clients"]} == {str(config)}
        servers = {server["server"]: server for server in shown["servers"]}
        assert servers["server"]["users"] == pids and servers["server"]["share"] == "project"
        assert servers["unused"]["users"] == [] and servers["unused"]["share"] == "user"
        text = run("status", "--long").stdout
        name = shown["clients"][0]["name"]
        users = f"{name} ({pids[0]}), {name} ({pids[1]})"
        assert f"    ready in {shared.folder / 'a'} (share: project): used by {users}\n" in text


async def test_servers_stay_for_a_client_that_comes_back(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry()}})
        async with crowded(shared) as before:
            pid = await process(await before.join(config))
        assert await process(await crowd.join(config)) == pid
