"""A call that is held for its user, and rules that change meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.steps import Ask, Denial, GuardedRequest, Pass
from tests.test_access_matrix import SECRET, rigged

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("later", "passes"), [("deny", False), ("hide", False), ("ask", True), ("allow", True)])
async def test_a_held_call_is_judged_by_the_rules_that_are_in_force_when_the_user_answers(
    tmp_path: Path, later: str, passes: bool
) -> None:
    async with rigged(tmp_path, "legacy", "stdio", "legacy") as rig:
        await rig.decide("ask")
        assert rig.gateway.access is not None
        (step,) = rig.gateway.access.holding()
        call = GuardedRequest(
            principal="bob",
            method="tools/call",
            toolbox="box",
            server="server",
            item=SECRET,
            client=b"{}",
            session=1,
            body=b"{",
        )
        held = step.check(call)
        assert isinstance(held, Ask)
        await rig.decide(later)
        verdict = held.answered(b'{"action":"accept","content":{"allow":"once"}}')
        assert isinstance(verdict, Pass if passes else Denial)
