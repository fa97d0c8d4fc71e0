"""Hundreds of clients, many servers, random kills: every call is accounted for, and nothing grows.

The short form of `make soak`.
"""

from __future__ import annotations

import asyncio

from soak.accounts import Accounts, repeated
from soak.crowd import Crowd
from soak.mischief import Killer
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry

CLIENTS = 200
SERVERS = 20
WARM_WORKER_LIFETIME, SECONDS = 3.0, 6.0


async def test_every_call_of_a_crowd_is_accounted_for_while_servers_are_killed(faults: Faults) -> None:
    notes = faults.path("notes")
    servers = {f"s{number}": bad_entry("--notes", notes, name=f"s{number}", timeout=10) for number in range(SERVERS)}
    async with faults.serving_http(servers) as workbench:
        accounts = Accounts()
        await _crowd(workbench, list(servers), accounts, WARM_WORKER_LIFETIME)
        await workbench.remember()
        await _crowd(workbench, list(servers), accounts, SECONDS)
        assert accounts.wrong == []
        assert accounts.under_way == 0
        assert accounts.started == accounts.answered + accounts.failed + accounts.cancelled
        assert accounts.answered > 100 and accounts.failed > 0 and accounts.cancelled > 0, accounts
        noted = [int(line) for line in notes.read_text().split()]
        assert repeated(noted, accounts.started) == [], "a call was sent twice"
        assert len(noted) >= accounts.answered, "an answer came from nowhere"
        # When the killing is over, everybody works again: whoever failed for good is asked for.
        assert await workbench.unavailable() == {}
        for name in servers:
            assert await workbench.value(name, "note", {"n": 0}) == {"n": 0}


async def _crowd(workbench: RunningWorkbench, servers: list[str], accounts: Accounts, seconds: float) -> None:
    killer = Killer([workbench.pid], pause=0.25)
    killing = asyncio.create_task(killer.run())
    try:
        await Crowd(workbench.port, servers, CLIENTS, 0.5, accounts).stay(seconds)
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    assert killer.kills > 0
