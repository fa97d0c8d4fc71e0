"""A call that is held for its user, and rules that change meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.steps import Ask, Denial, GuardedRequest, Pass
from mcp_workbench.team.identity.identities import Identity
from tests.bridge.conversation import FORM
from tests.bridge.in_process import in_process_workbench, until
from tests.bridge.modern_to_legacy import DONE, YES, answered
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.in_process_workbench import Server, tool, workbench_with
from tests.support.policy_rig import SECRET, rigged
from tests.support.processes import eventually

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("later", "passes"), [("deny", False), ("hide", False), ("ask", True), ("allow", True)])
async def test_a_held_call_is_judged_by_the_rules_that_are_in_force_when_the_user_answers(
    tmp_path: Path, later: str, passes: bool
) -> None:
    async with rigged(tmp_path, "legacy", "stdio", "legacy") as rig:
        await rig.decide("ask")
        assert rig.gateway.gate.access is not None
        step = rig.gateway.gate.access.approval_step
        assert step is not None
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


ADMIN = Identity(principal="alice", groups=frozenset({"admins"}))
GUEST = Identity(principal="alice", groups=frozenset({"guests"}))
FOR_ADMINS = [{"who": ["group:admins"], "then": "allow"}, {"tools": ["dev/git/push"], "then": "deny"}]


@pytest.mark.parametrize("rest", ["deny", "hide"])
@pytest.mark.parametrize(("mine", "passes"), [(ADMIN, True), (GUEST, False)])
async def test_a_call_that_waits_for_its_server_is_judged_by_its_own_caller(
    tmp_path: Path, mine: Identity, passes: bool, rest: str
) -> None:
    """Another token of the same user is shown meanwhile, with other groups."""
    server = Server(tool("push"), tool("status"))
    policy = [FOR_ADMINS[0], {"tools": ["dev/git/push"], "then": rest}, {"then": "allow"}]
    other = GUEST if mine is ADMIN else ADMIN
    options = {"use_cache": False}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options, policy=policy) as bench:
        async with MemoryClient.of(bench.gateway, "alice") as client:
            identities = bench.gateway.gate.identities()
            identities.remember(mine)
            await introduce(client, "legacy")
            server.gate = asyncio.Event()
            call = await client.start_tool("use_tool", {"tool": "dev/git/push", "arguments": {}})
            await eventually(lambda: server.starts == 1)
            identities.remember(other)
            server.gate.set()
            assert bool((await call.result()).get("isError")) is not passes
    assert bool(server.calls) is passes


@pytest.mark.parametrize(("mine", "passes"), [(ADMIN, True), (GUEST, False)])
async def test_a_call_that_waits_for_the_user_is_judged_by_its_own_caller(
    tmp_path: Path, mine: Identity, passes: bool
) -> None:
    policy = [{"who": ["group:admins"], "then": "ask"}, {"then": "deny"}]
    async with workbench_with(tmp_path, {"dev": {"git": Server(tool("push"))}}, policy=policy) as bench:
        assert bench.gateway.gate.access is not None
        access, identities = bench.gateway.gate.access, bench.gateway.gate.identities()
        step = access.approval_step
        assert step is not None
        request = GuardedRequest(
            principal="alice",
            method="tools/call",
            toolbox="dev",
            server="git",
            item="push",
            client=b"{}",
            session=1,
            body=b"{",
            identity=ADMIN,
        )
        held = step.check(request)
        assert isinstance(held, Ask)
        identities.remember(GUEST)
        assert isinstance(held.answered(b'{"action":"accept","content":{"allow":"once"}}'), Pass)
        assert isinstance(access.policy_step.check(replace(request, identity=mine)), Pass if passes else Denial)


async def test_a_list_that_waits_for_its_servers_is_filtered_for_its_own_caller(tmp_path: Path) -> None:
    server = Server(tool("push"), tool("status"))
    policy = [FOR_ADMINS[0], {"tools": ["dev/git/push"], "then": "hide"}, {"then": "allow"}]
    options = {"use_cache": False, "face": "flat"}
    async with workbench_with(tmp_path, {"dev": {"git": server}}, options=options, policy=policy) as bench:
        async with MemoryClient.of(bench.gateway, "alice") as client:
            identities = bench.gateway.gate.identities()
            identities.remember(GUEST)
            await introduce(client, "legacy")
            server.gate = asyncio.Event()
            listing = await client.start("tools/list", {})
            await eventually(lambda: server.starts == 1)
            identities.remember(ADMIN)
            server.gate.set()
            assert "push" not in str(await listing.result())


THESE = PolicyRule(tools=("box",), arguments={"/a": "1"}, then="allow")
OTHERS = PolicyRule(tools=("box",), arguments={"/a": "2"}, then="allow")
NOT_THESE = PolicyRule(tools=("box",), arguments={"/a": "1"}, then="deny")
WARM_UP = PolicyRule(tools=("box/server/warm_up",), then="allow")
REST = PolicyRule(then="allow")


@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize(
    ("later", "passes"),
    [(None, True), ((THESE,), True), ((OTHERS,), False), ((NOT_THESE, REST), False), ((), True)],
)
async def test_a_parked_call_is_judged_with_its_arguments(
    face: FaceName, later: tuple[PolicyRule, ...] | None, passes: bool
) -> None:
    async with in_process_workbench("legacy", face=face, policy=(WARM_UP, THESE)) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        id = server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        if later is not None:
            await workbench.gateway.apply(replace(workbench.gateway.config, policy=later))
        retry = client.retry(request, answered(request))
        if passes:
            assert (server.answer_to(id) or {})["result"] == YES
            server.reply(server.call, DONE)
            assert retry.result["content"] == DONE["content"]
        else:
            assert "does not allow" in str(retry.answer) and workbench.is_clean()


async def test_a_call_that_was_parked_without_any_policy_is_refused_by_one_on_arguments() -> None:
    """Nobody knows them any more."""
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        await workbench.gateway.apply(replace(workbench.gateway.config, policy=(THESE,)))
        assert "does not allow" in str(client.retry(request, answered(request)).answer)


async def test_the_arguments_that_are_kept_of_a_parked_call_are_counted() -> None:
    async with in_process_workbench("legacy", policy=(REST,)) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call(arguments={"a": "x" * 5000})
        server.ask("elicitation/create", FORM)
        await until(lambda: request.answer is not None)
        assert workbench.parking._bytes[""] > 5000
