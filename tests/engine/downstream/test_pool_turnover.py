"""What becomes of connections when clients leave, servers change and configurations do; always of two or more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.downstream import pool as pool_module
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.pool import MAX_CONNECTION_VARIANTS, NO_ROOM, Pool
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.protocol.constants import TOOLS_CALL
from mcp_workbench.engine.protocol.revisions import SpokenEras, newest
from mcp_workbench.errors import DownstreamError
from tests.engine.downstream.fakes import FakeServer
from tests.engine.downstream.traffic_stage import Call

FORM = b'{"elicitation":{}}'


@asynccontextmanager
async def pool_of(server: FakeServer) -> AsyncIterator[Pool]:
    pool = Pool(server.catalog.servers, b"{}", server._open, server._start_task)
    try:
        yield pool
    finally:
        server.may_stop.set()
        await pool.close()


def client(number: int, capabilities: bytes = b"{}", principal: str = "anna") -> Caller:
    return Caller(principal, "legacy", capabilities, number)


def kind(number: int) -> bytes:
    return b'{"experimental":{"%d":{}}}' % number


def begin(connection: Connection, number: int) -> Call:
    """A call of this client that the server does not answer."""
    call = Call(number=number)
    call.caller = client(number, FORM)
    connection.traffic.forward(call, TOOLS_CALL, "work", b'{"name":"work"', None, newest("legacy"), 60)
    return call


# ── clients that leave ──


@pytest.mark.parametrize("others_call", [False, True])
async def test_what_a_client_had_alone_ends_with_it_unless_others_have_calls_on_it(others_call: bool) -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        server.entry.asks = True
        for number in (1, 2):
            await pool.connection(server.entry, client(number, FORM)).ensure_ready()
        first, own = (pool.connection(server.entry, client(number, FORM)) for number in (1, 2))
        mine, theirs = begin(own, 2), begin(own, 1) if others_call else None
        pool.end_client(2)
        assert own not in pool.connections() and own.is_retired
        assert pool.connection(server.entry, client(1, FORM)) is first and not first.is_retired
        assert pool.connection(server.entry, client(2, FORM)) is not own
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if theirs is None:
            await own.wait_stopped()
            assert mine.failure == "the server was stopped"
        else:
            assert theirs.ends == mine.ends == [] and own.state is State.READY
            # They are still in flight, although the connection has no clients any more.
            assert {call.client for call in pool.calls()} == {mine.client, theirs.client}


async def test_others_calls_go_on_where_the_client_that_left_had_none() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        server.entry.asks = True
        own = pool.connection(server.entry, client(2, FORM))
        await own.ensure_ready()
        theirs = begin(own, 1)
        pool.end_client(2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert theirs.ends == [] and own.state is State.READY and own.is_retired
        await pool.close()
        assert len(theirs.ends) == 1


async def test_closing_waits_for_what_clients_that_left_have_running() -> None:
    async with FakeServer(share="session") as server, pool_of(server) as pool:
        for number in (1, 2):
            await pool.connection(server.entry, client(number)).ensure_ready()
        server.may_stop.clear()
        pool.end_client(2)
        closing = asyncio.ensure_future(pool.close())
        await server.links[1].stopping.wait()
        await asyncio.sleep(0)
        assert not closing.done()
        server.may_stop.set()
        await closing
        assert [link.stopped for link in server.links] == [True, True]


async def test_connections_that_have_stopped_are_forgotten() -> None:
    async with FakeServer(share="session") as server, pool_of(server) as pool:
        for number in range(1, 4):
            connection = pool.connection(server.entry, client(number))
            await connection.ensure_ready()
            pool.end_client(number)
            await connection.wait_stopped()
        assert len(pool._retired) == 1 and pool.connections() == []


async def test_a_client_that_leaves_takes_its_log_level_along() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        pool.set_log_level(client(1), server.catalog, "debug")
        pool.set_log_level(client(2), server.catalog, "info")
        pool.end_client(1)
        assert pool.connection(server.entry, client(3)).subscriptions.log_level == "info"


# ── like whom a server was told ──


async def test_connections_like_a_caller_are_those_its_messages_may_be_about() -> None:
    async with FakeServer() as server, FakeServer() as other, pool_of(server) as pool:
        server.entry.asks = True
        shared = pool.connection(server.entry, client(1))
        first, second = (pool.connection(server.entry, client(number, FORM)) for number in (1, 2))
        pool.connection(server.entry, client(1, principal="bert"))
        assert pool.used_by(client(1), server.catalog) == [shared]
        assert pool.used_by(client(9), server.catalog) == [shared]
        assert pool.used_by(client(1, FORM), server.catalog) == [first]
        assert pool.used_by(client(2, FORM), server.catalog) == [second]
        assert pool.used_by(client(3, FORM), server.catalog) == []
        assert pool.used_by(client(1), other.catalog) == []
        assert len(pool.used_by(client(1, principal="bert"), server.catalog)) == 1
        assert pool.used_by(client(1, principal="carl"), server.catalog) == []


async def test_log_level_reaches_no_connection_of_others() -> None:
    async with FakeServer() as server, FakeServer() as other, pool_of(server) as pool:
        server.entry.asks = True
        first, second = (pool.connection(server.entry, client(number, FORM)) for number in (1, 2))
        bert = pool.connection(server.entry, client(2, FORM, "bert"))
        pool.set_log_level(client(2, FORM), server.catalog, "debug")
        pool.set_log_level(client(1, FORM), other.catalog, "info")
        levels = [connection.subscriptions.log_level for connection in (first, second, bert)]
        assert levels == [None, "debug", None]
        assert pool.connection(server.entry, client(3, FORM)).subscriptions.log_level is None


async def test_presence_of_a_principal_is_when_it_last_called() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        assert pool.last_seen("anna") == float("inf"), "the only client is always there"
        pool.serve_many()
        assert pool.last_seen("anna") == 0.0
        for number, used in ((1, 5.0), (2, 9.0), (3, 7.0)):
            pool.connection(server.entry, client(1, kind(number))).traffic.last_used = used
        pool.connection(server.entry, client(1, principal="bert")).traffic.last_used = 11.0
        assert (pool.last_seen("anna"), pool.last_seen("bert"), pool.last_seen("carl")) == (9.0, 11.0, 0.0)


# ── room ──


async def test_connections_that_do_not_stop_leave_no_room_for_more() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        for number in range(MAX_CONNECTION_VARIANTS):
            await pool.connection(server.entry, client(1, kind(number))).ensure_ready()
        server.may_stop.clear()
        refused = []
        for number in range(MAX_CONNECTION_VARIANTS, 2 * MAX_CONNECTION_VARIANTS + 2):
            try:
                await pool.connection(server.entry, client(1, kind(number))).ensure_ready()
            except DownstreamError as error:
                refused.append((number - MAX_CONNECTION_VARIANTS, error.message))
        assert refused == [(MAX_CONNECTION_VARIANTS, NO_ROOM), (MAX_CONNECTION_VARIANTS + 1, NO_ROOM)]
        server.may_stop.set()


async def test_the_connection_unused_longest_makes_room_and_one_that_is_held_only_if_all_are() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        found = [pool.connection(server.entry, client(1, kind(number))) for number in range(MAX_CONNECTION_VARIANTS)]
        for number, connection in enumerate(found):
            connection.traffic.last_used = 100.0 - number
        holder = Call(number=1)
        found[-1].traffic.clients.hold(holder.client, 1)
        pool.connection(server.entry, client(1, kind(98))).traffic.last_used = 200.0
        pool.connection(server.entry, client(1, kind(99)))
        assert [each.is_retired for each in found[-3:]] == [True, True, False]
        assert not any(each.is_retired for each in found[:-3])
        assert pool.connection(server.entry, client(1, kind(MAX_CONNECTION_VARIANTS - 2))) is not found[-2]


@pytest.mark.parametrize("bound", [1, 2])
async def test_cached_keys_are_dropped_at_the_bound(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    monkeypatch.setattr(pool_module, "MAX_CACHED_CONNECTION_KEYS", bound)
    async with FakeServer() as server, pool_of(server) as pool:
        for number in range(4):
            pool.connection(server.entry, client(1, kind(number)))
            assert len(pool.found) <= bound


# ── borrowing ──


async def test_only_a_ready_connection_that_belongs_to_nobody_is_lent() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        own = pool.connection(server.entry, client(1, kind(1)))
        pool.lend_to(7)
        unstarted = pool.connection(server.entry, client(7))
        assert unstarted is not own, "it is not ready"
        await own.ensure_ready()
        pool.lend_to(8)
        assert pool.connection(server.entry, client(8, kind(2))) is own
        assert pool.connection(server.entry, client(8, kind(2), "bert")) is not own
    async with FakeServer(share="session") as server, pool_of(server) as pool:
        own = pool.connection(server.entry, client(1))
        await own.ensure_ready()
        pool.lend_to(8)
        assert pool.connection(server.entry, client(8)) is not own, "it keeps the state of the first"


# ── servers that begin to ask ──


async def test_each_shared_connection_becomes_its_first_clients_own() -> None:
    async with FakeServer() as server, pool_of(server) as pool:
        mute = pool.connection(server.entry, client(1))
        unused = pool.connection(server.entry, client(1, b'{"sampling":{}}'))
        shared = pool.connection(server.entry, client(2, FORM))
        for connection, number in ((mute, 1), (shared, 2), (shared, 3)):
            call = Call(number=number)
            connection.traffic.clients.join(call.client, has_session=True)
        server.catalog.servers.asks(server.entry)
        assert pool.connection(server.entry, client(1)) is mute is pool.connection(server.entry, client(9))
        assert pool.connection(server.entry, client(2, FORM)) is shared
        assert pool.connection(server.entry, client(3, FORM)) not in (shared, mute, unused)


async def test_a_client_without_a_session_gets_a_connection_that_nobody_uses() -> None:
    async with FakeServer(protocol="legacy") as server, pool_of(server) as pool:
        server.entry.asks = True
        caller = client(0, FORM)
        one, two = Call(number=0), Call(number=0)
        first = pool.caller_alone(server.entry, caller, one.client)
        connection = pool.connection(server.entry, first)
        connection.traffic.clients.reserved_for = one.client
        assert pool.caller_alone(server.entry, caller, one.client) == first
        second = pool.caller_alone(server.entry, caller, two.client)
        assert second.client == -1 and pool.connection(server.entry, second) is not connection


async def test_a_client_without_a_session_is_alone_with_its_own_calls() -> None:
    async with FakeServer(protocol="legacy") as server, pool_of(server) as pool:
        server.entry.asks = True
        caller = client(0, FORM)
        connection = pool.connection(server.entry, caller)
        await connection.ensure_ready()
        one, two, three = begin(connection, 0), Call(number=0), Call(number=0)
        assert pool.caller_alone(server.entry, caller, one.client) == caller
        given = []
        for each in (two, three):
            given.append(pool.caller_alone(server.entry, caller, each.client))
            pool.connection(server.entry, given[-1]).traffic.clients.reserved_for = each.client
        assert [each.client for each in given] == [-1, -2]


async def test_where_a_server_asks_in_results_nobody_has_to_be_alone() -> None:
    async with FakeServer(protocol="modern") as server, pool_of(server) as pool:
        server.entry.asks = True
        caller = replace(client(0, FORM), era="modern")
        pool.connection(server.entry, caller).traffic.clients.reserved_for = Call(number=0).client
        assert pool.caller_alone(server.entry, caller, Call(number=0).client) == caller


@pytest.mark.parametrize("is_kept", [None, "reserved", "busy"])
@pytest.mark.parametrize("is_old", [False, True])
async def test_a_connection_of_calls_cancelled_long_ago_is_replaced_unless_it_is_in_use(
    monkeypatch: pytest.MonkeyPatch, is_kept: str | None, is_old: bool
) -> None:
    monkeypatch.setattr(pool_module, "MAX_OWN_CONNECTIONS", 1)
    async with FakeServer(protocol="legacy") as server, pool_of(server) as pool:
        server.entry.asks = True
        caller, alone = client(0, FORM), client(-1, FORM)
        gone, new = Call(number=0), Call(number=0)
        found = [pool.connection(server.entry, each) for each in (caller, alone)]
        for connection in found:
            await connection.ensure_ready()
            connection.traffic.cancel(
                connection.traffic.forward(gone, TOOLS_CALL, "work", b"{", None, newest("legacy"), 60), {}
            )
            connection.traffic.questions.cancelled_calls._latest -= 1e6 if is_old else 0.0
        if is_kept == "reserved":
            found[1].traffic.clients.reserved_for = gone.client
        elif is_kept == "busy":
            begin(found[1], 0)
        given = pool.caller_alone(server.entry, caller, new.client)
        if is_old and is_kept is None:
            assert given == alone and pool.connection(server.entry, given) is not found[1] and found[1].is_retired
        else:
            assert given == caller and not any(connection.is_retired for connection in found)


# ── configurations ──


async def test_only_servers_whose_settings_changed_are_adjusted() -> None:
    async with FakeServer() as server, FakeServer() as other, pool_of(server) as pool:
        connections = [pool.connection(entry, client(1)) for entry in (server.entry, other.entry)]
        for entry in (server.entry, other.entry):
            entry.config = replace(entry.config, timeout=7.0)
        plan: Any = SimpleNamespace(adjusted={other.entry: other.entry.config})
        for replaced in server.catalog.servers.on_replaced:
            replaced(plan)
        assert [each.config.timeout == 7.0 for each in connections] == [False, True]


async def test_connections_of_removed_servers_are_not_listed_once_they_have_stopped() -> None:
    async with FakeServer() as server, FakeServer() as other, pool_of(server) as pool:
        stopped, running, kept = (
            pool.connection(entry, client(1, capabilities))
            for entry, capabilities in ((server.entry, kind(1)), (server.entry, kind(2)), (other.entry, kind(1)))
        )
        await running.ensure_ready()
        begin(running, 1)
        server.entry.ended = DownstreamError("removed")
        assert pool.connections() == [running, kept]
        pool.drain_ended()
        assert pool.connections() == [running, kept] and running.is_retired and not kept.is_retired
        late = pool.connection(server.entry, client(1, kind(3)))
        with pytest.raises(DownstreamError, match="removed"):
            await late.ensure_ready()
        assert pool.connections() == [running, kept] and not stopped.is_running


async def test_of_two_connections_that_turn_out_to_be_one_the_running_one_serves_all() -> None:
    async with FakeServer(protocol="auto") as server, pool_of(server) as pool:
        legacy = pool.connection(server.entry, client(1))
        modern = pool.connection(server.entry, replace(client(2), era="modern"))
        assert legacy is not modern
        server.entry.eras = SpokenEras.only("legacy")
        holder = Call(number=2)
        modern.traffic.clients.hold(holder.client, 2)
        pool.on_handshake(server.entry)
        (left,) = pool.connections()
        assert pool.connection(server.entry, replace(client(2), era="modern")) is left
        assert pool.connection(server.entry, client(1)) is left
        assert [each.is_retired for each in (legacy, modern)].count(True) == 1
        assert left.traffic.clients.is_held, "who holds it holds the one that is left"
