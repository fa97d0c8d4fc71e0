"""What all clients of the shared workbench may hold together."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.downstream.fair_requests import MAX_REQUESTS_IN_PROGRESS
from mcp_workbench.sharing import budgets as module
from mcp_workbench.sharing.budgets import LARGE_MESSAGE, MAX_ARRIVING_BYTES, MAX_UNREAD_BYTES, ClientBudgets
from tests.cli.shell import run
from tests.sharing.harness import Shared
from tests.sharing.test_sharing import crowded, process, used
from tests.support.processes import eventually
from tests.support.workbench import scripted_entry

MIB = 1 << 20
LARGEST = 128 * MIB


class FakeLink:
    def __init__(self, unsent: int = 0) -> None:
        self.unsent_bytes = unsent
        self.is_held = False
        self.is_watched = False
        self.reassured = 0

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def report_held(self) -> None:
        self.reassured += 1

    def watch_stalled(self) -> None:
        self.is_watched = True


def budgets(*links: FakeLink) -> ClientBudgets:
    made = ClientBudgets()
    for link in links:
        made.add(link)
    return made


@pytest.mark.requirement("sharing.fairness")
def test_a_client_may_leave_as_much_unread_as_others_leave_room_for_and_one_large_answer_always() -> None:
    slow, other = FakeLink(unsent=100 * MIB), FakeLink()
    kept = budgets(slow, other)
    assert kept.most_unread(slow, LARGEST) == MAX_UNREAD_BYTES
    assert kept.most_unread(other, LARGEST) == MAX_UNREAD_BYTES - 100 * MIB
    slow.unsent_bytes = MAX_UNREAD_BYTES
    other.unsent_bytes = 20 * MIB
    assert kept.most_unread(other, LARGEST) == LARGEST
    assert slow.is_watched and not other.is_watched, "whoever reads nothing is let go of"


@pytest.mark.requirement("sharing.fairness")
async def test_large_messages_arrive_one_after_the_other_beyond_the_bound() -> None:
    one, other, small = FakeLink(), FakeLink(), FakeLink()
    kept = budgets(one, other, small)
    half = MAX_ARRIVING_BYTES // 2
    kept.on_arriving(one, half)
    kept.on_arriving(other, half)
    assert not one.is_held and not other.is_held
    kept.on_arriving(other, half + MIB)
    kept.on_arriving(one, half + MIB)
    assert other.is_held and not one.is_held, "the first may always go on"
    kept.on_arriving(small, LARGE_MESSAGE)
    assert not small.is_held, "small ones are never held up"
    kept.on_arriving(one, 0)
    assert not other.is_held
    kept.close()


async def test_a_client_that_disconnects_mid_message_does_not_block_others() -> None:
    one, other = FakeLink(), FakeLink()
    kept = budgets(one, other)
    kept.on_arriving(one, MAX_ARRIVING_BYTES)
    kept.on_arriving(other, 2 * LARGE_MESSAGE)
    assert other.is_held
    kept.discard(one)
    assert not other.is_held
    kept.close()


async def test_a_client_that_stops_in_the_middle_of_a_message_lets_others_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ARRIVAL_TIMEOUT", 0.01)
    one, other = FakeLink(), FakeLink()
    kept = budgets(one, other)
    kept.on_arriving(one, MAX_ARRIVING_BYTES)
    kept.on_arriving(other, 2 * LARGE_MESSAGE)
    await eventually(lambda: not other.is_held, what="the turn of the other")
    kept.close()


async def test_a_client_held_for_long_is_reassured() -> None:
    one, other = FakeLink(), FakeLink()
    kept = budgets(one, other)
    kept.on_arriving(one, MAX_ARRIVING_BYTES)
    kept.on_arriving(other, 2 * LARGE_MESSAGE)
    kept.on_arriving(one, MAX_ARRIVING_BYTES + 1)
    assert kept._timer is not None
    kept._timer.cancel()
    # As the timer does: the first one has gone on since.
    kept._look_at_first()
    assert other.is_held and (other.reassured, one.reassured) == (1, 0)
    kept.close()


@pytest.mark.requirement("sharing.fairness")
async def test_a_client_that_does_not_read_does_not_block_others(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry(resultBudget=None)}})
        reader, other = await crowd.join(config), await crowd.join(config)
        transport = reader.process._transport  # type: ignore[attr-defined]
        transport.get_pipe_transport(1).pause_reading()
        identifier = {"toolbox": "box", "server": "server", "tool": "big"}
        pending = [
            await reader.start_tool("use_tool", {"tool": identifier, "arguments": {"bytes": 8 * MIB}}) for _ in range(4)
        ]

        def unread() -> int:
            return int(max(client["unreadBytes"] for client in crowd.status()["clients"]))

        async with asyncio.timeout(30):
            while await asyncio.to_thread(unread) < 8 * MIB:
                assert (await used(other, "echo", text="beside"))["text"] == "beside"
        transport.get_pipe_transport(1).resume_reading()
        for call in pending:
            await call.result()
    assert run("status").status == 0


@pytest.mark.requirement("sharing.fairness")
async def test_a_flood_of_one_client_does_not_keep_a_server_from_another(shared: Shared) -> None:
    shared.up()
    async with crowded(shared) as crowd:
        config = crowd.config({"box": {"server": scripted_entry()}})
        one, other = await crowd.join(config), await crowd.join(config)
        assert await process(one) == await process(other)
        arguments = {"tool": {"toolbox": "box", "server": "server", "tool": "hang"}, "arguments": {}}
        for id in range(10_000, 20_000):
            await one.send({"id": id, "method": "tools/call", "params": {"name": "use_tool", "arguments": arguments}})
        assert await used(other, "count") == {"count": 1}
        (server,) = (each for each in crowd.status()["servers"] if each["callsInFlight"])
        assert server["callsInFlight"] - server["callsWaiting"] <= MAX_REQUESTS_IN_PROGRESS
