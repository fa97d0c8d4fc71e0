"""What every test gets: async tests, a cache of its own, and a check that no process or task is left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes, workbench

# A test that takes longer hangs; tests that are meant to be long have a runner of their own.
TEST_TIMEOUT = 120.0
# What a process that was told to go may take to do so on a busy machine.
GOODBYE_TIMEOUT = 5.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_...` on an event loop of its own."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            await function(**arguments)
        # One turn of the loop for tasks that have just been cancelled.
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    with asyncio.Runner() as runner:
        runner.run(run())
    return True


@pytest.fixture(scope="session", autouse=True)
def _orphans_come_to_us() -> None:
    if processes.available():
        processes.adopt_orphans()


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None) -> Iterator[None]:
    if not processes.available():
        yield
        return
    before = processes.descendants(os.getpid())
    yield

    def left() -> set[int]:
        return processes.descendants(os.getpid()) - before

    try:
        processes.wait_until(lambda: not left(), GOODBYE_TIMEOUT)
    except AssertionError:
        survivors = left()
        description = processes.describe(survivors)
        for pid in survivors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes left behind:\n{description}")
    finally:
        processes.reap_zombies()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and an empty user configuration: what the person who runs the tests has must not matter."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("WORKBENCH_CONFIG", raising=False)
    return folder


@pytest.fixture
def scripted() -> Callable[..., dict[str, Any]]:
    """`scripted("--era", "legacy", timeout=2)` is an entry of `mcpServers`."""
    return workbench.scripted_entry


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """`write_config({"box": {"server": scripted()}})` is the path of a config file with that toolbox."""
    return lambda toolboxes, **settings: workbench.write_config(tmp_path, toolboxes, **settings)
