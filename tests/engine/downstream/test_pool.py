"""Who shares a connection, and how many of them there can be."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.downstream import server_run
from mcp_workbench.engine.downstream.lifecycle import State
from mcp_workbench.engine.downstream.pool import (
    MAX_CACHED_CONNECTION_KEYS,
    MAX_CONNECTION_VARIANTS,
    MAX_LOG_LEVELS,
    MAX_SUBSCRIPTIONS_PER_CLIENT,
    NO_ROOM,
    SHUTTING_DOWN,
    Pool,
)
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.downstream.traffic import Traffic
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.engine.protocol.meta import usable
from mcp_workbench.engine.protocol.revisions import Era
from mcp_workbench.errors import DownstreamError
from tests.bridge.in_process import in_process_workbench
from tests.engine.downstream.fakes import FakeServer


def pool_of(server: FakeServer) -> Pool:
    return Pool(server.catalog.servers, b"{}", server._open, server._start_task)


def kind(number: int) -> bytes:
    """What the clients of one kind declare."""
    return b'{"experimental":{"%d":{}}}' % number


def caller(principal: str, capabilities: bytes = b"{}", era: Era = "legacy") -> Caller:
    return Caller(principal, era, capabilities)


async def test_callers_with_equal_capabilities_share_a_connection() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        first = pool.connection(server.entry, caller("anna", kind(1)))
        assert pool.connection(server.entry, caller("anna", kind(1))) is first
        others = [
            pool.connection(server.entry, caller("anna", kind(2))),
            pool.connection(server.entry, caller("bert", kind(1))),
        ]
        assert len({id(each) for each in (first, *others)}) == 3


async def test_client_that_cannot_be_asked_shares_in_either_era() -> None:
    async with FakeServer(protocol="auto") as server:
        pool = pool_of(server)
        pool.serve_many()
        modern = pool.connection(server.entry, caller("anna", era="modern"))
        assert pool.connection(server.entry, caller("anna")) is modern
        assert pool.connection(server.entry, caller("anna", b'{"elicitation":{}}')) is not modern


async def test_single_client_is_served_in_its_own_era() -> None:
    async with FakeServer(protocol="auto") as server:
        pool = pool_of(server)
        modern = pool.connection(server.entry, caller("anna", era="modern"))
        assert pool.connection(server.entry, caller("anna")) is not modern


async def test_a_use_while_the_pool_closes_starts_nothing() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        running = pool.connection(server.entry, caller("anna", kind(1)))
        await running.ensure_listed(asked=True)
        await pool.close()
        late = pool.connection(server.entry, caller("anna", kind(2)))
        for connection in (running, late):
            with pytest.raises(DownstreamError, match=SHUTTING_DOWN):
                connection.start_in_background()
        assert len(server.links) == 1


async def test_a_link_that_does_not_stop_holds_up_neither_the_end_nor_the_next_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_run, "STOP_TIMEOUT", 0.01)
    async with FakeServer() as server:
        pool = pool_of(server)
        connection = pool.connection(server.entry, caller("anna"))
        for uses in (1, 2):
            await connection.ensure_ready()
            server.may_stop.clear()
            connection.request_stop()
            async with asyncio.timeout(5):
                await connection.wait_stopped()
            assert (len(server.links), connection.state) == (uses, State.STOPPED)
            assert server.links[-1].stopping.is_set() and not server.links[-1].stopped
            server.may_stop.set()
        await connection.ensure_ready()
        server.may_stop.clear()
        async with asyncio.timeout(5):
            await pool.close()
        assert caplog.messages == ["[box/server] could not be stopped within 0.01 s"] * 3
        for link in server.links:
            link.stopped = True


async def test_a_connection_stays_in_the_era_that_its_server_agreed_to() -> None:
    """The next process of the same server may speak another one, after an update."""
    async with in_process_workbench("legacy") as workbench:
        one, other = workbench.client("legacy"), workbench.client("legacy", {})
        first = await workbench.connect(one)
        workbench.gateway._eras = {"server": "modern"}
        second = await workbench.connect(other)
        assert first is not second
        pool = workbench.gateway.runtime.pool
        assert {key.era: connection for key, connection in pool._connections.items()} == {
            "legacy": first.connection,
            "modern": second.connection,
        }
        one.call()
        assert len(first.open_calls()) + len(second.open_calls()) == 1


async def test_an_idle_connection_is_closed_for_another_kind_of_client() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        first = pool.connection(server.entry, caller("anna", kind(0)))
        await first.ensure_ready()
        for number in range(1, MAX_CONNECTION_VARIANTS + 1):
            await pool.connection(server.entry, caller("anna", kind(number))).ensure_ready()
        assert len(pool.connections()) == MAX_CONNECTION_VARIANTS
        await first.wait_stopped()
        assert first.state is State.STOPPED
        with pytest.raises(DownstreamError, match="closed to make room"):
            await first.ensure_ready()
        assert pool.connection(server.entry, caller("anna", kind(0))) is not first
        await pool.close()


async def test_waiting_callers_keep_their_start_when_another_kind_of_client_arrives() -> None:
    async with FakeServer() as server:
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        server.before_opening = wait
        pool = pool_of(server)
        waiting = []
        for number in range(MAX_CONNECTION_VARIANTS + 4):
            connection = pool.connection(server.entry, caller("anna", kind(number)))
            waiting.append(asyncio.create_task(connection.ensure_ready()))
            await asyncio.sleep(0)
        gate.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert outcomes[:MAX_CONNECTION_VARIANTS] == [None] * MAX_CONNECTION_VARIANTS
        assert [str(outcome) for outcome in outcomes[MAX_CONNECTION_VARIANTS:]] == [NO_ROOM] * 4
        await pool.close()


async def test_where_all_are_in_use_one_more_is_refused_and_none_is_started() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        for number in range(MAX_CONNECTION_VARIANTS):
            connection = pool.connection(server.entry, caller("anna", kind(number)))
            await connection.ensure_ready()
            # It works on something that outlives a call.
            connection.held_until = float("inf")
        started = len(server.links)
        for number in range(MAX_CONNECTION_VARIANTS, MAX_CONNECTION_VARIANTS + 5):
            with pytest.raises(DownstreamError) as refusal:
                await pool.connection(server.entry, caller("anna", kind(number))).ensure_ready()
            assert refusal.value.message == NO_ROOM
        assert (len(server.links), len(pool.connections())) == (started, MAX_CONNECTION_VARIANTS)
        await pool.connection(server.entry, caller("bert", kind(0))).ensure_ready()
        pool.connections()[0].held_until = 0.0
        await pool.connection(server.entry, caller("anna", kind(99))).ensure_ready()
        await pool.close()


async def test_log_levels_are_remembered_for_servers_to_come_within_a_bound() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        for number in range(MAX_LOG_LEVELS + 10):
            pool.set_log_level(caller("anna", kind(number)), server.catalog, "error")
        pool.set_log_level(caller("anna", kind(12)), server.catalog, "debug")
        assert len(pool._log_levels) == MAX_LOG_LEVELS
        assert pool.connection(server.entry, caller("anna", kind(12))).subscriptions.log_level == "debug"
        assert pool.connection(server.entry, caller("anna", kind(0))).subscriptions.log_level is None


async def test_cached_connection_keys_are_bounded() -> None:
    async with FakeServer(protocol="modern") as server:
        pool = pool_of(server)
        found = {
            pool.connection(server.entry, caller("anna", kind(number), "modern"))
            for number in range(MAX_CACHED_CONNECTION_KEYS + 9)
        }
        assert len(found) == 1, "a modern server is told with each request what its client can do"
        assert len(pool.found) <= MAX_CACHED_CONNECTION_KEYS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"experimental": {}, "extensions": {}}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"url": {"x": 1}, "form": {}}}),
        ({"roots": {}}, {"roots": {"listChanged": False}}),
        ({"sampling": {}}, {"sampling": {"x": 1}}),
        ({"roots": {}}, {"roots": True}),
        ({}, {"roots": None, "sampling": False}),
    ],
)
def test_capabilities_that_mean_the_same_to_a_server_are_the_same(one: object, other: object) -> None:
    assert usable(json.dumps(one).encode()) == usable(json.dumps(other).encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"roots": {}}),
        ({"roots": {}}, {"roots": {"listChanged": True}}),
        ({"elicitation": {}}, {"elicitation": {"form": {}, "url": {}}}),
        ({"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ({"sampling": {}}, {"sampling": {"tools": {}}}),
        ({}, {"extensions": {"io.modelcontextprotocol/ui": {}}}),
        ({}, {"tasks": {"requests": {"sampling": {}}}}),
    ],
)
def test_capabilities_that_a_server_can_act_upon_count(one: object, other: object) -> None:
    assert usable(json.dumps(one).encode()) != usable(json.dumps(other).encode())


@pytest.mark.parametrize("written", [b"[]", b"null", b"5", b"{", b"[" * 5000])
def test_capabilities_that_are_none_count_as_none(written: bytes) -> None:
    assert usable(written) == b"{}"


# ── who shares ──

ASKABLE = b'{"elicitation":{},"roots":{},"sampling":{}}'


class Somebody:
    """A client that is never asked or told anything."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        raise AssertionError("nobody asks here")

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        raise AssertionError("nobody asks here")

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        raise AssertionError("nobody tells anything here")


