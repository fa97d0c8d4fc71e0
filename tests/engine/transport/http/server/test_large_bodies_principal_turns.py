"""Principals take turns, however many connections each of them has."""

from __future__ import annotations

import asyncio
from functools import partial
from unittest.mock import Mock

import pytest

from mcp_workbench.engine.transport.http.server.endpoint import Endpoint
from mcp_workbench.engine.transport.http.server.large_bodies import MAX_IN_A_TURN, LargeBodies, PrincipalTurns, ReadBody
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.response_writer import ResponseWriter
from tests.engine.transport.http.server.echoing import echoing


class Arrivals:
    """Requests of principals, and the order in which they are handled."""

    def __init__(self) -> None:
        self.turns = PrincipalTurns()
        self.handled: list[str] = []

    def arrive(self, principal: str, times: int = 1) -> None:
        for _ in range(times):
            if self.turns.admits(principal):
                self.handled.append(principal)
            else:
                self.turns.wait(principal, partial(self.handled.append, principal))


async def test_one_principal_alone_is_served_at_once_and_nothing_is_scheduled() -> None:
    arrivals = Arrivals()
    arrivals.arrive("alice")
    await asyncio.sleep(0)
    arrivals.arrive("alice", 1000)
    assert len(arrivals.handled) == 1001 and arrivals.turns._counts is None


async def test_a_request_waits_for_no_more_than_one_turn_of_each_other_principal() -> None:
    arrivals = Arrivals()
    arrivals.arrive("alice")
    arrivals.arrive("bob")
    arrivals.arrive("alice", 1000)
    for _ in range(10):
        before = arrivals.handled.count("alice")
        arrivals.arrive("bob")
        assert arrivals.handled[-1] == "bob", "at once: bob has sent hardly anything"
        await asyncio.sleep(0)
        assert arrivals.handled.count("alice") - before <= MAX_IN_A_TURN
        arrivals.arrive("alice", MAX_IN_A_TURN)
    assert arrivals.handled.count("bob") == 11


async def test_all_are_served_in_the_order_of_their_arrival_and_then_nothing_is_counted() -> None:
    turns, handled = PrincipalTurns(), list[int]()
    assert turns.admits("bob")
    for number in range(200):
        if turns.admits("alice"):
            handled.append(number)
        else:
            turns.wait("alice", partial(handled.append, number))
    assert handled == list(range(MAX_IN_A_TURN)) and "1 principals waiting" in repr(turns)
    for _ in range(200 // MAX_IN_A_TURN + 3):
        await asyncio.sleep(0)
    assert handled == list(range(200)) and turns._counts is None


async def test_posts_of_a_session_keep_their_order_while_they_wait() -> None:
    served: list[str] = []

    def serve(head: RequestHead, body: bytes | ReadBody, writer: ResponseWriter) -> None:
        served.append(head.path)

    bodies = LargeBodies(serve)

    def post(principal: str, path: str, session: str | None = None) -> asyncio.Future[None] | None:
        head = RequestHead("POST", path)
        head.principal = principal
        if session is not None:
            head.headers["mcp-session-id"] = session
        return bodies.take(head, b"{}", Mock(is_over=False))

    assert post("bob", "/bob") is None
    waiting = [post("alice", f"/{number}", "one") for number in range(3 * MAX_IN_A_TURN)]
    assert [future is None for future in waiting] == [True] * MAX_IN_A_TURN + [False] * 2 * MAX_IN_A_TURN
    assert post("carol", "/carol", "one") is None, "the same id of another principal is another session"
    await asyncio.sleep(0)
    assert len(served) == 2 * MAX_IN_A_TURN + 2, "a turn is a turn, also for what waits behind others"
    for future in waiting:
        if future is not None:
            await future
    served.remove("/carol")
    assert served == ["/bob", *(f"/{number}" for number in range(3 * MAX_IN_A_TURN))]
    assert not bodies.behind


@pytest.mark.parametrize("is_ordinary", [True, False])
async def test_endpoint_lets_principals_take_turns_with_small_requests(
    monkeypatch: pytest.MonkeyPatch, is_ordinary: bool
) -> None:
    served: list[str] = []

    def serve(self: Endpoint, head: RequestHead, body: bytes, writer: ResponseWriter) -> None:
        served.append(head.principal)

    monkeypatch.setattr(Endpoint, "_serve_post", serve)
    async with echoing() as rig:
        endpoint = rig.server._endpoint

        def arrive(principal: str, times: int = 1) -> None:
            for _ in range(times):
                head = RequestHead("POST", "/mcp")
                head.principal, head.is_ordinary = principal, is_ordinary
                endpoint.serve(head, b"{}", Mock(is_over=False))

        arrive("bob")
        arrive("alice", 3 * MAX_IN_A_TURN)
        assert served == ["bob", *["alice"] * MAX_IN_A_TURN]
        arrive("bob")
        assert served[-1] == "bob", "at once: bob has sent hardly anything"
        for turn in (2, 3):
            await asyncio.sleep(0)
            assert served.count("alice") == turn * MAX_IN_A_TURN
        arrive("alice")
        for _ in range(3):
            await asyncio.sleep(0)
        arrive("alice", 1000)
        assert served.count("alice") == 3 * MAX_IN_A_TURN + 1001, "alone, she need not wait"
