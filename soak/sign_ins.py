"""`python -m soak.sign_ins`: sign in once, then call for an hour with tokens that live ten seconds.

The authorization server is npm's `oidc-provider`: each refresh token is good once, and one that comes back a second
time ends the whole grant. Several workbenches of one user share the sign-in, and one of them is restarted every now and
then. Holds when no call failed, nobody had to sign in again, and no refresh was refused. Exit status 0 when it held.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.real_authorities.servers import Authority, oidc_provider, resource_server
from tests.real_authorities.user import User, Workbench, said_in
from tests.support.packages import Unavailable
from tests.support.processes import adopt_orphans, available

EXPECTED = "hello you"
MAX_SHOWN = 10
REPORT_SECONDS = 60.0


@dataclass
class Tally:
    """What happened so far."""

    calls: int = 0
    restarts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def verdict(self, authority: Authority) -> list[str]:
        """What did not hold."""
        wrong = [f"{count} x {text}" for text, count in self.failures.most_common(MAX_SHOWN)]
        sign_ins = len(authority.seen("authorization_code"))
        if sign_ins != 1:
            wrong.append(f"signed in {sign_ins} times")
        refused = [status for status in authority.refreshes if status != 200]
        if refused:
            wrong.append(f"{len(refused)} refreshes were refused: {Counter(refused)}")
        if not self.calls:
            wrong.append("nothing was called")
        return wrong

    def describe(self, authority: Authority, began: float, ttl: int) -> str:
        ordered = sorted(self.seconds) or [0.0]
        at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99, 1.0)]
        minutes = (time.monotonic() - began) / 60
        return (
            f"{minutes:.1f} min, tokens of {ttl} s: {self.calls} calls, {self.failures.total()} failed, "
            f"{len(authority.refreshes)} refreshes, {len(authority.seen('authorization_code'))} sign-in, "
            f"{self.restarts} restarts; calls: {at[0]:.0f} ms (median), {at[1]:.0f} ms (99 %), {at[2]:.0f} ms (most)"
        )


class Soak:
    """One run."""

    def __init__(self, user: User, authority: Authority, tally: Tally, rate: float) -> None:
        self._user = user
        self._authority = authority
        self._tally = tally
        self._pause = 1.0 / rate

    async def call(self, until: float, restart_every: float | None) -> None:
        """A client with a workbench of its own; a new one every now and then."""
        while time.monotonic() < until:
            end = until if restart_every is None else min(until, time.monotonic() + restart_every)
            async with self._user.workbench() as workbench:
                await self._call_until(end, workbench)
            self._tally.restarts += end < until

    async def _call_until(self, end: float, workbench: Workbench) -> None:
        pending: set[asyncio.Task[None]] = set()
        while time.monotonic() < end:
            task = asyncio.create_task(self._one(workbench))
            pending.add(task)
            task.add_done_callback(pending.discard)
            await asyncio.sleep(self._pause)
        if pending:
            await asyncio.wait(pending)

    async def _one(self, workbench: Workbench) -> None:
        began = time.monotonic()
        try:
            said = said_in(await workbench.greet())
        except Exception as error:
            said = f"error: {error!r}"
        self._tally.calls += 1
        self._tally.seconds.append(time.monotonic() - began)
        if said != EXPECTED:
            self._tally.failures[said[:300]] += 1
            print(f"{time.strftime('%H:%M:%S')} {said[:300]}", flush=True)


async def play(user: User, authority: Authority, given: argparse.Namespace) -> list[str]:
    await user.log_in()
    tally, began = Tally(), time.monotonic()
    until = began + given.minutes * 60
    soak = Soak(user, authority, tally, given.rate / given.workbenches)
    callers = [
        asyncio.create_task(soak.call(until, given.restart_seconds if number == 0 else None))
        for number in range(given.workbenches)
    ]
    running = asyncio.gather(*callers)
    while not running.done():
        await asyncio.wait({running}, timeout=REPORT_SECONDS)
        print(tally.describe(authority, began, given.ttl), flush=True)
    await running
    return tally.verdict(authority)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.sign_ins", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--ttl", type=int, default=10, help="seconds that a token lives")
    parser.add_argument("--rate", type=float, default=20.0, help="calls a second, of all workbenches together")
    parser.add_argument("--workbenches", type=int, default=3, help="processes that share the sign-in")
    parser.add_argument("--restart-seconds", type=float, default=60.0, help="how long the first of them lives")
    given = parser.parse_args()
    if available():
        adopt_orphans()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="soak-") as folder,
            oidc_provider(given.ttl) as authority,
            resource_server("sdk", authority.origin) as url,
        ):
            problems = asyncio.run(play(User(Path(folder), url), authority, given))
    except Unavailable as reason:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return 2
    print(*(f"- {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    print("it did not hold" if problems else "it held")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
