"""A crowd of clients over HTTP, of both eras, that call, cancel and wait, each at its own pace.

Owns what clients do. What became of it is in `Accounts`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from soak.accounts import Accounts
from tests.faults.http_wire import HttpConversation

# One call in so many is one that hangs, and is given up after a moment.
CANCELS_ONE_IN = 20
# Longer than any server is given to answer: a call that is not over by then is lost.
LOST_AFTER = 60.0
# How many of them shake hands at once when they arrive.
ARRIVING_AT_ONCE = 50


class Crowd:
    """Clients that call random servers until they are told to go."""

    def __init__(self, port: int, servers: Sequence[str], count: int, pause: float, accounts: Accounts) -> None:
        self._port = port
        self._servers = servers
        self._count = count
        self._pause = pause
        self._accounts = accounts
        self._is_over = asyncio.Event()
        self._door = asyncio.Semaphore(ARRIVING_AT_ONCE)

    async def stay(self, seconds: float) -> None:
        """Come, call for so long, and leave when every call has its end."""
        clients = [asyncio.create_task(self._visit(number)) for number in range(self._count)]
        try:
            await asyncio.sleep(seconds)
            self._is_over.set()
            await asyncio.gather(*clients)
        finally:
            for client in clients:
                client.cancel()

    async def _visit(self, number: int) -> None:
        rng = random.Random(number)
        client = HttpConversation(self._port)
        try:
            async with self._door:
                if number % 2:
                    client.stamp()
                else:
                    await client.initialize()
            while not self._is_over.is_set():
                if rng.randrange(CANCELS_ONE_IN):
                    await self._call(client, rng.choice(self._servers))
                else:
                    await self._call_and_give_up(client, rng.choice(self._servers), rng)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_over.wait(), rng.uniform(0.5, 1.5) * self._pause)
            await client.end_session()
        finally:
            await client.close()

    async def _call(self, client: HttpConversation, server: str) -> None:
        number = self._accounts.start()
        began = time.monotonic()
        try:
            call = await client.start_tool("use_tool", _use(server, "note", number))
            async with asyncio.timeout(LOST_AFTER):
                response = await call.response()
        except (OSError, EOFError, TimeoutError) as error:
            self._accounts.lose(number, error)
        else:
            self._accounts.judge(number, response, time.monotonic() - began)

    async def _call_and_give_up(self, client: HttpConversation, server: str, rng: random.Random) -> None:
        """A modern client disconnects, a legacy one says so; an error may have come before that."""
        number = self._accounts.start()
        began = time.monotonic()
        try:
            call = await client.start_tool("use_tool", _use(server, "hang", number))
            await asyncio.sleep(rng.uniform(0.0, 0.2))
            if call.answered:
                self._accounts.judge(number, await call.response(), time.monotonic() - began)
                return
            if client.session_id is not None:
                await client.cancel(call)
            await client.give_up(call)
        except (OSError, EOFError) as error:
            self._accounts.lose(number, error)
        else:
            self._accounts.cancel(number)


def _use(server: str, tool: str, number: int) -> dict[str, Any]:
    return {"tool": {"toolbox": "box", "server": server, "tool": tool}, "arguments": {"n": number}}
