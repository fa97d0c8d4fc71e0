"""Random kills of servers, and large messages: what a run has to survive.

Owns the mischief. Refuses to know what should come of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress

from tests.faults.http_wire import HttpConversation
from tests.faults.stage import BAD_SERVER, use
from tests.support.processes import command_line, descendants

MIB = 1024 * 1024
# A stopped server goes on after so long, unless somebody gives up on it before.
STOPPED_SECONDS = 1.0


class Killer:
    """Kills servers of one workbench, one after the other, and now and then stops one for a moment."""

    def __init__(self, pid: int, pause: float, seed: int = 1) -> None:
        self._pid = pid
        self._pause = pause
        self._rng = random.Random(seed)
        self.kills = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._pause)
            servers = [pid for pid in descendants(self._pid) if _may_be_killed(pid)]
            if not servers:
                continue
            victim = self._rng.choice(servers)
            with suppress(ProcessLookupError):
                if self._rng.randrange(5):
                    os.kill(victim, self._rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
                    self.kills += 1
                else:
                    os.kill(victim, signal.SIGSTOP)
                    asyncio.get_running_loop().call_later(STOPPED_SECONDS, _go_on, victim)


def _may_be_killed(pid: int) -> bool:
    words = command_line(pid)
    return BAD_SERVER in words and "--name good" not in words


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class LargeMessages:
    """Messages of many sizes in both directions, over and over, one at a time."""

    def __init__(self, port: int, sizes: tuple[int, ...] = (1, 16, 64), pause: float = 5.0) -> None:
        self._port = port
        self._sizes = sizes
        self._pause = pause
        self.passed = 0
        self.refused = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        client = HttpConversation(self._port)
        client.stamp()
        try:
            while True:
                for size in self._sizes:
                    await self._result(client, size * MIB)
                    await self._request(client, size * MIB)
                    await asyncio.sleep(self._pause)
        finally:
            await client.close()

    async def _result(self, client: HttpConversation, size: int) -> None:
        answer = await client.call_tool("use_tool", use("good", "large", {"bytes": size}))
        assert len(answer["content"][0]["text"]) > size - 1000
        self.passed += 1

    async def _request(self, client: HttpConversation, size: int) -> None:
        answer = await client.call_tool("use_tool", use("good", "size", {"text": "x" * size}))
        assert answer["structuredContent"]["bytes"] > size
        self.passed += 1
