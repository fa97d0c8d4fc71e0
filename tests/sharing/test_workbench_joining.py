"""Clients join the shared workbench, and are served as if they were alone."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import pytest
from msgspec.json import decode

from mcp_workbench.engine.transport.open_files import MAX_OPEN_FILES
from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.processes import eventually
from tests.support.workbench import scripted_entry, write_config

BOX = {"box": {"server": scripted_entry()}}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_is_served_through_the_shared_workbench(shared: Shared, era: str) -> None:
    shared.up()
    async with shared.client(BOX, era=era) as client:
        opened = await client.call_tool("open_toolbox", {"toolbox_name": "box"})
        assert opened["structuredContent"]["tools"]
        echoed = await client.use_tool("box", "server", "echo", {"text": "hello"})
        assert "hello" in echoed["content"][0]["text"]
    assert len(shared.pids) == 1
    assert "joins from" in shared.log
    shared.down()
    assert not shared.has_socket


def test_a_shared_workbench_raises_the_limit_on_open_files(shared: Shared) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(soft, 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        shared.up()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    raised, _ = resource.prlimit(shared.pids[0], resource.RLIMIT_NOFILE)
    assert raised == (MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)) > few


async def test_without_up_everybody_is_alone(shared: Shared) -> None:
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
    assert shared.pids == []


async def test_private_never_joins(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX, "--private") as client:
        assert await client.request("ping") == {}
    assert "joins from" not in shared.log


def test_up_and_down_report_their_effect(shared: Shared) -> None:
    first, second = run("up"), run("up")
    assert (first.status, second.status) == (0, 0)
    assert "is running (process" in first.stdout
    assert "already" in second.stdout
    assert "has ended" in run("down").stdout
    assert run("down").stdout == "No shared workbench is running.\n"


async def test_status_finds_it_from_the_start_and_reports_an_invalid_file(shared: Shared) -> None:
    shared.up()
    shown = await asyncio.to_thread(run, "status")
    assert f"process {shared.pids[-1]}, shared" in shown.stdout
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
        (shared.folder / "workbench-config.json").write_text("{")
        assert (await asyncio.to_thread(run, "reload")).status == 1
        shown = await asyncio.to_thread(run, "status")
        assert "workbench-config.json:1:" in shown.stdout
    shared.down()


async def test_a_check_that_joins_says_nothing_but_its_table(shared: Shared) -> None:
    shared.up()
    config = write_config(shared.folder, BOX)
    done = await asyncio.to_thread(run, "check", "--connect", "--config", config)
    assert (done.status, done.stderr) == (0, "note: the server is healthy\n")
    shared.down()


async def test_servers_that_are_cached_are_known_before_anybody_uses_them(shared: Shared) -> None:
    boxes = {"box": {"server": scripted_entry()}, "never": {"used": scripted_entry("--era", "modern")}}
    shared.up()
    async with shared.client(boxes) as client:
        await client.use_tool("box", "server", "echo", {"text": "1"})
        # The list of its tools follows the first call.
        await eventually(lambda: servers()["box/server"]["tools"], what="the tools")
    assert run("restart").status == 0
    async with shared.client(boxes):
        found = servers()
        assert (found["box/server"]["state"], found["never/used"]["state"]) == ("known", "configured")
        assert found["box/server"]["tools"]


def servers() -> dict[str, Any]:
    (found,) = (each for each in decode(run("status", "--json").stdout) if each["serving"] == "shared")
    return {f"{each['toolbox']}/{each['server']}": each for each in found["servers"]}
