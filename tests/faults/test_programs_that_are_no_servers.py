"""Commands that are no MCP servers: said to be none, in time, whatever they write."""

from __future__ import annotations

import pytest

from tests.faults.running_workbench import Faults
from tests.support.client import Json


@pytest.mark.parametrize("protocol", ["auto", "legacy", "modern"])
async def test_a_program_that_echoes_its_input_is_reported_as_such(faults: Faults, protocol: str) -> None:
    async with faults.serving({"bad": {"command": "cat", "protocol": protocol}}) as workbench:
        reason = (await workbench.unavailable())["bad"]
        assert reason.startswith("the server echoes its input: it is not an MCP server")
        assert "does not support" not in reason
        await workbench.others_work()


async def test_programs_that_print_and_end_or_never_say_anything_are_distinguished(faults: Faults) -> None:
    servers: dict[str, Json] = {
        "prints": {"command": "echo", "args": ["hello"]},
        "ends": {"command": "true"},
        "fails": {"command": "ls", "args": ["/does/not/exist"], "env": {"LC_ALL": "C"}},
        "silent": {"command": "sleep", "args": ["600"], "startupTimeout": 1},
    }
    async with faults.serving(servers) as workbench:
        reasons = await workbench.unavailable()
        assert "exited with status 0" in reasons["prints"] and "exited with status 0" in reasons["ends"]
        assert "exited with status 2" in reasons["fails"] and "/does/not/exist" in reasons["fails"]
        assert "did not answer the handshake within 1 s" in reasons["silent"]
        await workbench.others_work()
