"""Approvals across instances: what waits on one is seen and decided on another, where it counts as decided on all."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.lasting_state import APPROVAL, WAITING
from mcp_workbench.team.policy import shared_approvals as module
from mcp_workbench.team.policy.approval import Approvals, GrantedApproval
from mcp_workbench.team.policy.approval_socket import ApprovalReply, ApprovalRequest
from mcp_workbench.team.policy.shared_approvals import SharedApprovals
from tests.support.shared_state import SharedServer, SharedState

HOUR = 3600.0


class Instance:
    def __init__(self, server: SharedServer, host: str) -> None:
        self.state: SharedState = server.instance()
        self.is_asked = False
        self.recorded: list[tuple[str, str]] = []
        self.shared = SharedApprovals(self.state, self.decide, self._on_waiting, host)
        self.approvals = Approvals(elsewhere=self.shared)
        self.shared.serve(self.approvals)

    def _on_waiting(self) -> None:
        self.is_asked = True

    def decide(self, wanted: ApprovalRequest, by: str, peer: str) -> ApprovalReply:
        """As `Access.decide`, which records it."""
        approvals = self.approvals
        found = approvals.deny(wanted.id, by) if wanted.denies else approvals.approve(wanted.id, wanted.seconds, by)
        if found is None:
            before = approvals.decided(wanted.id)
            return ApprovalReply(decided=None if before is None else str(before))
        self.recorded.append((by, peer))
        return ApprovalReply(found.place)

    def wait(self, principal: str = "ann", digest: str = "digest", params: bytes = b'{"a":1}') -> str:
        id = self.approvals.wait(principal, "box/server/tool", params, digest)
        assert id is not None
        return id


@pytest.fixture
def server() -> SharedServer:
    return SharedServer()


@pytest.fixture
def here(server: SharedServer) -> Instance:
    return Instance(server, "here")


@pytest.fixture
def there(server: SharedServer) -> Instance:
    return Instance(server, "there")


def ids(instance: Instance) -> list[str]:
    return [each.id for each in instance.shared.calls()]


async def test_call_that_waits_is_shown_elsewhere(here: Instance, there: Instance, server: SharedServer) -> None:
    id = here.wait()
    server.settle()
    assert ids(there) == [id] and ids(here) == [], "here it is among our own"
    assert there.is_asked, "`approve` finds a socket"
    (described,) = there.shared.described()
    assert described["instance"] == "here" and described["call"] == "box/server/tool"
    shown = await there.shared.decide(ApprovalRequest(id, only_shows=True), "ben", "command line")
    assert shown.found == 'box/server/tool for ann\n{"a":1}'
    assert here.approvals.look_at(id) is not None, "looking at it decides nothing"


async def test_approval_elsewhere_reaches_the_call_where_it_waits(
    here: Instance, there: Instance, server: SharedServer
) -> None:
    id = here.wait()
    held = asyncio.create_task(here.approvals.hold(id))
    await asyncio.sleep(0)
    server.settle()
    reply = await there.shared.decide(ApprovalRequest(id), "ben (process 7)", "page")
    assert reply.found == "box/server/tool"
    await held
    assert here.recorded == [("ben (process 7) at there", "page")]
    assert here.approvals.take("ann", 0, "digest")
    assert not here.approvals.take("ann", 0, "digest"), "once is once"
    assert not there.approvals.take("ann", 0, "digest")
    server.settle()
    assert ids(there) == []


async def test_denial_elsewhere_counts_on_all(here: Instance, there: Instance, server: SharedServer) -> None:
    id = here.wait()
    server.settle()
    assert (await there.shared.decide(ApprovalRequest(id, denies=True), "ben", "page")).found is not None
    for instance in (here, there):
        assert instance.approvals.denier("ann", "digest") == "ben at there"


async def test_second_decision_learns_of_the_first(here: Instance, there: Instance, server: SharedServer) -> None:
    id = here.wait()
    server.settle()
    # Not shown to the other yet.
    here.approvals.approve(id, None, "ada")
    reply = await there.shared.decide(ApprovalRequest(id, denies=True), "ben", "page")
    assert reply == ApprovalReply(decided="approved by ada")
    assert here.approvals.denier("ann", "digest") is None
    assert await there.shared.decide(ApprovalRequest(id), "ben", "page") == reply


async def test_second_of_two_simultaneous_decisions_learns_of_the_first(
    here: Instance, there: Instance, server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = here.wait()
    server.settle()
    told: list[tuple[str, bytes]] = []
    with monkeypatch.context() as patched:
        # Both are on their way before the first arrives.
        patched.setattr(there.state, "tell", lambda subject, body: told.append((subject, body)))
        deciding = [
            asyncio.create_task(there.shared.decide(ApprovalRequest(id, denies=denies), by, "page"))
            for by, denies in (("ada", False), ("ben", True))
        ]
        async with asyncio.timeout(10):
            while len(told) < 2:
                await asyncio.sleep(0)
    for each in told:
        there.state.tell(*each)
    first, second = await asyncio.gather(*deciding)
    assert first == ApprovalReply("box/server/tool")
    assert second == ApprovalReply(decided="approved by ada at there")
    assert here.approvals.denier("ann", "digest") is None
    later = await there.shared.decide(ApprovalRequest(id), "cem", "page")
    assert later == second, "and so does whoever comes later"


async def test_call_of_an_instance_that_has_ended_cannot_be_decided(
    here: Instance, there: Instance, server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DECISION_TIMEOUT", 0.01)
    id = here.wait()
    server.settle()
    server.instances.remove(here.state)
    reply = await there.shared.decide(ApprovalRequest(id), "ben", "page")
    assert reply.found is None and "does not answer" in (reply.problem or "")
    assert not there.approvals.take("ann", 0, "digest")


def test_approval_for_an_hour_counts_on_all(here: Instance, there: Instance, server: SharedServer) -> None:
    here.approvals.grant("ann", "digest", GrantedApproval(here.approvals.now() + HOUR))
    server.settle()
    assert there.approvals.take("ann", 3, "digest") and there.approvals.take("ann", 4, "digest")
    assert not there.approvals.take("ben", 3, "digest") and not there.approvals.take("ann", 3, "another")


@pytest.mark.parametrize("grant", [GrantedApproval(1e18, is_once=True), GrantedApproval(1e18, session=3)])
def test_approval_for_one_call_or_one_session_stays_where_it_is(
    here: Instance, there: Instance, server: SharedServer, grant: GrantedApproval
) -> None:
    here.approvals.grant("ann", "digest", grant)
    server.settle()
    assert not there.approvals.take("ann", 3, "digest")
    assert not server.values


async def test_approvals_and_denials_follow_a_user_to_another_instance(here: Instance, server: SharedServer) -> None:
    here.approvals.grant("ann", "hour", GrantedApproval(here.approvals.now() + HOUR))
    assert here.approvals.deny(here.wait(digest="denied"), "ben") is not None
    here.approvals.grant("ann", "over", GrantedApproval(here.approvals.now() - 1))
    server.settle()
    server.instances.remove(here.state)
    later = Instance(server, "later")
    later.shared.arrive("ann", {**await later.state.find_all(APPROVAL, "ann"), "unknown": b"[]"})
    assert later.approvals.take("ann", 3, "hour")
    assert later.approvals.denier("ann", "denied") == "ben"
    assert not later.approvals.take("ann", 3, "over")


def test_next_holder_of_a_name_inherits_nothing(
    here: Instance, there: Instance, server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key was revoked and created again; the other instance knows it already.
    monkeypatch.setattr(there.state, "holder_of", lambda principal: f"{principal} again")
    here.approvals.grant("ann", "digest", GrantedApproval(here.approvals.now() + HOUR))
    server.settle()
    assert not there.approvals.take("ann", 3, "digest")


def test_state_that_lost_everything_is_filled_again(here: Instance, there: Instance, server: SharedServer) -> None:
    id = here.wait()
    server.settle()
    server.come_back(is_empty=True)
    assert ids(there) == [id]


def test_call_too_large_for_others_is_seen_in_part(here: Instance, there: Instance, server: SharedServer) -> None:
    here.wait(params=b'{"a":"%b"}' % (b"x" * 100_000))
    server.settle()
    (call,) = there.shared.calls()
    assert call.whole is None and "characters more (sha256 of all" in call.arguments
    assert all(len(value) <= WAITING.max_bytes for value in server.values.values())


def test_forgotten_user_leaves_no_waiting_call(here: Instance, there: Instance, server: SharedServer) -> None:
    here.wait()
    server.settle()
    here.approvals.forget(frozenset({"ann"}))
    server.settle()
    assert ids(there) == []
