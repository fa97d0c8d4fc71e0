"""A server that cannot live: crash loops, an exit with 0 at once, commands that do not exist or cannot be run.

Back-off with jitter, no restarts after five failures in a minute, a clear state and next to no work; it works again when
the cause is mended, without a restart of the workbench.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mcp_workbench.engine.downstream.lifecycle import MAX_CRASHES
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, error_text
from tests.faults.vitals import processor_seconds
from tests.support.client import Json


async def test_a_crash_loop_ends_costs_nothing_and_works_when_the_cause_is_mended(faults: Faults) -> None:
    """Also one that exits with 0, which is no more useful."""
    servers = {}
    for status in (0, 1):
        path = faults.write_faults({"start": {"exit": status, "stderr": "no licence\n"}}, f"faults-{status}")
        servers[f"exits {status}"] = bad_entry("--faults", path, name=f"exits-{status}")
    async with faults.serving(servers) as workbench:
        await asyncio.gather(*(_given_up(workbench, f"exits {status}", status) for status in (0, 1)))
        # A hundred calls to servers that failed for good start nothing and take next to nothing.
        began = processor_seconds(workbench.pid)
        for call in [await workbench.start(server, "count") for server in servers for _ in range(50)]:
            assert "not restarted" in error_text(await call.result())
        assert processor_seconds(workbench.pid) - began < 1.0
        for server in servers:
            assert (await workbench.server_status(server))["starts"] == MAX_CRASHES
        began = processor_seconds(workbench.pid)
        await asyncio.sleep(1)
        assert processor_seconds(workbench.pid) - began < 0.1, "nobody tries in the background"
        await workbench.others_work()
        for status in (0, 1):
            faults.write_faults({}, f"faults-{status}")
        assert await workbench.unavailable() == {}
        for server in servers:
            assert await workbench.value(server, "count") == {"count": 1}
            assert (await workbench.server_status(server))["state"] == "ready"


async def _given_up(workbench: RunningWorkbench, server: str, status: int) -> None:
    texts = [await workbench.failure(server, "count") for _ in range(MAX_CRASHES + 3)]
    assert all(f"exited with status {status}" in text and "no licence" in text for text in texts)
    assert ["not restarted after 5 failures" in text for text in texts] == [False] * MAX_CRASHES + [True] * 3
    assert "or open the toolbox `box` to retry now" in texts[-1]
    found = await workbench.server_status(server)
    assert (found["state"], found["starts"], found["failures"]) == ("failed", MAX_CRASHES, MAX_CRASHES)
    assert f"status {status}" in found["lastError"]


def _nothing(path: Path) -> str:
    return str(path / "no-such-program")


def _folder(path: Path) -> str:
    (path / "folder").mkdir()
    return str(path / "folder")


def _not_executable(path: Path) -> str:
    (path / "program").write_text("#!/bin/sh\nexit 0\n")
    os.chmod(path / "program", 0o644)
    return str(path / "program")


def _no_interpreter(path: Path) -> str:
    (path / "script").write_text("#!/no/such/interpreter\n")
    os.chmod(path / "script", 0o755)
    return str(path / "script")


def _no_program(path: Path) -> str:
    (path / "text").write_text("just some text\n")
    os.chmod(path / "text", 0o755)
    return str(path / "text")


COMMANDS = {
    "does not exist": (_nothing, "does not exist"),
    "is a folder": (_folder, "is a folder"),
    "is not executable": (_not_executable, "is not executable"),
    "has no interpreter": (_no_interpreter, "does not exist"),
    "is no program": (_no_program, "cannot be started: Exec format error"),
}


@pytest.mark.parametrize("kind", COMMANDS)
async def test_a_command_that_cannot_be_run_is_named_with_the_reason_and_works_once_mended(
    faults: Faults, kind: str
) -> None:
    make, words = COMMANDS[kind]
    command = make(faults.folder)
    entry: Json = {**bad_entry(), "command": command}
    async with faults.serving({"bad": entry}) as workbench:
        reason = (await workbench.unavailable())["bad"]
        assert f"command `{command}` {words}" in reason
        text = await workbench.failure("bad", "echo", {"n": 1})
        assert text.startswith("[box/bad") and words in text
        await workbench.others_work()
        _mend(Path(command), bad_entry()["command"])
        assert await workbench.unavailable() == {}
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}


def _mend(path: Path, program: str) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(program)


async def test_a_command_that_is_not_on_the_path_and_a_folder_that_is_missing_are_reported(faults: Faults) -> None:
    missing = faults.path("no-such-folder")
    servers = {
        "nowhere": {"command": "no-such-program-anywhere"},
        "homeless": {**bad_entry(), "cwd": str(missing)},
    }
    async with faults.serving(servers) as workbench:
        reasons = await workbench.unavailable()
        assert "command `no-such-program-anywhere` was not found on PATH" in reasons["nowhere"]
        assert f"working directory `{missing}` does not exist" in reasons["homeless"]
        missing.mkdir()
        assert list(await workbench.unavailable()) == ["nowhere"]
        await workbench.others_work()


async def test_servers_that_die_together_do_not_come_back_together(faults: Faults) -> None:
    """Twenty callers of a server that crashes wait for one start after the other, not for one each."""
    path = faults.write_faults({"start": {"exit": 1}})
    async with faults.serving({"bad": bad_entry("--faults", path)}) as workbench:
        calls = [await workbench.start("bad", "count") for _ in range(20)]
        for call in calls:
            assert "status 1" in error_text(await call.result())
        assert (await workbench.server_status())["starts"] <= 2
        faults.write_faults({})
        assert await workbench.unavailable() == {}