def client(number: int, capabilities: bytes = b"{}", era: Era = "legacy") -> Caller:
    return Caller("anna", era, capabilities, number)


@pytest.mark.requirement("sharing.state")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_client_has_a_server_that_keeps_state_to_itself(era: Era) -> None:
    async with FakeServer(share="session", protocol=era) as server:
        pool = pool_of(server)
        one, other = (pool.connection(server.entry, client(number, era=era)) for number in (1, 2))
        assert one is not other
        assert pool.connection(server.entry, client(1, era=era)) is one
        # Whoever keeps no session shares with others of the same user that keep none.
        assert pool.connection(server.entry, client(0, era=era)) is pool.connection(server.entry, client(0, era=era))
        pool.end_client(1)
        assert one.is_retired and not other.is_retired


async def test_clients_beyond_the_bound_are_refused_and_never_share_state() -> None:
    async with FakeServer(share="session") as server:
        pool = pool_of(server)
        for number in range(1, MAX_SUBSCRIPTIONS_PER_CLIENT + 1):
            assert not pool.connection(server.entry, client(number)).is_retired
        late = pool.connection(server.entry, client(MAX_SUBSCRIPTIONS_PER_CLIENT + 1))
        with pytest.raises(DownstreamError, match="clients already have a process of this server each"):
            await late.ensure_ready()
        pool.end_client(7)
        assert not pool.connection(server.entry, client(MAX_SUBSCRIPTIONS_PER_CLIENT + 1)).is_retired


