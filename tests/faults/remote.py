"""A bad server over HTTP that a test starts, stops and tells what to do, and a workbench that is connected to it.

Owns the process of that server. Refuses to know any fault.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.running_workbench import BAD_SERVER, Faults, RunningWorkbench
from tests.support.client import Json
from tests.support.processes import eventually
from tests.support.workbench import logged


class Remote:
    """A bad server over HTTP that is started, stopped and told what to do by the test."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._port_file = faults.path("port")
        self._process: subprocess.Popen[bytes] | None = None
        self.log = faults.path("log")
        faults.write_faults({})

    @property
    def port(self) -> int:
        return int(self._port_file.read_text())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def entry(self, **settings: Any) -> Json:
        """It is let go soon after its last call: what is left then is a leak."""
        return {"url": self.url, "protocol": "legacy", "idleTimeout": 0.5, "resultBudget": None, **settings}

    async def start(self) -> None:
        options = ["--name", "remote", "--http", self._port_file, "--faults", self._faults.path("faults")]
        command = [sys.executable, BAD_SERVER, *map(str, options), "--log", str(self.log)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        await eventually(lambda: self._port_file.exists() and self._listens(), what="the server")

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(20)
            self._process = None

    def does(self, **fault: Any) -> None:
        """From now on."""
        self._faults.write_faults({"http": fault} if fault else {})

    def calls(self, tool: str) -> int:
        """How often a tool was called there."""
        return sum(call["params"]["name"] == tool for call in logged(self.log, "tools/call"))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@asynccontextmanager
async def remote(faults: Faults) -> AsyncIterator[Remote]:
    found = Remote(faults)
    await found.start()
    try:
        yield found
    finally:
        found.stop()


@asynccontextmanager
async def playing(
    faults: Faults, there: Remote, large: bool = False, **settings: Any
) -> AsyncIterator[RunningWorkbench]:
    """A workbench that was connected to the server before: what it takes to speak HTTP is there."""
    top = {name: settings.pop(name) for name in ("maxMessageBytes",) if name in settings}
    async with faults.serving({"remote": there.entry(**settings)}, large=large, **top) as workbench:
        assert await workbench.value("remote", "count") == {"count": 1}
        await workbench.remember()
        yield workbench
        there.does()
