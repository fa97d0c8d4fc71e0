"""Several clients on one server: a flood of one does not stand in front of the others' requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.engine.downstream.fair_requests import MAX_REQUESTS_IN_PROGRESS, MIN_CLIENT_REQUESTS, FairRequests
from mcp_workbench.engine.downstream.server_status import status_of
from mcp_workbench.engine.jsonrpc.messages import Part
from mcp_workbench.engine.jsonrpc.pending import PendingRequests
from mcp_workbench.engine.transport import backlog
from mcp_workbench.errors import DownstreamError
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, Client, InProcessWorkbench, Request, in_process_workbench
from tests.bridge.modern_to_legacy import DONE

FLOOD = 10_000


@asynccontextmanager
async def shared_stage(server_era: str = "legacy") -> AsyncIterator[InProcessWorkbench]:
    async with in_process_workbench(server_era) as workbench:
        workbench.gateway.runtime.pool.serve_many()
        yield workbench


def named(request: str) -> dict[str, str]:
    return {"a": request}


def flood(client: Client, name: str, count: int = FLOOD) -> list[Request]:
    return [client.call(arguments=named(f"{name} {number}")) for number in range(count)]


def sent(server: FakeServer) -> list[str]:
    """What the server was sent, in order, as the clients named it."""
    return [call["params"]["arguments"]["a"] for call in server.requests("tools/call")]


class InOrder:
    """Has a server answer one call after the other, as they came."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._at = 0

    def answer(self, most: int = 10 * FLOOD) -> int:
        """How many there were to answer."""
        count = 0
        while count < most and self._at < len(self._server.received):
            message = self._server.received[self._at]
            self._at += 1
            if message.get("method") == "tools/call":
                self._server.reply(message, DONE)
                count += 1
        return count


def failure(request: Request) -> str:
    assert request.result["isError"]
    text: str = request.result["content"][0]["text"]
    return text


@pytest.mark.requirement("sharing.fairness")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_flood_of_one_client_stays_behind_the_next_call_of_another(server_era: str) -> None:
    async with shared_stage(server_era) as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        assert await workbench.connect(other) is server
        flooded = flood(one, "one")
        assert sent(server) == [f"one {number}" for number in range(MAX_REQUESTS_IN_PROGRESS)], (
            "what another waits for at most"
        )
        call = other.call(arguments=named("other"))
        assert sent(server)[-1] == "other", "it is sent at once"
        order = InOrder(server)
        order.answer(MAX_REQUESTS_IN_PROGRESS + 1)
        assert call.result["content"] == DONE["content"]
        assert len(one.received) == MAX_REQUESTS_IN_PROGRESS, "that many were before it"
        order.answer()
        assert [message["id"] for message in one.received] == [request.id for request in flooded]
        assert [name for name in sent(server) if name != "other"] == [f"one {number}" for number in range(FLOOD)]
        assert workbench.is_clean()


async def test_queued_calls_are_in_flight_and_distinguished() -> None:
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        flood(client, "one", 100)
        (connection,) = workbench.gateway.runtime.pool.connections()
        (found,) = status_of([connection.entry], [connection], 0.0)
        assert (found["callsInFlight"], found["callsWaiting"]) == (100, 100 - MAX_REQUESTS_IN_PROGRESS)
        InOrder(server).answer()
        (found,) = status_of([connection.entry], [connection], 0.0)
        assert (found["callsInFlight"], found["callsWaiting"]) == (0, 0)