@pytest.mark.requirement("sharing.state")
async def test_stateful_server_is_not_shared_by_several_clients() -> None:
    async with FakeServer(args=("-y", "@playwright/mcp@latest")) as server:
        alone = pool_of(server)
        assert alone.connection(server.entry, client(1)) is alone.connection(server.entry, client(2))
    async with FakeServer(args=("-y", "@playwright/mcp@latest")) as server:
        pool = pool_of(server)
        pool.serve_many()
        assert pool.connection(server.entry, client(1)) is not pool.connection(server.entry, client(2))
    async with FakeServer(args=("-y", "@playwright/mcp@latest"), share="project") as server:
        pool = pool_of(server)
        pool.serve_many()
        assert pool.connection(server.entry, client(1)) is pool.connection(server.entry, client(2)), "the user says so"


async def test_tools_that_show_state_make_a_server_the_first_clients_own() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        pool.serve_many()
        shared = pool.connection(server.entry, client(1))
        assert pool.connection(server.entry, client(2)) is shared
        first = Somebody(client(1))
        shared.traffic.clients.join(first, has_session=True)
        tools = {name: Raw(b"{}") for name in ("browser_navigate", "browser_snapshot")}
        server.catalog.servers.learn(server.entry, Offer(ServerProfile("legacy", "2025-11-25"), {"tools": tools}))
        assert pool.connection(server.entry, client(1)) is shared
        assert pool.connection(server.entry, client(2)) is not shared


@pytest.mark.requirement("sharing.ask")
async def test_server_that_may_not_ask_is_shared_by_all_kinds_of_clients() -> None:
    async with FakeServer(ask=False) as server:
        server.entry.asks = True
        pool = pool_of(server)
        found = {pool.connection(server.entry, client(number, kind(number))) for number in (1, 2)}
        found.add(pool.connection(server.entry, client(3, ASKABLE)))
        (connection,) = found
        assert connection.identity.capabilities == b"{}"
        assert connection.traffic.withheld == {"elicitation", "roots", "sampling"}


async def test_a_server_of_the_user_is_told_of_no_roots() -> None:
    async with FakeServer(share="user") as server:
        pool = pool_of(server)
        one = pool.connection(server.entry, client(1, b'{"roots":{"listChanged":true}}'))
        assert one is pool.connection(server.entry, client(2, b"{}"))
        assert one.identity.capabilities == b"{}"


@pytest.mark.requirement("sharing.log-levels")
async def test_most_verbose_log_level_of_sharing_clients_applies() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        connection = pool.connection(server.entry, client(1))
        pool.set_log_level(client(1), server.catalog, "debug")
        pool.set_log_level(client(2), server.catalog, "error")
        assert connection.subscriptions.log_level == "debug"
        pool.end_client(1)
        assert connection.subscriptions.log_level == "error"


async def test_borrowing_client_uses_a_running_connection_that_could_ask_it() -> None:
    async with FakeServer() as server:
        pool = pool_of(server)
        running = pool.connection(server.entry, caller("anna", kind(1)))
        await running.ensure_listed(asked=True)
        able = Caller("anna", "legacy", b'{"elicitation":{}}', 7)
        unable = Caller("anna", "legacy", b"{}", 8)
        pool.lend_to(7)
        pool.lend_to(8)
        assert pool.connection(server.entry, able) is pool.connection(server.entry, unable) is running
        server.catalog.servers.asks(server.entry)
        assert pool.connection(server.entry, able) is not running
        assert pool.connection(server.entry, unable) is running
        pool.end_lending(8)
        assert pool.connection(server.entry, unable) is not running
        await pool.close()
