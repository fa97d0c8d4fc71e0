"""Servers at an address, a process for each: killed like the others, and started again where they were.

Owns those processes and their ports. Refuses to know who kills them, and what should come of it.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.faults.running_workbench import BAD_SERVER
from tests.support.client import Json
from tests.support.processes import eventually

# How long nobody listens after a kill, so that calls meet that too.
MIN_AWAY_TIME, MAX_AWAY_TIME = 0.2, 2.0
# Below the ports that the kernel gives to outgoing connections: one of those could take the place of a server that is
# away, or, from the very port that it looks for, meet itself.
LOWEST_PORT = 15_000
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
WORKBENCH_START_TIMEOUT = 60.0
END_SECONDS = 10.0
ERAS = ("legacy", "modern")


class Remotes:
    """All of them, from their start to their end."""

    def __init__(self, folder: Path, names: Sequence[str], notes: Path, lifetime: float, seed: int = 2) -> None:
        self._folder = folder
        self._options = ["--notes", str(notes), "--exit-after", str(lifetime)]
        self._rng = random.Random(seed)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._is_over = False
        self.restarts = 0
        # Ends that were nobody's doing.
        self.problems: list[str] = []

    def __contains__(self, name: object) -> bool:
        return name in self._ports

    def entry(self, name: str, timeout: float) -> Json:
        """Of `mcpServers`; every other one is of the modern era."""
        era = ERAS[list(self._ports).index(name) % len(ERAS)]
        return {"url": f"http://127.0.0.1:{self._ports[name]}/mcp", "protocol": era, "timeout": timeout}

    async def start(self) -> None:
        """Until all of them listen."""
        for name, port in self._ports.items():
            self._port_file(name).write_text(str(port))
        self._keepers = [asyncio.create_task(self._keep(name)) for name in self._ports]
        await self.all_listen()

    async def all_listen(self) -> None:
        """Whoever was killed is there again."""
        for name, port in self._ports.items():
            await eventually(partial(_listens, port), WORKBENCH_START_TIMEOUT, f"{name} at its address")

    async def stop(self) -> None:
        """Nobody is started again, and those who run end."""
        self._is_over = True
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
            # One that was stopped for a moment does not see the end of its stdin.
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        for name, process in self._processes.items():
            try:
                await asyncio.wait_for(process.wait(), END_SECONDS)
            except TimeoutError:
                self.problems.append(f"{name} did not end when it was told to")
                process.kill()
        for keeper in self._keepers:
            keeper.cancel()
        ends = await asyncio.gather(*self._keepers, return_exceptions=True)
        self.problems += [
            f"the keeper of a server at an address broke off: {end!r}"
            for end in ends
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError)
        ]

    async def _keep(self, name: str) -> None:
        while not self._is_over:
            # Without `site`, as the others.
            command = ["-S", BAD_SERVER, "--name", name, "--http", str(self._port_file(name)), *self._options]
            # Out of reach of Ctrl-C, which is meant for us.
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            self._processes[name] = process
            status = await process.wait()
            if self._is_over:
                return
            if status >= 0:
                self.problems.append(f"{name} ended by itself, with status {status}")
            await asyncio.sleep(self._rng.uniform(MIN_AWAY_TIME, MAX_AWAY_TIME))
            self.restarts += 1

    def _port_file(self, name: str) -> Path:
        return self._folder / f"{name}.port"


def free_ports(count: int) -> list[int]:
    """So many that nobody listens on. Others each time: another run beside this one should not wait for the same."""
    highest = int(PORT_RANGE.read_text().split()[0])
    found: list[int] = []
    for port in random.sample(range(LOWEST_PORT, highest), highest - LOWEST_PORT):
        if len(found) == count:
            break
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
