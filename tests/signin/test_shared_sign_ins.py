"""Sign-ins of several instances, each on a machine of its own, with a real state server between them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.cluster import valkey_link
from mcp_workbench.cluster.seal import Seal
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.cluster.valkey_link import ValkeyLink
from mcp_workbench.engine.lasting_state import StateUnavailable
from mcp_workbench.errors import SignInNeeded
from mcp_workbench.signin import shared_sign_ins as module
from mcp_workbench.signin.flow_io import NotNow
from mcp_workbench.signin.shared_sign_ins import SharedSignIns
from mcp_workbench.signin.sign_in_target import SignInTarget
from mcp_workbench.signin.sign_ins import SignIns
from mcp_workbench.signin.store import SignInRecord, TokenStore
from mcp_workbench.signin.store_location import StoreUnusable
from tests.signin.authority import SignInSetup, sign_in_setup
from tests.support.cluster_machines import StateServer, free_port, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server]

KEY = os.urandom(32)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time, and is not the subject."""
    monkeypatch.setattr(valkey_link, "STATE_TIMEOUT", 3.0)


def over(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() - 1)


def due(record: SignInRecord) -> SignInRecord:
    return replace(record, obtained_at=time.time() - 900, expires_at=time.time() + 100)


class Cluster:
    def __init__(self, folder: Path, first: SignInSetup, server: StateServer, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.first = first
        self.server = server
        self.stack = stack
        self.states: list[ClusterState] = []

    async def machine(self, name: str, principal: str = "ann") -> SignInSetup:
        """The sign-ins of an instance on a machine of its own."""
        link = ValkeyLink(f"valkey://127.0.0.1:{self.server.port}/0")
        self.stack.push_async_callback(link.close)
        state = ClusterState(link, Seal(KEY, "test"), "test")
        self.states.append(state)
        store = TokenStore(str(self.folder / name))
        client, authority = self.first.client, self.first.authority
        sign_ins = SignIns(lambda: client, store, shared=SharedSignIns(state, store))
        self.stack.push_async_callback(sign_ins.close)
        target = SignInTarget(principal, authority.url, None, "mcp-workbench auth login files")
        return SignInSetup(authority, self.first.server, client, sign_ins, target, sign_ins.source(target, {}))

    async def look(self, *machines: SignInSetup) -> None:
        """A second has passed on these."""
        for machine in machines:
            assert machine.sign_ins.shared is not None
            await machine.sign_ins.shared.look()


async def arrive(machine: SignInSetup) -> None:
    """The user's first request reaches this instance."""
    assert machine.sign_ins.shared is not None
    await machine.sign_ins.shared.arrive(machine.target.principal)


@asynccontextmanager
async def cluster(folder: Path, **switches: object) -> AsyncIterator[Cluster]:
    server = StateServer(free_port())
    await server.start()
    try:
        async with sign_in_setup(folder / "nobody", **switches) as first, AsyncExitStack() as stack:  # type: ignore[arg-type]
            yield Cluster(folder, first, server, stack)
    finally:
        await server.kill()


async def signed_in(at: Cluster, *others: str) -> list[SignInSetup]:
    """Signed in on one machine, and known on the others."""
    machines = [await at.machine(name) for name in ("a", *others)]
    await at.look(*machines)
    await machines[0].log_in()
    await at.look(machines[0])
    for each in machines[1:]:
        await arrive(each)
    return machines


async def expire(at: Cluster, *machines: SignInSetup, change: object = over) -> None:
    """As if time had passed: everywhere the same record, with a token that is no longer valid."""
    at.first.authority.expire()
    await machines[0].change(over if change is over else due)
    await at.look(machines[0])
    for each in machines[1:]:
        await arrive(each)
        each.source.forget()


async def test_signed_in_once_is_signed_in_everywhere(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        assert await b.call() == 200
        assert len(at.first.authority.authorizations) == 1
        other = await at.machine("c", "ben")
        await arrive(other)
        with pytest.raises(SignInNeeded):
            await other.call()
        seen = b"".join([part for key in await at.server.command("KEYS", "*") for part in await dumped(at, key)])
        for secret in (a.record.access_token, a.record.refresh_token or "", "ann", at.first.authority.url):
            assert secret.encode() not in seen, "the state server sees no token, user or server"


async def dumped(at: Cluster, key: bytes) -> list[bytes]:
    kind = await at.server.command("TYPE", key)
    if kind == b"hash":
        found: dict[bytes, bytes] = await at.server.command("HGETALL", key)
        return [key, *found, *found.values()]
    return [key, await at.server.command("GET", key)]


async def test_signing_out_counts_everywhere(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        assert await b.call() == 200
        await b.sign_ins.sign_out(b.target)
        await at.look(b)
        await arrive(a)
        a.source.forget()
        with pytest.raises(SignInNeeded):
            await a.call()
        await a.log_in()
        await at.look(a)
        await arrive(b)
        b.source.forget()
        assert await b.call() == 200


@pytest.mark.requirement("signin.one-refresh")
async def test_ten_expired_calls_on_three_instances_make_one_refresh(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        machines = await signed_in(at, "b", "c")
        await expire(at, *machines)
        calls = [machines[number % 3].call() for number in range(10)]
        assert await asyncio.gather(*calls) == [200] * 10
        assert at.first.authority.refreshes == 1
        assert len({each.record.access_token for each in machines}) == 1
        # And again: rotated tokens are passed on.
        await expire(at, *machines)
        assert await asyncio.gather(*(each.call() for each in machines)) == [200] * 3
        assert at.first.authority.refreshes == 2
        sent = [each.get("refresh_token") for each in at.first.authority.token_requests if "refresh_token" in each]
        assert len(sent) == len(set(sent)), "no token was sent twice"


async def test_instance_that_was_off_takes_the_refreshed_token(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await expire(at, a, b)
        assert await a.call() == 200
        # It starts again with the store that it had.
        restarted = await at.machine("b")
        assert restarted.record.refresh_token == "refresh-1"
        await at.look(restarted)
        assert await restarted.call() == 200
        assert at.first.authority.refreshes == 1


async def until_back(state: ClusterState) -> None:
    """Its connections have broken; the next heartbeats notice that, and that everything is lost."""
    async with asyncio.timeout(30):
        while True:
            try:
                await state.beat()
                return
            except StateUnavailable:
                await asyncio.sleep(0.01)


async def lose_everything(at: Cluster) -> None:
    """The state server starts again, empty; no heartbeat has noticed it yet."""
    for state in at.states:
        await state.beat()
    await at.server.command("FLUSHALL")


async def sent_and_gone(at: Cluster, machine: SignInSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """This instance dies after the authorization server has exchanged the token, and before it stores anything."""

    async def die(*of: object, **more: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(module.SharedTurn, "store", die)
        patched.setattr(module.SharedTurn, "end", die)
        with pytest.raises(asyncio.CancelledError):
            await machine.call()


async def test_token_of_a_holder_that_died_is_never_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_LEASE_LIFETIME", 0.3)
    async with cluster(tmp_path) as at:
        a, b, c = await signed_in(at, "b", "c")
        await expire(at, a, b, c)
        await sent_and_gone(at, a, monkeypatch)
        assert at.first.authority.refreshes == 1
        for machine in (b, c):
            with pytest.raises(SignInNeeded, match="ended before it could store"):
                await machine.call()
        assert at.first.authority.refreshes == 1
        await b.log_in()
        await at.look(b)
        await arrive(c)
        c.source.forget()
        assert await c.call() == 200


async def test_holder_that_was_frozen_changes_nothing_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH_LEASE_LIFETIME", 0.2)
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await expire(at, a, b)
        assert a.sign_ins.shared is not None
        place = a.target.principal, a.target.server
        async with a.sign_ins.shared.refreshing(*place, 1.0) as turn:
            await turn.send()
            with pytest.raises(SignInNeeded):
                await b.call()
            with pytest.raises(NotNow, match="took over"):
                await turn.store([replace(a.record, access_token="late")])
        await arrive(b)
        assert b.record.ended and b.record.access_token != "late"


async def test_refresh_that_failed_is_tried_again_elsewhere(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await expire(at, a, b)
        at.first.authority.token_faults = [(503, b"")]
        with pytest.raises(NotNow):
            await a.call()
        assert await b.call() == 200


async def test_nothing_is_refreshed_while_the_state_is_away(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        assert await b.call() == 200
        await at.server.kill()
        await a.change(due)
        assert await a.call() == 200, "with the token that there is"
        await b.change(over)
        with pytest.raises(NotNow, match="while the cluster's state is away"):
            await b.call()
        assert at.first.authority.refreshes == 0


async def test_state_that_lost_everything_gets_the_newest_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await at.look(b)
        await expire(at, a, b)
        assert await a.call() == 200
        newest = a.record.access_token
        for state in at.states:
            await state.beat()
        await at.server.kill()
        await at.server.start()
        for machine, state in zip((b, a), reversed(at.states), strict=True):
            await until_back(state)
            # The one with the older token is first.
            await at.look(machine)
        with pytest.raises(NotNow, match="was lost"):
            await b.source._renew(b.record.access_token)
        await arrive(b)
        assert b.record == a.record
        assert b.record.access_token == newest


async def test_nothing_is_refreshed_before_the_heartbeat_has_noticed_that_everything_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b, c = await signed_in(at, "b", "c")
        await expire(at, a, b, c)
        assert await a.call() == 200
        await at.look(b, c)
        await b.change(over)
        await lose_everything(at)
        with pytest.raises(NotNow, match="was lost"):
            await b.call()
        # Neither where one with an older token has left that again.
        await at.look(b)
        await c.change(over)
        with pytest.raises(NotNow, match="was lost"):
            await c.call()
        assert at.first.authority.refreshes == 1


async def test_sign_in_that_the_state_alone_has_lost_is_left_again_before_it_is_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATE_RECOVERY_DELAY", 0.2)
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await at.look(b)
        await expire(at, a, b)
        assert await a.call() == 200
        (key,) = await at.server.command("KEYS", "*}:sign-in:*")
        await at.server.command("DEL", key)
        with pytest.raises(NotNow, match="was lost"):
            await b.call()
        await at.look(b)
        await arrive(a)
        await at.look(a)
        await asyncio.sleep(0.2)
        assert await b.call() == 200
        assert at.first.authority.refreshes == 1


@pytest.mark.parametrize("is_left_again", [False, True])
async def test_state_emptied_in_the_middle_of_a_refresh_gets_the_new_token(tmp_path: Path, is_left_again: bool) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await at.look(b)
        await expire(at, a, b)
        assert a.sign_ins.shared is not None
        async with a.sign_ins.shared.refreshing(a.target.principal, a.target.server, 1.0) as turn:
            await turn.send()
            await lose_everything(at)
            if is_left_again:
                await at.states[1].beat()
                await at.look(b)
            await turn.store([replace(a.record, access_token="new", obtained_at=time.time())])
        await arrive(b)
        assert b.record.access_token == "new"


async def test_end_of_a_refresh_is_written_when_the_state_is_back_and_empty(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, b = await signed_in(at, "b")
        await at.look(b)
        await expire(at, a, b)
        assert a.sign_ins.shared is not None
        for state in at.states:
            await state.beat()
        async with a.sign_ins.shared.refreshing(a.target.principal, a.target.server, 1.0) as turn:
            await turn.send()
            await at.server.kill()
            await turn.store([replace(a.record, access_token="new", obtained_at=time.time())])
        await at.server.start()
        for machine, state in ((b, at.states[1]), (a, at.states[0])):
            await until_back(state)
            await at.look(machine)
        await arrive(b)
        assert b.record.access_token == "new"


async def test_signed_out_user_stays_signed_out_after_loss_of_state(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        a, _ = await signed_in(at, "b")
        await a.sign_ins.sign_out(a.target)
        await at.look(a)
        await lose_everything(at)
        await at.states[0].beat()
        await at.look(a)
        # Its machine was off meanwhile.
        restarted = await at.machine("b")
        assert restarted.target.find(restarted.sign_ins.store.read()) is not None
        await at.look(restarted)
        await arrive(a)
        for each in (restarted, a):
            with pytest.raises(SignInNeeded):
                await each.call()


async def test_sign_in_of_another_instance_is_taken_over_once_the_store_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as at:
        a, b = await at.machine("a"), await at.machine("b")
        await at.look(a, b)
        await a.log_in()
        await at.look(a)
        assert b.sign_ins.shared is not None

        async def fail(*_: object) -> None:
            raise StoreUnusable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(b.sign_ins.store, "change", fail)
            with pytest.raises(StoreUnusable):
                await arrive(b)
        await at.look(b)
        assert await b.call() == 200


async def test_sign_in_of_another_instance_is_taken_over_once_the_state_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as at:
        a, b = await at.machine("a"), await at.machine("b")
        await at.look(a, b)
        await a.log_in()
        await at.look(a)

        async def fail(*_: object) -> None:
            raise StateUnavailable("it is away")

        with monkeypatch.context() as patched:
            patched.setattr(at.states[1], "find_all", fail)
            with pytest.raises(StateUnavailable):
                await arrive(b)
        await at.look(b)
        assert await b.call() == 200


async def test_sign_in_that_is_lost_while_it_is_shared_is_shared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as at:
        (a,) = await signed_in(at)
        await a.change(due)
        shared = a.sign_ins.shared
        assert shared is not None
        share = shared._share

        async def share_and_lose(place: tuple[str, str], *, is_users: bool) -> bool:
            is_shared = await share(place, is_users=is_users)
            await lose_everything(at)
            await at.states[0].beat()
            return is_shared

        with monkeypatch.context() as patched:
            patched.setattr(shared, "_share", share_and_lose)
            await at.look(a)
        assert not await at.server.command("KEYS", "*}:sign-in:*")
        await at.look(a)
        assert await at.server.command("KEYS", "*}:sign-in:*")
