"""Another configuration while calls run: what it does not change goes on, what it changes ends in order."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.sandbox.sandbox import Capabilities
from tests.support.client import Call, Json
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with
from tests.support.processes import eventually

FACES = ("proxy", "flat", "dynamic")
every_face = pytest.mark.parametrize("face", FACES)


def saying(text: str) -> Server:
    return Server(tool("get", "Gets."), answer=lambda name, given: {"content": [{"type": "text", "text": text}]})


def named(face: str, toolbox: str, server: str, own: str = "get") -> str:
    return {"flat": f"{toolbox}:{server}:{own}", "dynamic": f"{toolbox}__{server}_{own}"}[face]


async def start(seen: ConnectedClient, face: str, toolbox: str, server: str) -> Call:
    if face == "proxy":
        return await seen.client.start_tool("use_tool", {"tool": f"{toolbox}/{server}/get", "arguments": {}})
    return await seen.client.start_tool(named(face, toolbox, server), {})


async def call(seen: ConnectedClient, face: str, toolbox: str, server: str) -> str:
    return said(await (await start(seen, face, toolbox, server)).response())


def said(response: Json) -> str:
    if "error" in response:
        message: str = response["error"]["message"]
        return message
    text: str = response["result"]["content"][0]["text"]
    return text


async def make_known(seen: ConnectedClient, face: str, *toolboxes: str) -> None:
    if face == "flat":
        await seen.client.request("tools/list")
    for toolbox in toolboxes if face != "flat" else ():
        await seen.open(toolbox_name=toolbox)


def connections(seen: ConnectedClient) -> dict[str, Connection]:
    return {each.label: each for each in seen.gateway.runtime.pool.connections()}


async def under_way(server: Server) -> None:
    assert server.held is not None
    held = server.held
    await eventually(lambda: bool(held), what="a call that is under way")


def release(server: Server) -> None:
    assert server.held is not None
    for answer in server.held:
        answer()


@every_face
async def test_an_untouched_server_keeps_its_connection_and_its_calls(tmp_path: Path, face: str) -> None:
    stays, goes = saying("stays"), saying("goes")
    stays.held = []
    async with workbench_with(tmp_path, {"dev": {"stays": stays, "goes": goes}}, options={"face": face}) as seen:
        await make_known(seen, face, "dev")
        running = await start(seen, face, "dev", "stays")
        await under_way(stays)
        before = connections(seen)["dev/stays"]
        boxes = {"dev": {"stays": stays, "new": saying("new")}}
        difference = await seen.gateway.apply_boxes(tmp_path, boxes)
        assert difference.servers.untouched == (("dev", "stays"),)
        release(stays)
        assert said(await running.response()) == "stays"
        assert connections(seen)["dev/stays"] is before
        assert (before.state, before.starts, stays.starts) == (State.READY, 1, 1)
        await make_known(seen, face, "dev")
        assert await call(seen, face, "dev", "new") == "new"


@every_face
async def test_a_removed_server_takes_no_new_calls_and_ends_when_its_last_is_over(tmp_path: Path, face: str) -> None:
    stays, goes = saying("stays"), saying("goes")
    goes.held = []
    async with workbench_with(
        tmp_path, {"dev": {"stays": stays}, "ops": {"goes": goes}}, options={"face": face}
    ) as seen:
        await make_known(seen, face, "dev", "ops")
        running = await start(seen, face, "ops", "goes")
        await under_way(goes)
        draining = connections(seen)["ops/goes"]
        await seen.gateway.apply_boxes(tmp_path, {"dev": {"stays": stays}})
        refused = await call(seen, face, "ops", "goes")
        assert "goes" in refused and len(goes.calls) == 1
        assert draining.state is State.READY, "a call is under way on it"
        release(goes)
        assert said(await running.response()) == "goes"
        await draining.wait_stopped()
        assert "ops/goes" not in connections(seen)
        assert await call(seen, face, "dev", "stays") == "stays"


@every_face
async def test_a_changed_server_takes_new_calls_with_its_new_settings(tmp_path: Path, face: str) -> None:
    old = saying("old")
    old.held = []
    async with workbench_with(tmp_path, {"dev": {"server": old}}, options={"face": face}) as seen:
        await make_known(seen, face, "dev")
        running = await start(seen, face, "dev", "server")
        await under_way(old)
        draining = connections(seen)["dev/server"]
        new = saying("new")
        new.settings = {"args": ["--new"]}
        difference = await seen.gateway.apply_boxes(tmp_path, {"dev": {"server": new}})
        assert difference.servers.changed == (("dev", "server"),)
        await make_known(seen, face, "dev")
        assert await call(seen, face, "dev", "server") == "new"
        release(old)
        assert said(await running.response()) == "old", "it was under way on the old one"
        await draining.wait_stopped()
        (left,) = seen.gateway.runtime.pool.connections()
        assert (left.config.args, left.state) == (("--new",), State.READY)
        assert (old.starts, new.starts) == (1, 1)


@every_face
async def test_a_server_that_is_treated_otherwise_keeps_its_process(tmp_path: Path, face: str) -> None:
    server = Server(tool("get"), tool("put"))
    async with workbench_with(tmp_path, {"dev": {"server": server}}, options={"face": face}) as seen:
        await make_known(seen, face, "dev")
        await call(seen, face, "dev", "server")
        before = connections(seen)["dev/server"]
        server.settings = {"timeout": 7, "idleTimeout": 30, "toolFilters": ["put"]}
        await seen.gateway.apply_boxes(tmp_path, {"dev": {"server": server}})
        assert len(server.calls) == 1
        await call(seen, face, "dev", "server")
        assert len(server.calls) == 1, "it is filtered now"
        assert connections(seen)["dev/server"] is before
        assert (before.config.timeout, before.config.idle_timeout, server.starts) == (7, 30, 1)


async def test_a_removed_server_that_runs_idle_ends_at_once(tmp_path: Path) -> None:
    goes = saying("goes")
    async with workbench_with(tmp_path, {"dev": {"stays": saying("stays"), "goes": goes}}) as seen:
        await make_known(seen, "proxy", "dev")
        await call(seen, "proxy", "dev", "goes")
        ending = connections(seen)["dev/goes"]
        await seen.gateway.apply_boxes(tmp_path, {"dev": {"stays": saying("stays")}})
        await ending.wait_stopped()
        assert ending.state is State.STOPPED


@pytest.mark.parametrize(("face", "told"), [("flat", True), ("dynamic", True), ("proxy", False)])
async def test_clients_are_told_that_tools_have_come_and_gone(tmp_path: Path, face: str, told: bool) -> None:
    async with workbench_with(tmp_path, {"dev": {"one": saying("one")}}, options={"face": face}) as seen:
        await make_known(seen, face, "dev")
        await seen.client.request("tools/list")
        await seen.gateway.apply_boxes(tmp_path, {"dev": {"two": saying("two")}})
        if told:
            await seen.client.wait_notification("notifications/tools/list_changed")
            names = [each["name"] for each in (await seen.client.request("tools/list"))["tools"]]
            assert not any("one" in name for name in names)
        else:
            result = await seen.use("dev/two/get")
            assert result["_meta"]["mcp-workbench/changed"] == ["dev"]


async def test_the_toolboxes_that_are_named_are_those_of_the_new_file(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"dev": {"one": saying("one")}}) as seen:
        await seen.client.request("tools/list")
        await seen.gateway.apply_boxes(tmp_path, {"web": {"one": saying("one")}}, descriptions={"web": "Pages."})
        (opening, _) = (await seen.client.request("tools/list"))["tools"]
        assert "web" in opening["description"] and "dev" not in opening["description"]
        assert "web: Pages." in await seen.said()
        assert "does not exist" in await seen.said(toolbox_name="dev")


async def test_a_toolbox_that_is_removed_while_it_is_opened_does_not_exist(tmp_path: Path) -> None:
    slow = saying("slow")
    slow.gate = asyncio.Event()
    async with workbench_with(tmp_path, {"dev": {"slow": slow}, "ops": {"other": saying("other")}}) as seen:
        opening = await seen.client.start_tool("open_toolbox", {"toolbox_name": "dev"})
        await eventually(lambda: slow.starts == 1, what="the start of the server")
        await seen.gateway.apply_boxes(tmp_path, {"ops": {"other": saying("other")}})
        slow.gate.set()
        assert "toolbox `dev` does not exist" in said(await opening.response())


async def test_a_toolbox_whose_server_changes_while_it_is_opened_lists_the_new_one(tmp_path: Path) -> None:
    before, after = saying("before"), Server(tool("new_tool"), args=["new"])
    before.gate = asyncio.Event()
    boxes = {"dev": {"other": saying("other"), "server": before}}
    async with workbench_with(tmp_path, boxes) as seen:
        opening = await seen.client.start_tool("open_toolbox", {"toolbox_name": "dev"})
        await eventually(lambda: before.starts == 1, what="the start of the server")
        await seen.gateway.apply_boxes(tmp_path, {"dev": {"other": boxes["dev"]["other"], "server": after}})
        assert "new_tool" in said(await opening.response())
        assert (before.starts, after.starts) == (1, 1)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"separator": "__"}, "separator"),
        ({"face": "flat"}, "face"),
        ({"maxMessageBytes": 1 << 20}, "maxMessageBytes"),
        ({"auth": {"issuer": "https://id.example.com", "publicUrl": "https://tools.example.com/mcp"}}, "auth"),
        ({"trustedProxy": {"peers": "127.0.0.1", "secret": "s"}}, "trustedProxy"),
    ],
)
async def test_settings_that_need_a_restart_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: Mapping[str, Any], name: str
) -> None:
    boxes = {"dev": {"one": saying("one")}}
    async with workbench_with(tmp_path, boxes) as seen:
        before = seen.gateway.config
        with caplog.at_level(logging.WARNING, "mcp_workbench"):
            await seen.gateway.apply_boxes(tmp_path, boxes, **settings)
        assert f"`{name}` has changed" in caplog.text and "restart the workbench" in caplog.text
        assert json.loads(seen.gateway.status())["configuration"]["needsRestart"] == [name]
        after = seen.gateway.config
        assert (after.face_in_force, after.separator, after.max_message_bytes) == (
            before.face_in_force,
            before.separator,
            before.max_message_bytes,
        )


async def test_many_replacements_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    stays = saying("stays")
    async with workbench_with(tmp_path, {"dev": {"stays": stays, "other": saying("other")}}) as seen:
        await make_known(seen, "proxy", "dev")
        for number in range(50):
            other = saying(f"other {number}")
            other.settings = {"args": [str(number)]}
            await seen.gateway.apply_boxes(tmp_path, {"dev": {"stays": stays, "other": other}})
            assert await call(seen, "proxy", "dev", "other") == f"other {number}"
            assert await call(seen, "proxy", "dev", "stays") == "stays"
        await eventually(
            lambda: len(seen.gateway.runtime.pool.connections()) == 2, what="the end of the servers before"
        )
        assert stays.starts == 1


async def test_programs_are_not_offered_where_nothing_can_run_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Where it cannot be contained, it does not run either.
    able = Capabilities(landlock_abi=8, has_filters=True, has_seatbelt=True)
    unable = Capabilities(why_no_bwrap=lambda: "no bwrap")
    for has_package, machine, why in (
        (True, able, ""),
        (False, able, "`pydantic-monty`, which runs them, is not installed; run_program is not offered"),
        (True, unable, "the sandbox that programs run in cannot be enforced: this machine "),
    ):
        is_installed = not why
        monkeypatch.setattr("mcp_workbench.programs.is_installed", lambda found=has_package: found)
        monkeypatch.setattr("mcp_workbench.programs.program_pool.capabilities", lambda found=machine: found)
        caplog.clear()
        async with workbench_with(tmp_path, {"dev": {"one": saying("one")}}, programs=True) as seen:
            listed = (await seen.client.request("tools/list"))["tools"]
        assert ("run_program" in [each["name"] for each in listed]) is is_installed
        found = [each for each in caplog.messages if "run_program is not offered" in each]
        assert bool(found) is not is_installed and all(why in each for each in found)
