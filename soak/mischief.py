"""Random kills of servers, and messages of many megabytes: what a run has to survive.

Owns the mischief. Refuses to know what should come of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from soak.accounts import Accounts
from tests.faults.running_workbench import BAD_SERVER
from tests.support.processes import command_line, descendants

# A stopped server goes on after so long, unless it is ended before that.
STOPPED_PROCESS_THRESHOLD = 1.0
STOPS_ONE_IN = 5
# From <linux/prctl.h>.
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)


def end_with_parent() -> None:
    """For a child: whoever kills the run with SIGKILL leaves nothing behind either."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Killer:
    """Kills bad servers below some processes, one after the other, and now and then stops one for a moment.

    `at_address` means those that listen somewhere, and no others.
    """

    def __init__(
        self,
        above: Sequence[int],
        pause: float,
        *,
        at_address: bool = False,
        stops_one_in: int = STOPS_ONE_IN,
        seed: int = 1,
    ) -> None:
        self._above = above
        self._pause = pause
        self._at_address = at_address
        self._stops_one_in = stops_one_in
        self._rng = random.Random(seed)
        self.kills = 0
        self.stops = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._pause)
            below = [pid for above in self._above for pid in sorted(descendants(above))]
            servers = [pid for pid in below if _may_be_killed(pid) and _is_at_address(pid) == self._at_address]
            if not servers:
                continue
            victim = self._rng.choice(servers)
            with suppress(ProcessLookupError):
                if self._rng.randrange(self._stops_one_in):
                    os.kill(victim, self._rng.choice(SIGNALS))
                    self.kills += 1
                else:
                    os.kill(victim, signal.SIGSTOP)
                    self.stops += 1
                    asyncio.get_running_loop().call_later(STOPPED_PROCESS_THRESHOLD, _go_on, victim)


def _may_be_killed(pid: int) -> bool:
    words = command_line(pid)
    return BAD_SERVER in words and "--name good" not in words


def _is_at_address(pid: int) -> bool:
    return " --http " in command_line(pid)


def _go_on(pid: int) -> None:
    # Nobody else may have got its number meanwhile.
    with suppress(ProcessLookupError):
        if _may_be_killed(pid):
            os.kill(pid, signal.SIGCONT)


class LargeMessages:
    """Megabytes in both directions, over and over, sent by another process: reading them would hold up the crowd."""

    def __init__(self, port: int, pause: float, accounts: Accounts) -> None:
        self._command = [sys.executable, "-m", "soak.large", str(port), str(pause)]
        self._accounts = accounts
        # MiB and direction -> how many passed.
        self.passed: Counter[tuple[int, str]] = Counter()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until it is cancelled; whatever is under way then comes to its end first."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, start_new_session=True, preexec_fn=end_with_parent
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._take(json.loads(line))
        except asyncio.CancelledError:
            process.stdin.close()
            while line := await process.stdout.readline():
                self._take(json.loads(line))
        finally:
            process.stdin.close()
            await process.wait()
        if not is_over():
            self._accounts.wrong.append(f"the sender of large messages ended with status {process.returncode}")

    def _take(self, told: dict[str, object]) -> None:
        self._accounts.start()
        if told["error"] is None:
            self._accounts.answered += 1
            self.passed[int(str(told["mebibytes"])), str(told["direction"])] += 1
        else:
            self._accounts.wrong.append(f"{told['mebibytes']} MiB as a {told['direction']}: {told['error']}")
