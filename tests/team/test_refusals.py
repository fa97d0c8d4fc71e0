"""What a policy, a limit, an approval or a lock refuses has no effect: not at a server, not at another client."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.config.policy_settings import LimitRule, PolicyRule, Then
from tests.bridge.conversation import FINAL
from tests.bridge.in_process import ERAS, Client, InProcessWorkbench, in_process_workbench, settled, until
from tests.support.refusals import refused

ROUTES = ("tool", "prompt", "resource")
# Those of the flat face; the other one shows agents a result for its tools.
DENIED, LIMITED = -32010, -32011
UNKNOWN = {"tool": -32601, "prompt": -32602}
OTHERS = PolicyRule(who=("carol",), then="allow")


def rules(then: Then) -> tuple[PolicyRule, ...]:
    """The one that decides is the second."""
    return (OTHERS, PolicyRule(who=("bob",), then=then), PolicyRule(then="allow"))


async def answered(workbench: InProcessWorkbench, client: Client, route: str) -> None:
    """Somebody else's call goes through meanwhile, and so does one of the same client's to come."""
    server = await workbench.connect(client)
    request = client.call(route)
    server.reply(server.call, FINAL[route])
    assert "result" in (request.answer or {})


@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("then", ["deny", "hide", "ask"])
async def test_call_refused_by_a_rule_has_no_effect(era: str, route: str, then: Then, face: FaceName) -> None:
    """`ask`: bob's client cannot be asked, so nobody approves."""
    async with in_process_workbench(era, face=face, policy=rules(then)) as workbench:
        alice = workbench.client(era, principal="alice")
        bob = workbench.client(era, {}, principal="bob")
        await answered(workbench, alice, route)
        # A server that is bob's own, and known.
        listing = bob.send_request("tools/list")
        opening = bob.send_request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
        await until(lambda: listing.answer is not None and opening.answer is not None)
        is_shown = face == "proxy" and route == "tool"
        if then == "hide":
            code = None if is_shown else UNKNOWN.get(route, -32002 if era == "legacy" else -32602)
        else:
            code = None if is_shown else DENIED
        for _ in range(2):
            answer = await refused(workbench, lambda: bob.call(route), code)
            assert ("policy" in str(answer)) is (then != "hide")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("route", ROUTES)
async def test_call_refused_by_a_limit_has_no_effect(era: str, route: str) -> None:
    limits = (LimitRule(who=("carol",), calls_per_minute=1), LimitRule(who=("bob",), calls_per_minute=2))
    async with in_process_workbench(era, limits=limits) as workbench:
        bob, alice = workbench.client(era, principal="bob"), workbench.client(era, principal="alice")
        # The first is that of `connect`.
        await answered(workbench, bob, route)
        await answered(workbench, alice, route)
        for _ in range(2):
            await refused(workbench, lambda: bob.call(route), LIMITED, "limits[1]")
        await answered(workbench, alice, route)


@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize("era", ERAS)
async def test_call_of_a_withheld_tool_has_no_effect(era: str, face: FaceName) -> None:
    async with in_process_workbench(era, face=face) as workbench:
        client = workbench.client(era)
        server = await workbench.connect(client)
        entry = server.connection.entry
        withheld = {"prompts": {}, "tools": {"warm_up": "it is new", "work": "it has changed"}}
        entry.judges = (lambda *about: {}, lambda *about: withheld)
        entry.judge_again()
        for catalog in entry.catalogs:
            catalog.notify(entry, frozenset({"tools"}))
        await settled()
        await refused(workbench, client.call, None if face == "proxy" else -32601, "it has changed")