async def test_clients_that_all_flood_are_served_in_turn() -> None:
    async with shared_stage() as workbench:
        clients = [workbench.client("legacy") for _ in range(4)]
        server = await workbench.connect(clients[0])
        for client in clients[1:]:
            await workbench.connect(client)
            server.received.clear()
        for number, client in enumerate(clients):
            flood(client, str(number), 500)
        InOrder(server).answer(5 * MAX_REQUESTS_IN_PROGRESS)
        # The first was alone for a moment; from then on each gets one for each of the others.
        later = [name.partition(" ")[0] for name in sent(server)[-MAX_REQUESTS_IN_PROGRESS:]]
        assert [later.count(str(number)) for number in range(4)] == [MAX_REQUESTS_IN_PROGRESS // 4] * 4


async def test_however_many_clients_there_are_each_has_some_under_way() -> None:
    async with shared_stage() as workbench:
        clients = [workbench.client("legacy") for _ in range(20)]
        server = await workbench.connect(clients[0])
        for client in clients[1:]:
            await workbench.connect(client)
            server.received.clear()
        for number, client in enumerate(clients):
            flood(client, str(number), 20)
        owners = [name.partition(" ")[0] for name in sent(server)]
        assert [owners.count(str(number)) for number in range(8, 20)] == [MIN_CLIENT_REQUESTS] * 12
        InOrder(server).answer()
        assert len(sent(server)) == 20 * 20 and workbench.is_clean()


async def test_a_client_that_ends_leaves_its_share_to_the_others() -> None:
    async with shared_stage() as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy")
        server = await workbench.connect(one)
        await workbench.connect(other)
        server.received.clear()
        theirs = flood(other, "other", MAX_REQUESTS_IN_PROGRESS // 2)
        flood(one, "one", 100)
        assert sum(name.startswith("one") for name in sent(server)) == MAX_REQUESTS_IN_PROGRESS // 2
        for request in theirs:
            other.cancel(request)
        assert sum(name.startswith("one") for name in sent(server)) == MAX_REQUESTS_IN_PROGRESS


async def test_a_request_that_waits_can_be_cancelled_and_the_server_never_hears_of_it() -> None:
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "one", MAX_REQUESTS_IN_PROGRESS + 2)
        client.cancel(requests[-2])
        InOrder(server).answer()
        assert requests[-2].answer is None and requests[-1].result["content"] == DONE["content"]
        assert f"one {MAX_REQUESTS_IN_PROGRESS}" not in sent(server) and not server.told("notifications/cancelled")
        assert workbench.is_clean()


async def test_a_request_that_waits_for_too_long_ends_and_was_not_sent() -> None:
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "one", MAX_REQUESTS_IN_PROGRESS + 1)
        server.advance(61)
        assert "was not sent" in failure(requests[-1])
        assert "did not answer within 60 s" in failure(requests[0])
        assert len(sent(server)) == MAX_REQUESTS_IN_PROGRESS and workbench.is_clean()


async def test_requests_that_wait_end_with_the_server() -> None:
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "one", MAX_REQUESTS_IN_PROGRESS + 5)
        server.crash()
        assert all(failure(request) for request in requests)
        assert len(sent(server)) == MAX_REQUESTS_IN_PROGRESS and workbench.is_clean()


async def test_queued_messages_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_UNSENT_BYTES", 20_000)
    monkeypatch.setattr(backlog, "RESERVED_BYTES", 0)
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "x" * 1000, MAX_REQUESTS_IN_PROGRESS + 30)
        refused = [request for request in requests if request.answer is not None]
        assert 5 < len(refused) < 20 and "does not fit" in failure(refused[0])
        pending = server.traffic.pending
        assert isinstance(pending, FairRequests)
        assert pending.waiting_count == len(requests) - MAX_REQUESTS_IN_PROGRESS - len(refused)
        InOrder(server).answer()
        # `Request.result` fails for a request with two answers.
        assert all(request.result for request in requests)
        names = {request.id: f"{'x' * 1000} {number}" for number, request in enumerate(requests)}
        assert not {names[request.id] for request in refused} & set(sent(server)), "it was told that nothing was sent"
        assert client.call(arguments=named("later")).answer is None and sent(server)[-1] == "later"


async def test_a_workbench_for_one_client_sends_everything_at_once() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        flood(client, "one", 1000)
        assert len(sent(server)) == 1000
        assert type(server.traffic.pending) is PendingRequests, "and pays nothing for it"


async def test_suspended_time_does_not_count_for_waiting_calls() -> None:
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "one", MAX_REQUESTS_IN_PROGRESS + 1)
        server.traffic.pending.postpone(30)
        server.advance(61)
        assert all(request.answer is None for request in requests)


async def test_requests_that_fail_as_they_are_sent_all_end() -> None:
    """Each makes room for the next one, which fails in turn."""
    async with shared_stage() as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        requests = flood(client, "one", 5000)
        error = DownstreamError("it went away")

        def send(*parts: Part, about: bytes | None = None) -> None:
            message = json.loads(b"".join(map(bytes, parts)))
            if "id" in message:
                server.traffic.on_request_failed(b"%d" % message["id"], error)

        server.send = send  # type: ignore[method-assign]
        InOrder(server).answer(1)
        assert (
            sum("isError" in message["result"] for message in client.received)
            == len(requests) - MAX_REQUESTS_IN_PROGRESS
        )
        assert workbench.gateway.fake_servers == [server]
