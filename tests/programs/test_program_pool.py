"""The processes of programs: none before the first, each in the sandbox `sealed`, and one that died is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.sandbox import server_sandbox
from mcp_workbench.engine.sandbox.decide import decide
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.sandbox import Capabilities, Sandbox
from mcp_workbench.programs import program_pool
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")
needs_filters = pytest.mark.skipif(not capabilities().has_filters, reason="needs seccomp, which Linux has")
NOTHING = Capabilities(why_no_bwrap=lambda: "bwrap is not installed")


def boxes() -> dict[str, dict[str, Server]]:
    return {"box": {"server": Server(tool("read"))}}


async def run(seen: ConnectedClient, code: str) -> str:
    return text_of(await seen.client.call_tool("run_program", {"code": code}))


def workers() -> list[int]:
    """Our processes that programs run in."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("needs /proc with children of processes")
    found = map(int, children.read_text().split())
    return [each for each in found if b"mcp_workbench.programs.worker" in Path(f"/proc/{each}/cmdline").read_bytes()]


async def test_no_process_exists_before_the_first_program(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        await seen.client.request("tools/list")
        await seen.open(toolbox_name="box")
        assert workers() == []
        assert await run(seen, "1 + 1") == "2"
        assert len(workers()) == 1
    assert workers() == []


@needs_filters
async def test_a_process_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[Sandbox] = []

    def noted(*given: Any) -> Sandbox:
        decided.append(decide(*given))
        return decided[-1]

    monkeypatch.setattr(program_pool, "decide", noted)
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        await run(seen, "1")
        (worker,) = workers()
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{worker}/status").read_text().splitlines())
        assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")
    sandbox = decided[-1]
    assert (sandbox.profile, sandbox.network, sandbox.is_best_effort) == ("sealed", "none", False)
    assert not any(path.startswith(os.path.expanduser("~/.")) for path in sandbox.write if path != sandbox.home)


async def test_no_program_runs_where_the_sandbox_cannot_be_enforced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        monkeypatch.setattr(server_sandbox, "capabilities", lambda: NOTHING)
        assert "sandbox: this machine" in await run(seen, "1")
        assert workers() == []


async def test_a_process_that_died_while_it_was_idle_is_replaced(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), programs=True) as seen:
        assert await run(seen, "1 + 1") == "2"
        (first,) = workers()
        os.kill(first, signal.SIGKILL)
        pool = seen.gateway._programs.pool
        while not pool._warm[0].has_ended:
            await asyncio.sleep(0.01)
        assert await run(seen, "2 + 2") == "4"
        (second,) = workers()
        assert second != first
