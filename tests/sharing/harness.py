"""A shared workbench for tests: started with `up`, with clients that join it through their front ends."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from mcp_workbench.engine.process_context import runtime_folder
from mcp_workbench.sharing.front.joining import log_path, socket_path, take_lock
from tests.cli.shell import run
from tests.support.client import RawClient
from tests.support.processes import alive, wait_until
from tests.support.workbench import workbench_command, write_config

# What a workbench may take to end on a busy machine: its servers first.
END_SECONDS = 30.0


class Shared:
    """The shared workbench of one test. It must be down when the test ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self) -> None:
        done = run("up")
        assert done.status == 0, done

    def down(self) -> None:
        """End it, and wait until it is gone."""
        done = run("down")
        assert done.status == 0, done

    def wait_until_gone(self) -> None:
        wait_until(lambda: not self.is_running, END_SECONDS)

    @property
    def is_running(self) -> bool:
        """Whether some process holds the lock."""
        if not os.path.isdir(runtime_folder()):
            return False
        lock = take_lock(runtime_folder())
        if lock is not None:
            os.close(lock)
        return lock is None

    @property
    def has_socket(self) -> bool:
        return os.path.lexists(socket_path())

    @property
    def log(self) -> str:
        path = Path(log_path())
        # A test puts `/dev/full` there, which never ends.
        return path.read_text() if path.is_file() else ""

    @property
    def pids(self) -> list[int]:
        """Every shared workbench that has been ready so far, the newest last."""
        return [int(line.rpartition(" ")[2]) for line in self.log.splitlines() if " ready, process " in line]

    def kill(self) -> int:
        """Kill it without warning; which process it was."""
        pid = self.pids[-1]
        os.kill(pid, signal.SIGKILL)
        return pid

    async def kill_under(self, client: RawClient) -> None:
        """Kill it, and wait until the front end of this client has joined another one."""
        before = client.stderr.count("joined the one")
        self.kill()
        await client.wait_for(lambda: client.stderr.count("joined the one") > before, "the front end to join again")

    @asynccontextmanager
    async def client(
        self,
        toolboxes: Mapping[str, Mapping[str, Any]],
        *flags: object,
        era: str = "legacy",
        env: Mapping[str, str] | None = None,
        capabilities: dict[str, Any] | None = None,
        expect_exit: bool = True,
        **settings: Any,
    ) -> AsyncIterator[RawClient]:
        """A client that has introduced itself, over stdio."""
        config = write_config(self.folder, toolboxes, **{"budget": None, **settings})
        async with RawClient.spawn(workbench_command(config, *flags), env=env, expect_exit=expect_exit) as client:
            if era == "modern":
                client.stamp(capabilities=capabilities)
            else:
                await client.initialize(capabilities=capabilities)
            yield client

    def clean_up(self) -> None:
        """Whatever the test did."""
        with suppress(OSError):
            if self.is_running:
                run("down")
                self.wait_until_gone()
            # One that was restarted has given the lock away, and may take a moment longer.
            wait_until(lambda: not any(map(alive, self.pids)), END_SECONDS, what="the end of every shared workbench")
