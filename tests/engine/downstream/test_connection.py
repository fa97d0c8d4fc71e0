"""One connection: started once for everybody who waits, ended as a whole, whatever comes in between."""

from __future__ import annotations

import asyncio
import random
import socket
import threading

import pytest

from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.downstream import lifecycle, server_run
from mcp_workbench.engine.downstream.lifecycle import MAX_CRASHES, State
from mcp_workbench.engine.jsonrpc import pending
from mcp_workbench.engine.transport.http.client import reachability
from mcp_workbench.engine.transport.http.client.dialing import DialFailed
from mcp_workbench.errors import DownstreamError
from tests.engine.downstream.fakes import NEVER, TOOLS, FakeServer


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_waiting_callers_share_one_start() -> None:
    async with FakeServer() as server:
        await asyncio.gather(*(server.connection.ensure_ready() for _ in range(20)))
        await asyncio.gather(*(server.connection.ensure_listed(asked=True) for _ in range(20)))
        assert (len(server.links), server.connection.starts) == (1, 1)
        assert server.connection.state is State.READY
        assert list(server.entry.tools) == ["t"]
        assert server.links[0].received == ["initialize", "notifications/initialized", "tools/list"]


async def test_failed_start_fails_all_waiting_callers_and_ends_the_server() -> None:
    async with FakeServer(startup_timeout=0.05) as server:
        server.answers["initialize"] = NEVER
        waiting = [asyncio.create_task(server.connection.ensure_ready()) for _ in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, DownstreamError) and "handshake" in outcome.message
        assert server.connection.state is State.BACKOFF


@pytest.mark.parametrize("later", range(8))
async def test_server_that_dies_after_its_handshake_is_not_ready(later: int) -> None:
    """Its answer and its end may come in one breath; then the one is read after the other has happened."""
    async with FakeServer() as server:
        server.connection.start_in_background()
        while not server.links:
            await turns(1)
        await turns(later)
        server.links[0].die()
        await turns(10)
        assert server.connection.state is State.BACKOFF
        await server.connection.ensure_listed()
        assert server.connection.starts == 2


