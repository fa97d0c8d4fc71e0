"""`make cluster-demo` runs to its end, and kills one of each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.cluster_machines import needs_haproxy, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server, needs_haproxy]

ROOT = Path(__file__).resolve().parents[2]
# It waits some 15 s itself; a machine with a load of 30 took 150 s.
PATIENCE = 280.0


async def test_demo_kills_one_of_each_and_no_other_call_fails() -> None:
    pipe = asyncio.subprocess.PIPE
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cluster_demo"), cwd=ROOT, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(PATIENCE):
            printed, complaint = await demo.communicate()
    finally:
        if demo.returncode is None:
            demo.terminate()
            await demo.wait()
    told = printed.decode()
    assert demo.returncode == 0, f"{told}\n{complaint.decode()}"
    killed = [line for line in told.splitlines() if line.startswith("killing")]
    assert [line.partition(" (SIGKILL)")[0].rpartition(" ")[0] for line in killed[:1]] == ["killing instance"]
    assert [line.partition(" (SIGKILL)")[0] for line in killed[1:]] == ["killing the state server", "killing HAProxy"]
    assert "the call failed: the instance that served this request has ended" in told
    assert told.count("none failed") == 2
