"""Many clients with the same ids and the same progress tokens: everybody gets their own."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, use
from tests.support.client import Conversation, Json

CALLS = 10_000
CLIENTS = 10
# One call in so many reports progress, under a token that every client uses.
LOUD = 50
PROGRESS: dict[str, Any] = {"method": "notifications/progress", "progress": True, "count": 100}
# Under way at once, for each client.
AT_ONCE = 20


async def _talk(client: Conversation, name: str, count: int, seed: int) -> int:
    """So many calls, each with arguments that only this client sends; how many came back right."""
    rng = random.Random(seed)
    right = 0

    async def one(number: int) -> bool:
        mine = {"who": name, "n": number, "x": "y" * rng.choice([0, 10, 1000])}
        server = rng.choice(["good", "bad"])
        fields: Json = {"_meta": {"progressToken": number}} if number % 3 == 0 else {}
        if number % LOUD == 0:
            answer = await client.call_tool("use_tool", use("bad", "flood", PROGRESS), **fields)
            return bool(answer["structuredContent"] == {"sent": PROGRESS["count"]})
        answer = await client.call_tool("use_tool", use(server, "echo", mine), **fields)
        return bool(answer["structuredContent"] == mine)

    for start in range(0, count, AT_ONCE):
        # The same ids for everybody: each client counts from 1.
        right += sum(await asyncio.gather(*(one(number) for number in range(start, min(start + AT_ONCE, count)))))
    return right


async def test_ten_thousand_mixed_calls_with_the_same_ids_and_tokens_cross_nothing(faults: Faults) -> None:
    async with faults.serving_http({"bad": bad_entry()}) as workbench:
        # The first crowd buys what a crowd needs; the second must find it there.
        await _crowd(workbench, CALLS // 5)
        await workbench.remember()
        await _crowd(workbench, CALLS)
        assert (await workbench.server_status())["unmatchedAnswers"] == 0


async def _crowd(workbench: RunningWorkbench, calls: int) -> None:
    """Clients of both eras, all at once."""
    async with AsyncExitStack() as stack:
        clients = [HttpConversation(workbench.port) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            stack.push_async_callback(client.close)
            if number % 2:
                client.stamp()
            else:
                await client.initialize()
        each = calls // CLIENTS
        talks = (_talk(client, f"client {number}", each, number) for number, client in enumerate(clients))
        assert await asyncio.gather(*talks) == [each] * CLIENTS
        tokens = [number for number in range(each) if number % LOUD == 0 and number % 3 == 0]
        for client in clients:
            told = [progress["progressToken"] for progress in client.received("notifications/progress")]
            expected = [token for token in tokens for _ in range(PROGRESS["count"])]
            assert sorted(told) == expected, "progress for those who asked for it, and for nobody else"
            assert (client.unmatched, client.garbage) == ([], [])
            await client.end_session()


async def test_one_client_over_stdio_mixes_ids_of_every_kind(faults: Faults) -> None:
    """`1` and `"1"` are two ids; both come back as they were."""
    async with faults.serving({"bad": bad_entry()}) as workbench:
        ids: list[str | int] = [1000, "1000", "", "a b", "é", 2**53, -5, "null", "x" * 1000]
        calls = [
            await workbench.client.start(
                "tools/call", {"name": "use_tool", "arguments": use("bad", "echo", {"n": n})}, id=id
            )
            for n, id in enumerate(ids)
        ]
        for number, call in enumerate(calls):
            assert (await call.result())["structuredContent"] == {"n": number}
