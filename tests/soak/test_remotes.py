"""Servers at an address in the long run: killed by the killer, there again at the same address, and gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from soak.mischief import Killer
from soak.remotes import Remotes
from tests.faults.running_workbench import Faults, bad_entry
from tests.support.processes import available, command_line, descendants, eventually

pytestmark = pytest.mark.skipif(not available(), reason="reads /proc")

Check = Callable[[], bool]

# Let go soon after its last call: what is left then is a leak.
SOON_IDLE = {"idleTimeout": 0.5}


@asynccontextmanager
async def listening(folder: Path, count: int) -> AsyncIterator[Remotes]:
    found = Remotes(folder, [f"r{number}" for number in range(count)], folder / "notes", lifetime=100)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


def servers() -> dict[str, int]:
    """Those that we started: name -> process."""
    found = {pid: command_line(pid).split() for pid in descendants(os.getpid())}
    return {words[words.index("--name") + 1]: pid for pid, words in found.items() if "--http" in words}


async def test_half_of_them_are_of_each_era_and_all_are_gone_in_the_end(tmp_path: Path) -> None:
    async with listening(tmp_path, 4) as remotes:
        entries = [remotes.entry(f"r{number}", 5) for number in range(4)]
        assert [entry["protocol"] for entry in entries] == ["legacy", "modern"] * 2
        assert len({entry["url"] for entry in entries}) == 4
        assert "r3" in remotes and "r4" not in remotes
        # Whoever is stopped at the end is ended all the same.
        os.kill(servers()["r0"], signal.SIGSTOP)
    assert servers() == {}
    assert remotes.problems == []


async def test_a_killed_one_works_again_at_the_same_address(tmp_path: Path) -> None:
    async with listening(tmp_path, 2) as remotes:
        entries = {name: remotes.entry(name, 5) | SOON_IDLE for name in ("r0", "r1")}
        faults = Faults(_folder(tmp_path))
        async with faults.serving(entries) as workbench:
            for name in entries:
                assert await workbench.value(name, "note", {"n": 7}) == {"n": 7}
            await workbench.remember()
            for name in entries:
                before = servers()[name]
                os.kill(before, signal.SIGKILL)
                await _is_another(name, before)
                await remotes.all_listen()
                assert await workbench.unavailable() == {}
                assert await workbench.value(name, "note", {"n": 8}) == {"n": 8}
        assert remotes.restarts == 2
        assert (tmp_path / "notes").read_text().split() == ["7", "7", "8", "8"]
    assert remotes.problems == []


async def test_one_that_ends_by_itself_is_a_problem_and_is_there_again(tmp_path: Path) -> None:
    async with listening(tmp_path, 1) as remotes:
        faults = Faults(_folder(tmp_path))
        before = servers()["r0"]
        async with faults.serving({"r0": remotes.entry("r0", 5) | SOON_IDLE}) as workbench:
            assert await workbench.value("r0", "echo", {"n": 1}) == {"n": 1}
            await workbench.remember()
            assert "it may or may not have acted" in await workbench.failure("r0", "crash", {"status": 3})
            await _is_another("r0", before)
            await remotes.all_listen()
    assert remotes.problems == ["r0 ended by itself, with status 3"]


async def test_a_killer_of_servers_at_an_address_leaves_the_others_alone_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    faults = Faults(_folder(tmp_path))
    async with listening(tmp_path, 1), faults.serving({"bad": bad_entry()}) as workbench:
        here, there = (await workbench.value("bad", "pid"))["pid"], servers()["r0"]
        far_killer = Killer([os.getpid()], 0.01, at_address=True, stops_one_in=1000)
        await _until(lambda: far_killer.kills >= 1, far_killer.run())
        assert (await workbench.value("bad", "pid"))["pid"] == here
        await _is_another("r0", there)
        there = servers()["r0"]
        killer = Killer([os.getpid()], 0.01, stops_one_in=1000)
        await _until(lambda: killer.kills >= 1, killer.run())
        await eventually(lambda: here not in descendants(os.getpid()), what="the end of the server over stdio")
        assert servers()["r0"] == there


async def _is_another(name: str, before: int) -> None:
    await eventually(lambda: servers().get(name, before) != before, what=f"another {name}")


async def _until(check: Check, running: Awaitable[None]) -> None:
    task = asyncio.ensure_future(running)
    try:
        await eventually(check)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _folder(above: Path) -> Path:
    found = above / "workbench"
    found.mkdir()
    return found