async def test_a_server_that_dies_as_soon_as_it_is_ready_is_started_once_for_each_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine we hear of its handshake and of its end in one go, before anybody who waits for it runs."""
    async with FakeServer() as server:
        on_started = server.connection.on_started

        def die() -> None:
            on_started()
            server.links[-1].die("the server exited with status 5")

        monkeypatch.setattr(server.connection, "on_started", die)
        for use in (1, 2):
            with pytest.raises(DownstreamError, match="status 5"):
                await server.connection.ensure_ready()
            assert (len(server.links), server.connection.state) == (use, State.BACKOFF)


async def test_stop_waits_for_the_cleanup_of_a_crashed_run() -> None:
    async with FakeServer() as server:
        await server.connection.ensure_ready()
        server.may_stop.clear()
        server.links[0].die()
        server.connection.policy.forgive()
        await server.connection.ensure_ready(asked=True)
        assert len(server.links) == 2
        server.connection.retire(DownstreamError("the end"))
        ending = asyncio.create_task(server.connection.wait_stopped())
        await asyncio.gather(*(link.stopping.wait() for link in server.links))
        assert server.connection.is_running and not ending.done()
        server.may_stop.set()
        await ending
        assert all(link.stopped for link in server.links) and not server.connection.is_running


async def test_a_caller_that_is_cancelled_does_not_stop_the_start() -> None:
    async with FakeServer() as server:
        waiting = asyncio.create_task(server.connection.ensure_ready())
        await turns(1)
        waiting.cancel()
        await server.connection.ensure_ready()
        assert server.connection.starts == 1


@pytest.mark.parametrize("later", range(8))
async def test_use_after_a_crash_gets_a_new_server(later: int) -> None:
    """The old owner task may still be on its way out, and must not take the new server down with it."""
    for listing in (False, True):
        async with FakeServer() as server:
            if listing:
                server.answers["tools/list"] = NEVER
            await server.connection.ensure_ready()
            if not listing:
                await server.connection.ensure_listed()
            await turns(3)
            server.links[0].die()
            server.answers["tools/list"] = TOOLS
            await turns(later)
            await server.connection.ensure_listed()
            await turns(10)
            assert server.connection.state is State.READY
            assert len(server.links) == 2
            assert server.links[0].stopped, "what the old one left behind is ended too"
            assert not server.links[1].stopping.is_set()


async def test_a_new_server_need_not_wait_until_the_old_one_is_cleared_away() -> None:
    async with FakeServer() as server:
        await server.connection.ensure_listed()
        server.may_stop.clear()
        server.links[0].die()
        await server.connection.ensure_listed()
        assert server.links[0].stopping.is_set() and not server.links[0].stopped
        server.may_stop.set()
        await turns(5)
        assert server.connection.state is State.READY


async def test_a_use_while_an_idle_server_stops_waits_for_its_end_and_restarts_it() -> None:
    async with FakeServer(idle_timeout=0.05) as server:
        await server.connection.ensure_listed()
        server.may_stop.clear()
        async with asyncio.timeout(5):
            await server.links[0].stopping.wait()
        using = asyncio.create_task(server.connection.ensure_ready())
        await turns(5)
        assert (server.connection.state, len(server.links)) == (State.STOPPING, 1)
        server.may_stop.set()
        await using
        assert len(server.links) == 2


@pytest.mark.parametrize("moment", range(1, 13))
async def test_it_can_be_stopped_at_any_moment(moment: int) -> None:
    for hanging in ("nothing", "initialize", "tools/list"):
        async with FakeServer() as server:
            server.answers[hanging] = NEVER
            waiting = asyncio.create_task(server.connection.ensure_listed())
            await turns(moment)
            server.connection.request_stop()
            async with asyncio.timeout(5):
                await server.connection.wait_stopped()
                outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
            assert outcome is None or isinstance(outcome, DownstreamError)
            assert server.connection.state not in (State.STARTING, State.READY, State.STOPPING)


async def test_changes_that_come_together_are_fetched_together() -> None:
    async with FakeServer() as server:
        await server.connection.ensure_listed()
        (link,) = server.links
        for _ in range(10_000):
            link.receiver.on_message(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        server.answers["tools/list"] = {"tools": [{"name": "other", "inputSchema": {}}]}
        async with asyncio.timeout(5):
            while list(server.entry.tools) != ["other"]:
                await asyncio.sleep(0.01)
        assert link.received.count("tools/list") == 2


async def test_a_connection_prints_its_state() -> None:
    async with FakeServer() as server:
        assert repr(server.connection) == "<Connection box/server configured, 0 under way, started 0x>"
        await server.connection.ensure_ready()
        assert "ready" in repr(server.connection) and "started 1x" in repr(server.connection)


@pytest.mark.parametrize("seed", range(30))
async def test_no_order_of_events_breaks_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses, crashes, stops and pauses in random order: no impossible transition, no server left, no waiter left."""
    # As short as the timeouts below: how long anything takes is not what this is about.
    monkeypatch.setattr(pending, "DEADLINE_CHECK_INTERVAL", 0.02)
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 0.02)
    rng = random.Random(seed)
    async with FakeServer(startup_timeout=0.05, idle_timeout=0.05) as server:
        server.connection.policy._random = rng
        waiting: list[asyncio.Task[None]] = []
        for _ in range(25):
            match rng.choice(("use", "open", "die", "stop", "pause", "hang", "mend")):
                case "use":
                    waiting.append(asyncio.create_task(server.connection.ensure_ready()))
                case "open":
                    waiting.append(asyncio.create_task(server.connection.ensure_listed(asked=True)))
                case "die" if server.links:
                    server.links[-1].die()
                case "stop":
                    server.connection.request_stop()
                case "hang":
                    server.answers[rng.choice(("initialize", "tools/list"))] = NEVER
                case "mend":
                    server.answers.update(FakeServer().answers)
            await turns(rng.randrange(6))
            if rng.random() < 0.1:
                # One more event, not a wait for something: deadlines may pass or not, and both must be right.
                await asyncio.sleep(0.06)
        server.answers.update(FakeServer().answers)
        async with asyncio.timeout(30):
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert outcome is None or isinstance(outcome, DownstreamError), outcome
    assert not server.connection.traffic.pending.values()
    for task in server.tasks:
        assert task.cancelled() or task.exception() is None


@pytest.mark.parametrize(("size", "is_here"), [(1_000, True), (200_000, False)])
async def test_large_manifest_is_written_in_a_thread(size: int, is_here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    trims: list[None] = []
    monkeypatch.setattr(ManifestStore, "save", lambda *_: threads.append(threading.current_thread()))
    monkeypatch.setattr(server_run, "trim", lambda: trims.append(None))
    async with FakeServer() as server:
        server.answers["tools/list"] = {"tools": [{"name": str(number), "x": "y" * size} for number in range(6)]}
        await server.connection.ensure_listed()
        async with asyncio.timeout(5):
            while not threads or not (is_here or trims):
                await asyncio.sleep(0.001)
    assert [thread is threading.current_thread() for thread in threads] == [is_here]
    # What writing it took is given back.
    assert len(trims) == (0 if is_here else 1)


async def test_unreachable_server_is_refused_with_the_current_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed with 503s; by now nobody listens there at all."""
    failures: list[Exception] = []

    async def connect(host: str, port: int) -> socket.socket:
        raise failures[-1]

    async def unavailable() -> None:
        raise DownstreamError("http://one.test is not available (503)")

    monkeypatch.setattr(reachability, "connect", connect)
    async with FakeServer(url="http://one.test/mcp") as server:
        server.before_opening = unavailable
        connection = server.connection
        with pytest.raises(DownstreamError, match="503"):
            await connection.ensure_ready()
        for _ in range(MAX_CRASHES - 1):
            connection.policy.crashed(asyncio.get_running_loop().time())
        for found, why in (
            (DialFailed("connect", ConnectionRefusedError()), "nothing is listening at http://one.test"),
            (DialFailed("name", OSError()), "cannot resolve the host `one.test`"),
        ):
            failures.append(found)
            with pytest.raises(DownstreamError) as refusal:
                await connection.ensure_ready()
            assert refusal.value.message.startswith(f"{why}\n(not restarted after 5 failures")
            assert connection.last_error is not None and connection.last_error.message == why
