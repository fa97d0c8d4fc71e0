"""Limits hold for requests that we answer ourselves, too: they take the time of everybody."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.engine.config.policy_settings import LimitRule
from mcp_workbench.team.policy.limit_step import LIMIT_REACHED
from tests.bridge.in_process import ERAS, in_process_workbench, until

TWO_A_MINUTE = LimitRule(who=("*",), calls_per_minute=2)
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a list": ("tools/list", {}),
    "a search": ("tools/call", {"name": "open_toolbox", "arguments": {"query": "work"}}),
    "a toolbox": ("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}}),
    "the toolboxes": ("tools/call", {"name": "open_toolbox", "arguments": {}}),
    "a name that does not exist": ("tools/call", {"name": "none", "arguments": {}}),
    "our own resource": ("resources/read", {"uri": "workbench://status"}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", REQUESTS)
async def test_requests_that_reach_no_server_are_limited(era: str, kind: str) -> None:
    async with in_process_workbench("legacy", face="proxy", limits=(TWO_A_MINUTE,)) as workbench:
        alice, bob = workbench.client(era, principal="alice"), workbench.client(era, principal="bob")
        answers = []
        for _ in range(3):
            request = alice.send_request(*REQUESTS[kind])
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            answers.append(request.answer)
        codes = [answer.get("error", {}).get("code") for answer in answers if answer is not None]
        assert codes[2] == LIMIT_REACHED and LIMIT_REACHED not in codes[:2]
        other = bob.send_request(*REQUESTS[kind])
        await until(lambda: other.answer is not None)
        assert other.answer is not None and other.answer.get("error", {}).get("code") != LIMIT_REACHED


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_of_a_server_counts_once(era: str) -> None:
    async with in_process_workbench("legacy", face="proxy", limits=(TWO_A_MINUTE,)) as workbench:
        client = workbench.client(era)
        for _ in range(2):
            call = client.call("tool")
            await until(lambda call=call: call.answer is not None or bool(workbench.unanswered()))  # type: ignore[misc]
            assert call.answer is None
        third = client.call("tool")
        await until(lambda: third.answer is not None)
        assert str(LIMIT_REACHED) in str(third.answer)
