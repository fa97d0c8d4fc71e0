"""`up` has the user's own configuration ready before a client joins."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.choose import user_folder
from tests.cli.shell import run
from tests.sharing.harness import END_SECONDS, Shared
from tests.support.processes import wait_until
from tests.support.workbench import scripted_entry, write_config

BOX = {"box": {"server": scripted_entry()}}


@pytest.fixture
def own() -> Path:
    """The user's folder for settings."""
    folder = user_folder(os.environ)
    assert folder is not None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


def status() -> dict[str, Any]:
    # After a restart, another may not have ended yet.
    (shown,) = (each for each in json.loads(run("status", "--json").stdout) if each["serving"] == "shared")
    return dict(shown)


def servers() -> list[tuple[str, str]]:
    return [(each["toolbox"], each["server"]) for each in status()["servers"]]


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_status_shows_servers_and_metrics_answer_without_clients(shared: Shared, own: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    write_config(own, BOX, metrics=address)
    shared.up()
    assert servers() == [("box", "server")]
    assert status()["servers"][0]["starts"] == 0

    wait_until(lambda: answers(address), END_SECONDS, what="metrics")
    # Again, and after a restart.
    shared.up()
    assert status()["configurations"] == 1
    assert run("restart").status == 0
    assert servers() == [("box", "server")]
    shared.down()


async def test_metrics_move_to_the_next_workbench_while_a_call_goes_on(shared: Shared, own: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    write_config(own, BOX, metrics=address)
    shared.up()
    wait_until(lambda: answers(address), END_SECONDS, what="metrics")
    async with shared.client(BOX) as client:
        held = await client.start_tool(
            "use_tool", {"tool": {"toolbox": "box", "server": "server", "tool": "hang"}, "arguments": {}}
        )
        assert await client.use_tool("box", "server", "echo", {"text": "the call before it has begun"})
        assert (await asyncio.to_thread(run, "restart")).status == 0
        wait_until(lambda: answers(address), END_SECONDS, what="metrics of the next one")
        assert "no metrics are served" not in shared.log and "bye" not in shared.log
        await client.cancel(held)
        wait_until(lambda: "bye" in shared.log, END_SECONDS)
    shared.down()


def test_a_broken_file_is_reported_and_its_correction_is_noticed(shared: Shared, own: Path) -> None:
    file = own / "workbench-config.json"
    file.write_text('{"toolboxes": {"box": {"mcpServers": {"server": {"comand": "x"}}}}}')
    done = run("up")
    assert done.status == 1
    assert "is running (process" in done.stdout
    assert f"{file}:1:" in done.stderr
    assert "did you mean `command`?" in done.stderr
    assert "hint: " in done.stderr
    assert servers() == []
    write_config(own, BOX)
    wait_until(lambda: servers() == [("box", "server")], END_SECONDS, what="the corrected file")
    shared.down()


def test_a_file_of_the_folder_is_not_read(shared: Shared, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(own, BOX)
    project = shared.folder / "project"
    project.mkdir()
    write_config(project, {"theirs": {"server": scripted_entry()}})
    monkeypatch.chdir(project)
    shared.up()
    assert servers() == [("box", "server")]
    shared.down()


def test_without_a_file_nothing_is_said_until_there_is_one(shared: Shared, own: Path) -> None:
    done = run("up")
    assert (done.status, done.stderr) == (0, "")
    write_config(own, BOX)
    wait_until(lambda: servers() == [("box", "server")], END_SECONDS, what="the new file")
    shared.down()


async def test_a_client_of_the_same_file_does_not_double_its_servers(shared: Shared, own: Path) -> None:
    write_config(own, BOX)
    shared.up()
    async with shared.client(BOX) as client:
        await client.use_tool("box", "server", "echo", {"text": "hello"})
        shown = run("status").stdout
        assert shown.count("box/server") == 1
        assert "ready" in shown
    shared.down()
