"""A crowd of clients that call, cancel, come and go, each at its own pace: over HTTP in both eras, and over stdio.

Owns what clients do. What became of it is in `Accounts`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from soak.accounts import Accounts
from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import use
from tests.support.client import Call, Conversation, Json

# One call in so many is one that hangs, and is cancelled after a moment.
CANCELS_ONE_IN = 20
# One in so many takes its server up to so many seconds, so that kills meet calls under way.
SLOW_ONE_IN = 5
SLOWEST = 2.0
# After one call in so many a client over HTTP leaves, and a new one comes in its place.
LEAVES_ONE_IN = 100
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
        self.arrivals = 0

    async def stay(
        self,
        seconds: float,
        also: Sequence[tuple[Conversation, Sequence[str]]] = (),
        until: asyncio.Event | None = None,
    ) -> None:
        """Come, call for so long or `until` it is said, and leave when every call has its end.

        `also`: clients who are there already, talk over something else, and have servers of their own.
        """
        clients = [asyncio.create_task(self._visits(number)) for number in range(self._count)]
        clients += [
            asyncio.create_task(self._talk(client, servers, random.Random(-number)))
            for number, (client, servers) in enumerate(also, 1)
        ]
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for((until or asyncio.Event()).wait(), seconds)
            self._is_over.set()
            await asyncio.gather(*clients)
        finally:
            for client in clients:
                client.cancel()

    async def _visits(self, number: int) -> None:
        rng = random.Random(number)
        while not self._is_over.is_set():
            # They come one after the other, or all would call at the same moments.
            await self._rest(rng.random() * self._pause)
            client = HttpConversation(self._port)
            try:
                async with self._door:
                    await self._arrive(client, is_modern=number % 2 == 1)
                await self._talk(client, self._servers, rng, LEAVES_ONE_IN)
                await client.end_session()
            finally:
                await client.close()

    async def _arrive(self, client: HttpConversation, *, is_modern: bool) -> None:
        self.arrivals += 1
        if is_modern:
            client.stamp()
        else:
            await client.initialize()

    async def _talk(
        self, client: Conversation, servers: Sequence[str], rng: random.Random, leaves_one_in: int = 0
    ) -> None:
        while not self._is_over.is_set():
            if rng.randrange(CANCELS_ONE_IN):
                await self._call(client, rng.choice(servers), rng)
            else:
                await self._call_and_give_up(client, rng.choice(servers), rng)
            if leaves_one_in and not rng.randrange(leaves_one_in):
                return
            await self._rest(rng.uniform(0.5, 1.5) * self._pause)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), seconds)

    def _start(self, client: Conversation, server: str, tool: str, arguments: Json) -> Awaitable[Call]:
        params = {"name": "use_tool", "arguments": use(server, tool, arguments)}
        return client.start("tools/call", params, timeout=LOST_AFTER)

    async def _call(self, client: Conversation, server: str, rng: random.Random) -> None:
        number = self._accounts.start()
        is_slow = not rng.randrange(SLOW_ONE_IN)
        tool, more = ("note_late", {"seconds": rng.random() * SLOWEST}) if is_slow else ("note", {})
        began = time.monotonic()
        try:
            response = await (await self._start(client, server, tool, {"n": number, **more})).response()
        except (OSError, EOFError, TimeoutError) as error:
            self._accounts.lose(number, error)
        else:
            self._accounts.judge(number, response, None if is_slow else time.monotonic() - began)

    async def _call_and_give_up(self, client: Conversation, server: str, rng: random.Random) -> None:
        """A modern client over HTTP disconnects, every other says so; an error may have come before that."""
        number = self._accounts.start()
        try:
            call = await self._start(client, server, "hang", {"n": number})
            await asyncio.sleep(rng.uniform(0.0, 0.2))
            if call.answered:
                self._accounts.judge(number, await call.response())
                return
            is_modern_over_http = isinstance(client, HttpConversation) and client.session_id is None
            if not is_modern_over_http:
                await client.cancel(call)
            if isinstance(client, HttpConversation):
                await client.give_up(call)
                # To say so took a second connection.
                client.rest(1)
        except (OSError, EOFError) as error:
            self._accounts.lose(number, error)
        else:
            self._accounts.cancel(number)
