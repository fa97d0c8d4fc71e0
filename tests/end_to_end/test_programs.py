"""Programs of agents, through the command: nothing that one does reaches the client beside its answer, and no process
of it is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.end_to_end.harness import Workbench
from tests.support.client import POLL_INTERVAL, Json, RawClient
from tests.support.processes import alive, descendants
from tests.support.workbench import scripted_entry

pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc with children of processes")

ATTACKS = {
    'print(\'{"jsonrpc": "2.0", "method": "notifications/message"}\')\n1 / 0': "ZeroDivisionError",
    "while True: print('x' * 1000)": "64 KiB",
    "import sys\nprint('x', file=sys.stderr)\nsys.stdout.write('x')": "AttributeError",
    "10 ** 2 ** 40": "64 MiB",
    "x = []\nfor _ in range(60): x = [x, x]\nx": "a million values",
    "open('/proc/self/environ').read()": "no files",
}


async def run(client: RawClient, code: str) -> Json:
    return await client.call_tool("run_program", {"code": code})


@needs_proc
async def test_stdout_carries_answers_alone_and_every_process_of_a_program_ends(workbench: Workbench) -> None:
    box = {"server": scripted_entry()}
    async with workbench.serving({"box": box}, programs={"writes": "allow"}) as client:
        for code, named in ATTACKS.items():
            result = await run(client, code)
            assert result["isError"] is True and named in result["content"][0]["text"], result
        sleeping = await client.start_tool("run_program", {"code": "import time\nwhile True: time.sleep(1)"})
        waiting = await client.start_tool("run_program", {"code": "call('box/server/hang')"})
        assert "2 programs of this client" in (await run(client, "1"))["content"][0]["text"]
        for call in (sleeping, waiting):
            await client.cancel(call)
        # Cancelled programs are no longer counted, and their processes are ended.
        while "isError" in (answer := await run(client, "1 + 1")):
            await asyncio.sleep(POLL_INTERVAL)
        assert answer["content"][0]["text"] == "2"
        family = descendants(client.pid)
        assert client.garbage == [] and family
    while any(map(alive, family)):
        await asyncio.sleep(POLL_INTERVAL)
