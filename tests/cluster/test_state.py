"""What instances leave for each other, on a real server: also while that is away, full, or has lost everything."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cluster import state as module
from mcp_workbench.cluster.seal import SEAL_FORMAT, Seal
from mcp_workbench.cluster.state import ClusterState
from mcp_workbench.cluster.valkey_link import StateAway, ValkeyLink
from mcp_workbench.engine.lasting_state import INSTANCE, NAMED_KEY, RESULT, SESSION, SIGN_IN, TASK, StateUnavailable
from tests.support.cluster_machines import StateServer, free_port, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server]

KEY = os.urandom(32)
PATIENCE = 30.0


@asynccontextmanager
async def state_server() -> AsyncIterator[StateServer]:
    server = StateServer(free_port())
    await server.start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.returncode is None:
            server.signal(signal.SIGCONT)
        await server.kill()


@asynccontextmanager
async def linked(url: str, password: str | None = None) -> AsyncIterator[ValkeyLink]:
    """Closed whatever happens: Python would warn in a later test of a connection that is left open."""
    link = ValkeyLink(url, password)
    try:
        yield link
    finally:
        await link.close()


class Instances:
    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack

    async def start(self, key: bytes = KEY, format: int = SEAL_FORMAT, *, refuses: bool = False) -> ClusterState:
        link, seal = ValkeyLink(self._url), Seal(key, "test")
        seal.format = format
        state = ClusterState(link, seal, "test", refuses_when_away=refuses)
        running = asyncio.create_task(state.run())

        async def end() -> None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        self._stack.push_async_callback(end)
        return state


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_INTERVAL", 0.05)
    monkeypatch.setattr(module, "PROBE_INTERVAL", 0.05)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[StateServer, Instances]]:
    async with state_server() as server, AsyncExitStack() as stack:
        yield server, Instances(f"valkey://127.0.0.1:{server.port}/0", stack)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def found(state: ClusterState, name: str, value: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StateUnavailable):
                if await state.find(SESSION, "ann", name) == value:
                    return
            await asyncio.sleep(0.01)


async def test_state_is_found_by_other_instances_for_the_same_user_alone() -> None:
    async with running() as (server, instances):
        one, other = await instances.start(), await instances.start()
        one.keep(SESSION, "ann", "id", b"first")
        one.keep(SESSION, "ann", "id", b"second")
        one.keep(TASK, "ann", "a", b"1")
        one.keep(TASK, "ann", "b", b"2")
        await until(lambda: not one.waiting)
        assert await other.find(SESSION, "ann", "id") == b"second"
        assert await other.find(SESSION, "ben", "id") is None
        assert await other.find_all(TASK, "ann") == {"a": b"1", "b": b"2"}
        assert await other.find_all(TASK, "ben") == {}
        one.drop(TASK, "ann", "a")
        one.drop(SESSION, "ann", "id")
        await until(lambda: not one.waiting)
        assert await other.find_all(TASK, "ann") == {"b": b"2"}
        assert await other.find(SESSION, "ann", "id") is None
        for key in await server.command("KEYS", "*"):
            assert b"ann" not in key
            assert await server.command("TTL", key) > 0, "everything ends"


async def test_many_users_may_arrive_at_once() -> None:
    async with running() as (_, instances):
        one = await instances.start()
        one.keep(SESSION, "ann", "id", b"hers")
        await until(lambda: not one.waiting)
        other = await instances.start()
        found = await asyncio.gather(*(other.find(SESSION, "ann", "id") for _ in range(100)))
        assert found == [b"hers"] * 100
        assert not other.link.outages


async def test_bounds_of_a_kind_hold() -> None:
    async with running() as (_, instances):
        one, other = await instances.start(), await instances.start()
        one.keep(SESSION, "ann", "large", b"x" * (SESSION.max_bytes + 1))
        for number in range(TASK.most + 2):
            one.keep(TASK, "ann", f"{number}", b"")
        await until(lambda: not one.waiting)
        assert await other.find(SESSION, "ann", "large") is None
        left = await other.find_all(TASK, "ann")
        assert len(left) == TASK.most
        assert {"0", "1"}.isdisjoint(left), "the oldest are dropped"


async def test_value_moved_to_another_user_is_refused() -> None:
    async with running() as (server, instances):
        one, other = await instances.start(), await instances.start()
        one.keep(SESSION, "ann", "id", b"hers")
        one.keep(SESSION, "ben", "id", b"his")
        await until(lambda: not one.waiting)
        first, second = [key for key in await server.command("KEYS", "*") if b":session:" in key]
        values = await server.command("GET", first), await server.command("GET", second)
        await server.command("SET", first, values[1])
        await server.command("SET", second, values[0])
        assert await other.find(SESSION, "ann", "id") is None
        assert await other.find(SESSION, "ben", "id") is None
        assert other.refused == 2


async def test_instance_with_another_key_finds_nothing_and_changes_nothing() -> None:
    async with running() as (_, instances):
        one, stranger = await instances.start(), await instances.start(os.urandom(32))
        one.keep(SESSION, "ann", "id", b"hers")
        await until(lambda: not one.waiting)
        assert await stranger.find(SESSION, "ann", "id") is None
        assert list(await one.find_all(INSTANCE, "")) == [one.instance]


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_outage_of_the_state_server_delays_no_call_and_loses_nothing(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (server, instances):
        one, refusing = await instances.start(), await instances.start(refuses=True)
        one.keep(SESSION, "ann", "id", b"before")
        await until(lambda: not one.waiting)
        if how == "killed":
            await server.kill()
        else:
            server.signal(signal.SIGSTOP)
        await until(lambda: one.link.is_away and refusing.link.is_away)
        assert refusing.is_blind and not one.is_blind
        began = one.link.outages
        one.keep(SESSION, "ann", "second", b"meanwhile")
        assert await one.find(SESSION, "ann", "second") == b"meanwhile", "one's own is known"
        with pytest.raises(StateUnavailable):
            await one.find(SESSION, "ann", "id")
        assert one.waiting == 1
        if how == "killed":
            await server.start()
        else:
            server.signal(signal.SIGCONT)
        await until(lambda: not one.link.is_away and not one.waiting and not refusing.is_blind)
        other = await instances.start()
        await found(other, "second", b"meanwhile")
        assert one.link.outages == began
        told = [each.message for each in caplog.records if "is away" in each.message]
        assert len(told) == one.link.outages + refusing.link.outages + other.link.outages, "one line each time"


async def test_everything_is_left_again_when_the_server_has_lost_it() -> None:
    async with running() as (server, instances):
        one, second = await instances.start(), await instances.start()
        for state, name in ((one, "first"), (second, "second")):
            state.on_emptied(lambda state=state, name=name: state.keep(SESSION, "ann", name, b"again"))  # type: ignore[misc]
        other = await instances.start()
        await until(lambda: one._epoch is not None and second._epoch is not None)
        assert not one.waiting, "nothing was lost yet"
        await server.command("FLUSHALL")
        await found(other, "second", b"again")
        await found(other, "first", b"again")


async def test_loss_is_noticed_though_the_answer_that_would_have_told_it_came_too_late() -> None:
    async with state_server() as server, idle(server) as state, following(state) as shown:
        state.on_emptied(lambda: state.keep(SESSION, "ann", "id", b"again"))
        await state.beat()
        state.keep(NAMED_KEY, "", "a", b"1")
        await state._flush()
        await state.beat()
        await until(lambda: shown and shown[-1] == {"a": b"1"} and NAMED_KEY in state._read_at)
        await server.command("FLUSHALL")
        # The server has done what it was asked, and the link has met with another answer since.
        run = state.link.run

        async def too_late(commands: Any, **options: Any) -> Any:
            await run(commands, **options)
            raise StateAway("no answer")

        state.link.run = too_late  # type: ignore[method-assign]
        with pytest.raises(StateAway):
            await state.beat()
        state.link.run = run  # type: ignore[method-assign]
        await state.beat()
        assert await state.find(SESSION, "ann", "id") == b"again"
        await until(lambda: shown[-1] == {})


async def test_full_server_counts_as_away() -> None:
    async with running() as (server, instances):
        one = await instances.start()
        await until(lambda: one.link.latency is not None)
        await server.command("CONFIG", "SET", "maxmemory", "1")
        one.keep(RESULT, "ann", "id", b"x")
        await until(lambda: one.link.is_away)
        assert "memory" in (one.link.problem or "")
        await server.command("CONFIG", "SET", "maxmemory", "0")
        await until(lambda: not one.waiting)
        assert await one.find(RESULT, "ann", "id") == b"x"


async def test_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 2)
    async with linked("valkey://127.0.0.1:1/0") as link:
        state = ClusterState(link, Seal(KEY, "test"), "test")
        for name in ("first", "second", "third"):
            state.keep(SESSION, "ann", name, b"x")
        assert (state.waiting, state.lost) == (2, 1)
        assert await state.find(SESSION, "ann", "third") == b"x"


async def test_replayed_notices_are_dropped_and_new_ones_arrive_once() -> None:
    async with running() as (server, instances):
        one, other, third = [await instances.start() for _ in range(3)]
        heard: dict[str, list[bytes]] = {"one": [], "other": [], "third": []}
        for name, state in (("one", one), ("other", other), ("third", third)):
            state.on_told("subject", heard[name].append)
        subscribers = "mcp-workbench:{test}:notices"

        async def all_listen() -> None:
            async with asyncio.timeout(PATIENCE):
                while (await server.command("PUBSUB", "NUMSUB", subscribers))[1] < 3:
                    await asyncio.sleep(0.01)

        await all_listen()
        one.tell("subject", b"told")
        await until(lambda: heard["other"] and heard["third"])
        replayed = one._notice("subject", b"replayed")
        await server.command("PUBLISH", subscribers, replayed)
        await until(lambda: len(heard["other"]) == 2)
        await server.command("PUBLISH", subscribers, replayed)
        await server.command("PUBLISH", subscribers, b"nonsense")
        one.tell("subject", b"last")
        await until(lambda: heard["other"][-1:] == [b"last"] and heard["third"][-1:] == [b"last"])
        assert heard == {"one": [], "other": [b"told", b"replayed", b"last"], "third": [b"told", b"replayed", b"last"]}


async def test_common_values_are_shown_to_all_whenever_they_change() -> None:
    async with running() as (_, instances):
        shown: list[dict[str, bytes]] = []
        one, other = await instances.start(), await instances.start()
        other.follow(NAMED_KEY, shown.append)
        one.keep(NAMED_KEY, "", "a", b"1")
        await until(lambda: shown and shown[-1] == {"a": b"1"})
        one.keep(NAMED_KEY, "", "b", b"2")
        one.drop(NAMED_KEY, "", "a")
        await until(lambda: shown[-1] == {"b": b"2"})
        late: list[dict[str, bytes]] = []
        third = await instances.start()
        third.follow(NAMED_KEY, late.append)
        await until(lambda: late and late[-1] == {"b": b"2"})


async def test_change_whose_notice_was_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (_, instances):
        shown: list[dict[str, bytes]] = []
        one, other = await instances.start(), await instances.start()
        monkeypatch.setattr(other, "_hear", lambda sealed: None)
        other.follow(NAMED_KEY, shown.append)
        await until(lambda: shown)
        one.keep(NAMED_KEY, "", "a", b"1")
        await until(lambda: shown[-1] == {"a": b"1"})


async def test_common_values_that_were_lost_are_shown_as_lost_and_those_out_of_reach_are_not() -> None:
    async with running() as (server, instances):
        shown: list[dict[str, bytes]] = []
        one = await instances.start()
        one.follow(NAMED_KEY, shown.append)
        one.keep(NAMED_KEY, "", "a", b"1")
        # It is shown as soon as it waits to be written, and is lost only once it was written.
        await until(lambda: shown and shown[-1] == {"a": b"1"} and not one.waiting)
        await server.kill()
        await until(lambda: one.link.is_away)
        seen = len(shown)
        await asyncio.sleep(4 * module.BEAT_INTERVAL)
        assert len(shown) == seen, "what is known stays known"
        await server.start()
        await until(lambda: shown[-1] == {})


@asynccontextmanager
async def following(state: ClusterState) -> AsyncIterator[list[dict[str, bytes]]]:
    """What is shown to a follower, of a state that writes and beats only when the test says so."""
    shown: list[dict[str, bytes]] = []
    task = asyncio.create_task(state._follow())
    state.follow(NAMED_KEY, shown.append)
    try:
        yield shown
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def idle(server: StateServer) -> AsyncIterator[ClusterState]:
    async with linked(f"valkey://127.0.0.1:{server.port}/0") as link:
        yield ClusterState(link, Seal(KEY, "test"), "test")


@pytest.mark.parametrize("how", ["killed", "emptied"])
async def test_loss_is_shown_of_a_value_that_was_written_after_it_was_read(how: str) -> None:
    async with state_server() as server, idle(server) as state, following(state) as shown:
        await state.beat()
        state.keep(NAMED_KEY, "", "a", b"1")
        await until(lambda: shown and shown[-1] == {"a": b"1"})
        await state._flush()
        if how == "emptied":
            await server.command("FLUSHALL")
        else:
            await server.kill()
            with pytest.raises(StateAway):
                await state.beat()
            await server.start()
        await state.beat()
        await until(lambda: shown[-1] == {})


async def test_loss_is_shown_though_another_has_written_as_often_since() -> None:
    async with state_server() as server, idle(server) as state, idle(server) as other, following(state) as shown:
        other.keep(NAMED_KEY, "", "a", b"1")
        await other._flush()
        await state.beat()
        await until(lambda: shown and shown[-1] == {"a": b"1"} and NAMED_KEY in state._read_at)
        await server.command("FLUSHALL")
        other.keep(NAMED_KEY, "", "b", b"2")
        await other._flush()
        await state.beat()
        await until(lambda: shown[-1] == {"b": b"2"})


async def test_nothing_unforeseen_ends_heartbeats_or_writing_or_reading(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (_, instances):
        one, other = await instances.start(), await instances.start()
        left = {"the heartbeat": 2, "a follower": 2, "a listener": 2}

        def fail(name: str) -> None:
            if left[name]:
                left[name] -= 1
                raise RuntimeError(name)

        def describe() -> bytes:
            fail("the heartbeat")
            return b""

        def changed(values: dict[str, bytes]) -> None:
            fail("a follower")
            shown.append(values)

        shown: list[dict[str, bytes]] = []
        one.on_told("subject", lambda body: fail("a listener"))
        one.follow(NAMED_KEY, changed)
        monkeypatch.setattr(one, "_describe", describe)
        other.keep(NAMED_KEY, "", "a", b"1")
        await until(lambda: shown and shown[-1] == {"a": b"1"} and not left["the heartbeat"])
        async with asyncio.timeout(PATIENCE):
            while left["a listener"]:
                other.tell("subject", b"")
                await asyncio.sleep(0.05)
        told = one._told
        await until(lambda: one._told > told)
        failures = [each for each in caplog.records if "please report this" in each.message]
        assert len(failures) == 6
        caplog.clear()


async def test_common_value_is_written_again_before_its_time_is_over() -> None:
    async with running() as (server, instances):
        old = Seal(KEY, "test", lambda: time.time() - 0.6 * NAMED_KEY.lifetime)
        async with linked(f"valkey://127.0.0.1:{server.port}/0") as link:
            writer = ClusterState(link, old, "test")
            writer.keep(NAMED_KEY, "", "a", b"1")
            await writer.leave()
        one = await instances.start()
        one.follow(NAMED_KEY, lambda values: None)

        async def age() -> float:
            keys = await server.command("KEYS", "*:key:*")
            assert len(keys) == 1
            ((hidden, sealed),) = (await server.command("HGETALL", keys[0])).items()
            return time.time() - Seal(KEY, "test").open("key", "", hidden.decode(), sealed).written / 1e9

        async with asyncio.timeout(PATIENCE):
            while await age() > 60:
                await asyncio.sleep(0.01)


async def test_notice_that_another_has_overtaken_is_heard() -> None:
    async with linked("valkey://127.0.0.1:1/0") as link:
        one, other = (ClusterState(link, Seal(KEY, "test"), "test") for _ in range(2))
        heard: list[bytes] = []
        other.on_told("subject", heard.append)
        notices = [one._notice("subject", b"%d" % number) for number in range(100)]
        for number in (1, 0, 3, 3, 2, 1, 99, 98, 10, 98):
            other._hear(notices[number])
        assert heard == [b"1", b"0", b"3", b"2", b"99", b"98"]


async def test_sentinels_say_which_server_to_use_now(tmp_path: Path) -> None:
    """A real failover: the master is killed, and the Sentinel makes its replica the next one."""
    ports = free_port(), free_port(), free_port()
    password = "of-the-state"
    async with AsyncExitStack() as stack:
        # Replication writes a file.
        options = ("--requirepass", password, "--masterauth", password, "--dir", str(tmp_path))
        master = StateServer(ports[0], *options)
        replica = StateServer(ports[1], *options, "--replicaof", "127.0.0.1", str(ports[0]))
        for server in (master, replica):
            await server.start()
            stack.push_async_callback(server.kill)
        file = tmp_path / "sentinel.conf"
        file.write_text(
            f"sentinel monitor main 127.0.0.1 {ports[0]} 1\nsentinel auth-pass main {password}\n"
            "sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n"
        )
        sentinel = StateServer(ports[2], config=file)
        await sentinel.start()
        stack.push_async_callback(sentinel.kill)
        url = f"valkey+sentinel://127.0.0.1:{ports[2]},127.0.0.1:1/main/0"
        link = await stack.enter_async_context(linked(url, password))
        assert link.address == url
        await until_run(link, ("SET", "a", "1"))
        await until_run(link, ("WAIT", "1", "100"), lambda reply: reply == 1)
        await master.kill()
        await until_run(link, ("SET", "a", "2"))
        assert await link.run([("GET", "a")]) == [b"2"]
        before = len(await clients_of(sentinel))
        await link.close()
        assert before == 2
        await until_only_the_asker_is_left(sentinel)
        with pytest.raises(StateAway, match="has left the cluster"):
            await link.run([("GET", "a")], is_probe=True)


async def test_node_of_a_valkey_cluster_that_has_the_keys_is_found_also_after_a_failover(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = await cluster_of(tmp_path, stack, 3)
        slot = await nodes[0].command("CLUSTER", "KEYSLOT", "{test}")
        owner = nodes[3 * slot // 16384]
        others = [node for node in nodes if node is not owner]
        url = "valkey+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in others)
        instances = Instances(url, stack)
        one, other = await instances.start(), await instances.start()
        heard: list[bytes] = []
        other.on_told("subject", heard.append)
        one.keep(SESSION, "ann", "id", b"first")
        await until(lambda: not one.waiting)
        await found(other, "id", b"first")
        lease = await one.claim(SIGN_IN, "ann", "server", 30.0)
        assert lease is not None and await other.claim(SIGN_IN, "ann", "server", 30.0) is None
        assert await lease.finish(b"value")
        await until_told(one, heard)
        await until_replicated(owner, nodes[nodes.index(owner) + 3])
        await owner.kill()
        one.keep(SESSION, "ann", "second", b"after")
        await until(lambda: not one.waiting)
        await found(other, "second", b"after")
        await found(other, "id", b"first")
        heard.clear()
        await until_told(one, heard)
        for state in (one, other):
            await state.link.close()
        for node in others:
            await until_only_the_asker_is_left(node)


async def until_replicated(master: StateServer, replica: StateServer) -> None:
    written = (await master.command("INFO", "replication"))["master_repl_offset"]
    async with asyncio.timeout(PATIENCE):
        while True:
            about = await replica.command("INFO", "replication")
            if about["master_link_status"] == "up" and about["slave_repl_offset"] >= written:
                return
            await asyncio.sleep(0.05)


async def until_told(state: ClusterState, heard: list[bytes]) -> None:
    """Until the others hear it: whoever was away does not."""
    async with asyncio.timeout(PATIENCE):
        while not heard:
            state.tell("subject", b"news")
            await asyncio.sleep(0.1)


async def cluster_of(folder: Path, stack: AsyncExitStack, count: int) -> list[StateServer]:
    """A real Valkey or Redis Cluster of so many masters, and one replica of each."""
    nodes, buses = [], [free_port() for _ in range(2 * count)]
    for number, bus in enumerate(buses):
        own = folder / str(number)
        own.mkdir()
        node = StateServer(
            free_port(),
            *("--dir", str(own), "--cluster-enabled", "yes", "--cluster-port", str(bus)),
            *("--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0"),
            *("--repl-diskless-sync-delay", "0"),
        )
        await node.start()
        stack.push_async_callback(node.kill)
        nodes.append(node)
    ids = [await node.command("CLUSTER", "MYID") for node in nodes]
    masters, replicas = nodes[:count], nodes[count:]
    for number, master in enumerate(masters):
        first, last = 16384 * number // count, 16384 * (number + 1) // count - 1
        await master.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        await master.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
    for node, bus in zip(nodes[1:], buses[1:], strict=True):
        await nodes[0].command("CLUSTER", "MEET", "127.0.0.1", str(node.port), str(bus))
    for id, replica in zip(ids, replicas, strict=False):
        async with asyncio.timeout(PATIENCE):
            while id not in await replica.command("CLUSTER", "NODES"):
                await asyncio.sleep(0.05)
        await replica.command("CLUSTER", "REPLICATE", id)
    for node in nodes:
        async with asyncio.timeout(PATIENCE):
            while b"cluster_state:ok" not in await node.command("CLUSTER", "INFO"):
                await asyncio.sleep(0.05)
    return nodes


async def clients_of(server: StateServer) -> list[bytes]:
    """Without other servers."""
    listed: bytes = await server.command("CLIENT", "LIST")
    return [each for each in listed.splitlines() if b"flags=N" in each or b"flags=P" in each]


async def until_only_the_asker_is_left(server: StateServer) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(await clients_of(server)) > 1:
            await asyncio.sleep(0.02)


async def until_run(
    link: ValkeyLink, command: tuple[str, ...], is_expected: Callable[[Any], bool] = lambda reply: True
) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            with suppress(StateAway):
                if is_expected((await link.run([command], is_probe=True))[0]):
                    return
            await asyncio.sleep(0.05)


async def test_values_of_a_newer_version_are_left_alone_and_those_of_ones_own_are_found() -> None:
    async with running() as (_, instances):
        one, newer = await instances.start(), await instances.start(format=SEAL_FORMAT + 1)
        for state, name in ((one, "old"), (newer, "new")):
            state.keep(SESSION, "ann", name, name.encode())
            state.keep(TASK, "ann", name, name.encode())
            state.keep(SIGN_IN, "ann", name, name.encode())
        await until(lambda: not one.waiting and not newer.waiting)
        for state, name, unknown in ((one, "old", "new"), (newer, "new", "old")):
            assert await state.find(SESSION, "ann", name) == name.encode()
            assert await state.find(SESSION, "ann", unknown) is None
            assert await state.find_all(TASK, "ann") == {name: name.encode()}
            with pytest.raises(StateUnavailable, match="another version"):
                await state.claim(SIGN_IN, "ann", unknown, 5.0)
            assert state.refused == 0 and not state.has_other_key
        # Another one of each version finds what was left, whatever the other version has read meanwhile.
        for format, name in ((SEAL_FORMAT, "old"), (SEAL_FORMAT + 1, "new")):
            other = await instances.start(format=format)
            assert await other.find(SESSION, "ann", name) == name.encode()
            assert await other.find_all(TASK, "ann") == {name: name.encode()}


async def test_versions_do_not_write_common_values_over_each_others() -> None:
    async with running() as (_, instances):
        kept: dict[ClusterState, int] = {}

        def follow(state: ClusterState) -> None:
            def changed(values: dict[str, bytes]) -> None:
                # As the owners of keys do: whoever misses one keeps it again.
                if "key" not in values:
                    kept[state] = kept.get(state, 0) + 1
                    state.keep(NAMED_KEY, "", "key", b"%d" % state._seal.format)

            state.follow(NAMED_KEY, changed)

        states = [await instances.start(format=format) for format in (SEAL_FORMAT, SEAL_FORMAT + 1)]
        for state in states:
            follow(state)
        await until(lambda: len(kept) == 2 and not any(state.waiting for state in states))
        beats = [state._told for state in states]
        await until(lambda: all(state._told > before + 5 for state, before in zip(states, beats, strict=True)))
        assert set(kept.values()) == {1}
        for format in (SEAL_FORMAT, SEAL_FORMAT + 1):
            other = await instances.start(format=format)
            assert await other.find_all(NAMED_KEY, "") == {"key": b"%d" % format}


async def test_late_holder_reads_the_value_of_the_next() -> None:
    async with running() as (_, instances):
        one, other = await instances.start(), await instances.start()
        late = await one.claim(SIGN_IN, "ann", "server", 0.05)
        assert late is not None
        async with asyncio.timeout(PATIENCE):
            while (lease := await other.claim(SIGN_IN, "ann", "server", 5.0)) is None:
                await asyncio.sleep(0.01)
        assert await lease.finish(b"theirs")
        assert not await late.finish(b"late")
        assert await one.find_all(SIGN_IN, "ann") == {"server": b"theirs"}
        assert one.refused == 0


@pytest.mark.parametrize("seconds", [1.0, 60.0])
async def test_common_value_that_was_overtaken_is_written_again_and_only_an_older_one_is_refused(
    seconds: float,
) -> None:
    async with running() as (server, instances):
        state = await instances.start()
        shown: list[dict[str, bytes]] = []
        state.keep(NAMED_KEY, "", "key", b"value")
        await until(lambda: not state.waiting)
        # Another instance has sealed the same before, and writes it now.
        other = Seal(KEY, "test", lambda: time.time() - seconds)
        at, hidden = state._listed_at(NAMED_KEY, ""), other.hidden(NAMED_KEY.name, "", "key")
        await server.command("HSET", at, hidden, other.close(NAMED_KEY.name, "", "key", b"value", NAMED_KEY.lifetime))

        def changed(values: dict[str, bytes]) -> None:
            shown.append(values)
            if "key" not in values:
                state.keep(NAMED_KEY, "", "key", b"value")

        state.follow(NAMED_KEY, changed)
        await until(lambda: shown and shown[-1] == {"key": b"value"})
        assert shown[0] == {}
        assert state.refused == (seconds == 60.0)
