"""`python -m soak.beside COMMAND…`: run a command while this machine has something else to do.

Beside it run busy processes, and clients that call through a workbench of their own without pause. The exit status is
the command's, unless the calls beside it went wrong: then it is 1, because a workload that has ended is none.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.faults.running_workbench import bad_entry, use
from tests.support.client import RawClient
from tests.support.workbench import workbench_command, write_config

BUSY_PROCESSES = 2
# They end by themselves when nobody is left to end them: their stdin is ours.
BUSY = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: sum(range(100_000))"
CALLERS = 2
ECHO = "echo"
# Longer than any command beside which it runs; it ends with its workbench.
SERVER_LIFETIME = 6 * 3600


class Workload:
    """Calls through another workbench, and what became of them."""

    def __init__(self) -> None:
        self.answered = 0
        self.wrong: list[str] = []
        self.is_over = False

    async def call(self, client: RawClient, first: int) -> None:
        """One call after the other until all is over, or one is not answered as it must be."""
        number = first
        while not self.is_over and await self.call_once(client, number):
            number += CALLERS

    async def call_once(self, client: RawClient, number: int) -> bool:
        result = await client.call_tool("use_tool", use("beside", ECHO, {"n": number}))
        is_right: bool = result.get("structuredContent") == {"n": number}
        if is_right:
            self.answered += 1
        else:
            self.wrong.append(str(result)[:200])
        return is_right


async def run_beside(command: Sequence[str]) -> tuple[int, Workload]:
    """The exit status of the command, and what ran beside it."""
    workload = Workload()
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        config = write_config(
            Path(folder), {"box": {"beside": bad_entry("--exit-after", SERVER_LIFETIME, name="beside")}}
        )
        async with RawClient.spawn(workbench_command(config, "--no-cache")) as client:
            await client.initialize()
            # From the first moment on it is there.
            await client.call_tool("use_tool", use("beside", "count"))
            callers = [asyncio.create_task(workload.call(client, number)) for number in range(CALLERS)]
            busy = [
                subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) for _ in range(BUSY_PROCESSES)
            ]
            try:
                status = await (await asyncio.create_subprocess_exec(*command)).wait()
            finally:
                for process in busy:
                    process.kill()
                    process.communicate()
                workload.is_over = True
                for end in await asyncio.gather(*callers, return_exceptions=True):
                    if isinstance(end, Exception):
                        workload.wrong.append(repr(end))
            client.close_stdin()
            await client.wait_exit()
    return status, workload


def main() -> int:
    status, workload = asyncio.run(run_beside(sys.argv[1:]))
    print(f"beside it, {workload.answered:,} calls through another workbench were answered")
    if workload.wrong or not workload.answered:
        print(
            "the workload beside it failed:", *(workload.wrong or ["no call was answered"]), sep="\n  ", file=sys.stderr
        )
        return status or 1
    return status


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        raise SystemExit(main())
    raise SystemExit(130)
