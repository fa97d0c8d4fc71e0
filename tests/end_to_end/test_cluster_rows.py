"""Users of a cluster behind HAProxy, in both eras: what they do goes on when their instance is killed in the middle.

`make cluster-trial` repeats it; once is enough for a change.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.end_to_end.cluster_rows import ERAS, ROWS, SETTINGS, Player, boxes, existing_once
from tests.support.cluster_machines import PATIENCE, Instance, machines, needs_haproxy, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server, needs_haproxy]

REPETITIONS = int(os.environ.get("CLUSTER_REPETITIONS", "1"))
NAMES = "abc"
# What depends on the face.
OF_FACE = ("plain calls", "opened toolboxes")
# Only `proxy` keeps large results, only `dynamic` changes its list of tools when a toolbox is opened, and the requests
# about handles of tasks are part of the modern era: for a legacy client, a task is one call.
IMPOSSIBLE = (("dynamic", "*", "kept result"), ("proxy", "*", "opened toolboxes"), ("*", "legacy", "tasks"))


@pytest.mark.parametrize("repetition", range(REPETITIONS))
@pytest.mark.parametrize("face", ["proxy", "dynamic"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["affinity", "killed"])
async def test_every_row_holds(is_killed: bool, face: str, repetition: int) -> None:
    rows = [row for row in ROWS if REPETITIONS > 1 or face == "proxy" or row in OF_FACE]
    plays = [(era, row) for row in rows for era in ERAS if not is_impossible(face, era, row)]
    with tempfile.TemporaryDirectory(prefix="wb") as name:
        async with machines(Path(name)) as rig:
            shared = await rig.start("shared", existing_once(), "--face", "flat", "--no-prefix", is_alone=True)
            # Keys are random, so some instance has a third of them or more.
            count = 5 * len(plays) + 10 if is_killed else len(plays)
            tokens = {f"user{n}": rig.give_key(f"user{n}", *NAMES) for n in range(count)}
            started = [await rig.start(each, boxes(shared.url), "--face", face, **SETTINGS) for each in NAMES]
            url = await rig.balance(*started)
            await rig.until_up(*NAMES)
            await rig.until_listening(len(NAMES))
            killed = None
            if is_killed:
                lives_on = {user: await rig.instance_of(url, each) for user, each in tokens.items()}
                ((fullest, _),) = Counter(lives_on.values()).most_common(1)
                tokens = {user: each for user, each in tokens.items() if lives_on[user] == fullest}
                killed = started[NAMES.index(fullest)]
            assert len(tokens) >= len(plays)
            players = {
                f"{era}: {row}": Player(rig, url, user, token, era, face, ROWS[row])
                for (era, row), (user, token) in zip(plays, tokens.items(), strict=False)
            }
            await play(players, killed)


def is_impossible(face: str, era: str, row: str) -> bool:
    return any(fnmatch(face, a) and fnmatch(era, b) and row == c for a, b, c in IMPOSSIBLE)


async def play(players: dict[str, Player], killed: Instance | None) -> None:
    """The first halves of all, then the second ones; raises what went wrong, with the name of the row."""
    playing: dict[str, asyncio.Task[None]] = {}
    try:
        async with asyncio.timeout(2 * PATIENCE):
            # One after another: starting all their servers at once would keep a small machine busy for long.
            for row, player in players.items():
                playing[row] = asyncio.create_task(player.play(), name=row)
                await half(player, playing[row])
            for player in players.values():
                player.is_killed = killed is not None
            if killed is not None:
                await killed.kill()
            # Limits come last and first: they are by the minute.
            for row, player in reversed(players.items()):
                player.goes_on.set()
                await asyncio.wait([playing[row]])
    finally:
        for task in playing.values():
            task.cancel()
        outcomes = await asyncio.gather(*playing.values(), return_exceptions=True)
    failed = []
    for row, outcome in zip(playing, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            outcome.add_note(f"in the row `{row}`")
            failed.append(outcome)
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(playing)} rows failed", failed)


async def half(player: Player, task: asyncio.Task[None]) -> None:
    """Until it has reached the middle of its row, or failed before."""
    waiting = asyncio.create_task(player.is_half.wait())
    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
