"""A configuration that changes while clients of the shared workbench use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.support.client import RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config


async def in_force(client: RawClient, toolbox: str) -> None:
    async with asyncio.timeout(30):
        while True:
            opened = await client.call_tool("open_toolbox", {"toolbox_name": toolbox})
            if "does not exist" not in opened["content"][0]["text"]:
                return
            await asyncio.sleep(0.05)


async def test_a_saved_file_is_in_force_for_every_client_and_untouched_servers_stay(
    shared: Shared, tmp_path: Path
) -> None:
    shared.up()
    stays = scripted_entry("--starts", tmp_path / "starts")
    async with shared.client({"box": {"stays": stays}}) as first, shared.client({"box": {"stays": stays}}) as second:
        for client in (first, second):
            await client.use_tool("box", "stays", "echo", {})
        before = (tmp_path / "starts").read_text()
        write_config(tmp_path, {"box": {"stays": stays}, "new": {"one": scripted_entry()}}, budget=None)
        for client in (first, second):
            await in_force(client, "new")
            assert (await client.use_tool("box", "stays", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
        assert (tmp_path / "starts").read_text() == before
    shared.down()


async def test_reload_reports_problems(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    async with shared.client({"box": {"one": scripted_entry()}}) as client:
        await client.use_tool("box", "one", "echo", {})
        done = await asyncio.to_thread(run, "reload")
        assert (done.status, done.stdout) == (0, f"process {shared.pids[-1]}, shared: reloaded\n")
        (tmp_path / "workbench-config.json").write_text("{")
        done = await asyncio.to_thread(run, "reload")
        assert done.status == 1
        assert "shared: not reloaded" in done.stdout and "workbench-config.json:1:" in done.stdout
        assert (await client.use_tool("box", "one", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
    shared.down()


async def test_a_mistake_in_the_file_keeps_no_new_client_away(shared: Shared, tmp_path: Path) -> None:
    shared.up()
    boxes = {"box": {"one": scripted_entry()}}
    async with shared.client(boxes) as first:
        await first.use_tool("box", "one", "echo", {})
        config = tmp_path / "workbench-config.json"
        valid = config.read_text()
        config.write_text(valid.replace('"command"', '"comand"'))
        async with RawClient.spawn(workbench_command(config)) as second:
            await second.initialize()
            assert (await second.use_tool("box", "one", "echo", {"n": 1}))["structuredContent"] == {"n": 1}
            await second.wait_for(lambda: "the last valid version of this file is used" in second.stderr, "the note")
            assert "did you mean `command`?" in second.stderr.splitlines()[0]
            config.write_text(valid.replace('"box"', '"new"'))
            await in_force(second, "new")
    shared.down()
