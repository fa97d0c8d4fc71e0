"""Connections to the state server have an owner until they are closed, and whoever waits for one hears of the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.cluster import valkey_link as module
from mcp_workbench.cluster.valkey_link import StateAway, ValkeyLink
from tests.cluster.test_state import linked, state_server, until_only_the_asker_is_left, until_run
from tests.engine.transport.http.server.test_tls import certificate
from tests.support.cluster_machines import StateServer, free_port, needs_state_server

pytestmark = [pytest.mark.processes, needs_state_server]

PING = [("PING",)]
ONE_TURN = 1


@pytest.fixture(autouse=True)
def one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS_TO_STATE", ONE_TURN)
    # Nothing here ends by the clock.
    monkeypatch.setattr(module, "STATE_TIMEOUT", 600.0)


def link_to(server: StateServer) -> AbstractAsyncContextManager[ValkeyLink]:
    return linked(f"valkey://127.0.0.1:{server.port}/0")


async def started(*callers: asyncio.Task[list[object]]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(caller.done() for caller in callers)


async def test_caller_that_waits_for_its_turn_connects_to_nothing_after_the_end() -> None:
    async with state_server() as server, link_to(server) as link:
        async with link._lane.turns:
            caller = asyncio.create_task(link.run(PING))
            await started(caller)
            await link.close()
        with pytest.raises(StateAway, match="has left the cluster"):
            await caller
        assert not link._trips
        assert [message async for message in link.messages("channel")] == []
        await until_only_the_asker_is_left(server)


async def test_late_reply_is_had_by_a_patient_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENT_TIMEOUT", 600.0)
    async with state_server() as server, link_to(server) as link:
        await link.run(PING)
        server.signal(signal.SIGSTOP)
        link._lane.timeout = 0.05
        monkeypatch.setattr(module, "STATE_TIMEOUT", 0.05)
        patient = asyncio.create_task(link.run(PING, is_patient=True))
        with pytest.raises(StateAway):
            await link.run(PING)
        assert not patient.done()
        server.signal(signal.SIGCONT)
        assert await patient == [True]
        assert link.is_away, "the next one that is not patient might find it away again"
        link._lane.timeout = 600.0
        assert await link.run(PING, is_probe=True) == [True]
        assert not link.is_away
        # While it is away, patient callers try all the same.
        link._note("no answer")
        assert await link.run(PING, is_patient=True) == [True]


@pytest.mark.parametrize("gives_up", [False, True], ids=["starter stays", "starter gives up"])
async def test_callers_of_a_joined_trip_end_at_once_with_the_link(gives_up: bool) -> None:
    async with state_server() as server, link_to(server) as link:
        await link.run(PING)
        async with link._lane.turns:
            callers = [asyncio.create_task(link.run(PING)) for _ in range(3)]
            await started(*callers)
            server.signal(signal.SIGSTOP)
        while not link._trips:
            await asyncio.sleep(0)
        await started(*callers)
        assert not link._lane.asked, "one trip for all of them"
        waiting = asyncio.create_task(link.run(PING))
        await started(waiting)
        if gives_up:
            callers[0].cancel()
        closing = asyncio.create_task(link.close())
        outcomes = await asyncio.gather(*callers, waiting, return_exceptions=True)
        await closing
        server.signal(signal.SIGCONT)
        expected = [asyncio.CancelledError if gives_up else StateAway, StateAway, StateAway, StateAway]
        assert [type(outcome) for outcome in outcomes] == expected
        await until_only_the_asker_is_left(server)


async def test_connection_that_is_being_made_is_closed_when_another_node_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from valkey.asyncio import Connection

    connect, may_connect = Connection._connect, asyncio.Event()

    async def slowly(connection: Connection) -> None:
        await may_connect.wait()
        await connect(connection)  # type: ignore[no-untyped-call]

    async with state_server() as first, state_server() as second, AsyncExitStack() as stack:
        link = await stack.enter_async_context(
            linked(f"valkey+cluster://127.0.0.1:{first.port},127.0.0.1:{second.port}")
        )
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_connect", slowly)
            caller = asyncio.create_task(link.run(PING))
            await started(caller)
            link._move(link._nodes[1])
            await started(caller)
            may_connect.set()
            await caller
        await link.close()
        await until_only_the_asker_is_left(first)
        await until_only_the_asker_is_left(second)


@asynccontextmanager
async def encrypted(folder: Path, *options: str) -> AsyncIterator[tuple[StateServer, Path]]:
    """A server that speaks TLS alone, with a certificate for `localhost`; and the file of that."""
    if not StateServer.speaks_tls():
        pytest.skip("the state server was built without TLS")
    public, private = certificate(folder, "state")
    port = free_port()
    files = ("--tls-cert-file", str(public), "--tls-key-file", str(private), "--tls-ca-cert-file", str(public))
    server = StateServer(port, "--port", "0", "--tls-port", str(port), *files, "--tls-auth-clients", "no", *options)
    await server.start()
    try:
        yield server, public
    finally:
        await server.kill()


async def test_encrypted_server_is_used_if_its_certificate_is_trusted_and_for_its_host(tmp_path: Path) -> None:
    async with encrypted(tmp_path, "--requirepass", "secret") as (server, trusted):
        for address, refused in (
            (f"valkeys://localhost:{server.port}/0?ssl_ca_certs={trusted}", None),
            (f"valkeys://localhost:{server.port}/0", "certificate verify failed"),
            (f"valkeys://127.0.0.1:{server.port}/0?ssl_ca_certs={trusted}", "certificate is not valid for '127.0.0.1'"),
            (f"valkeys://127.0.0.1:{server.port}/0?ssl_ca_certs={trusted}&ssl_check_hostname=false", None),
            (f"valkeys+cluster://localhost:{server.port}?ssl_ca_certs={trusted}", None),
            (f"valkey://localhost:{server.port}/0", "Connection"),
        ):
            async with linked(address, "secret") as link:
                if refused is None:
                    assert await link.run(PING) == [True]
                else:
                    with pytest.raises(StateAway, match=refused):
                        await link.run(PING)


async def test_options_of_an_address_with_sentinels_are_those_of_the_server(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server, trusted = await stack.enter_async_context(encrypted(tmp_path))
        file = tmp_path / "sentinel.conf"
        file.write_text(
            "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n"
            f"sentinel monitor main localhost {server.port} 1\ntls-replication yes\ntls-ca-cert-file {trusted}\n"
            f"tls-cert-file {trusted}\ntls-key-file {trusted.with_suffix('.key')}\ntls-auth-clients no\n"
        )
        sentinel = StateServer(free_port(), config=file)
        await sentinel.start()
        stack.push_async_callback(sentinel.kill)
        for query, is_used in (f"?ssl_ca_certs={trusted}", True), ("", False):
            link = await stack.enter_async_context(
                linked(f"valkeys+sentinel://localhost:{sentinel.port}/main/0{query}")
            )
            if is_used:
                await until_run(link, ("PING",))
            else:
                with pytest.raises(StateAway, match="certificate verify failed"):
                    await link.run(PING)
