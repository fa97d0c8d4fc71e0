"""Connections that have not authenticated: bounded by peer and in all, and never in the way of those who have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from mcp_workbench.engine.transport.http.server.authentication import BearerToken
from mcp_workbench.engine.transport.http.server.limits import UNAUTHENTICATED_GRACE, Limits
from mcp_workbench.engine.transport.http.server.server_connection import InboundConnection
from mcp_workbench.engine.transport.http.server.unauthenticated_connections import (
    UnauthenticatedConnections,
    address_of,
    peer_of,
)
from tests.engine.transport.http.listening import wait_until
from tests.engine.transport.http.server.echoing import echoing
from tests.engine.transport.http.server.raw_client import modern, modern_headers

LONG_AGO = -10.0


class Idle:
    """As much of a connection as is looked at."""

    def __init__(self, peer: str, since: float) -> None:
        self.peer, self.since = peer, since


def waiting(limits: Limits, *peers: str, since: float = LONG_AGO) -> tuple[UnauthenticatedConnections, list[Idle]]:
    unauthenticated = UnauthenticatedConnections(limits)
    idle = [Idle(peer, since) for peer in peers]
    for each in idle:
        unauthenticated.add(cast(InboundConnection, each))
    return unauthenticated, idle


def drop_all(unauthenticated: UnauthenticatedConnections, peer: str, *, is_full: bool = False) -> list[Any]:
    """Who has to go for a newcomer."""
    dropped: list[Any] = []
    while (surplus := unauthenticated.surplus(peer, 0.0, is_full=is_full and not dropped)) is not None:
        unauthenticated.discard(surplus)
        dropped.append(surplus)
    return dropped


def test_the_oldest_of_a_peer_that_has_too_many_go() -> None:
    limits = Limits(unauthenticated_per_peer=2, unauthenticated=100)
    unauthenticated, idle = waiting(limits, "a", "b", "a", "a", "a")
    assert drop_all(unauthenticated, "b") == []
    assert drop_all(unauthenticated, "a") == [idle[0], idle[2]]
    assert len(unauthenticated) == 3


def test_of_too_many_in_all_those_of_the_peer_with_most_go() -> None:
    limits = Limits(unauthenticated_per_peer=100, unauthenticated=3)
    unauthenticated, idle = waiting(limits, "a", "b", "b", "b", "c")
    assert drop_all(unauthenticated, "d") == [idle[1], idle[2]]


def test_a_burst_of_clients_is_not_cut_down() -> None:
    limits = Limits(unauthenticated_per_peer=2, unauthenticated=2)
    unauthenticated, _ = waiting(limits, *"aaaa", since=1 - UNAUTHENTICATED_GRACE)
    assert drop_all(unauthenticated, "a") == []


def test_at_the_bound_connections_of_a_peer_over_its_share_are_closed_at_once() -> None:
    limits = Limits(unauthenticated_per_peer=2, unauthenticated=100)
    unauthenticated, idle = waiting(limits, *"abbb", since=0.0)
    assert drop_all(unauthenticated, "c", is_full=True) == [idle[1]]
    assert drop_all(unauthenticated, "c", is_full=True) == [], "within its share, until it has waited for a while"
    unauthenticated, idle = waiting(limits, "b")
    assert drop_all(unauthenticated, "c", is_full=True) == idle


@pytest.mark.parametrize(
    ("name", "peer", "address"),
    [
        (("10.1.2.3", 5), "10.1.2.3", "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3", "10.1.2.3"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64", "2001:db8:1:2:3::4"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64", "fe80::1"),
        (("strange", 5), "strange", "strange"),
        ("", "", ""),
        (None, "", ""),
    ],
)
def test_a_peer_is_an_address_or_a_network_of_one_customer(name: object, peer: str, address: str) -> None:
    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, wanted: str, default: object = None) -> object:
            return name if wanted == "peername" else default

    assert peer_of(Transport()) == peer and address_of(Transport()) == address


@pytest.mark.requirement("http.connections")
async def test_idle_unauthenticated_connections_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mcp_workbench.engine.transport.http.server.unauthenticated_connections.UNAUTHENTICATED_GRACE", 0.0
    )
    async with echoing(Limits(connections=16), authenticator=BearerToken("x")) as rig:
        kept = await rig.client.connect()
        call: dict[str, Any] = {"body": modern("echo"), "authorization": "Bearer x", **modern_headers("echo")}
        assert (await kept.request(**call)).status == 200
        idle = [await rig.client.connect() for _ in range(30)]
        for _ in range(5):
            assert (await rig.client.request(**call)).status == 200
        assert (await kept.request(**call)).status == 200, "who has authenticated stays"
        await wait_until(lambda: rig.server.connection_count <= 16)
        assert await idle[0].closed() == b""


async def test_a_connection_counts_until_its_first_request_comes_in() -> None:
    async with echoing(authenticator=BearerToken("x")) as rig:
        unauthenticated = rig.server._connections.unauthenticated
        connection = await rig.client.connect()
        await wait_until(lambda: len(unauthenticated) == 1)
        assert (await connection.request("GET", "/healthz")).status == 200
        await rig.refused(connection.request(body=modern("echo"), **modern_headers("echo")), 401)
        assert len(unauthenticated) == 1
        await connection.request(body=modern("echo"), authorization="Bearer x", **modern_headers("echo"))
        assert len(unauthenticated) == 0
        # A second one, whose head is known from the first.
        other = await rig.client.connect()
        await wait_until(lambda: len(unauthenticated) == 1)
        await other.request(body=modern("echo"), authorization="Bearer x", **modern_headers("echo"))
        assert len(unauthenticated) == 0
        other.close()
        await wait_until(lambda: rig.server.connection_count == 1)
        assert len(unauthenticated) == 0
