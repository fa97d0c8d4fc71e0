"""What waits for a server, or is subscribed to it, while a new configuration replaces it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from mcp_workbench.engine.config.model import FaceName, ServerConfig
from mcp_workbench.errors import DownstreamError
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import (
    ERAS,
    META,
    Client,
    InProcessWorkbench,
    Request,
    in_process_workbench,
    settled,
    until,
)

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
URIS = ["test:///one", "test:///two"]


async def change(workbench: InProcessWorkbench, **servers: tuple[str, ...] | None) -> None:
    """Put a configuration in force in which these servers have other arguments; None removes one."""
    config = workbench.gateway.config
    box = config.toolboxes["box"]
    changed: dict[str, ServerConfig] = {}
    for name, server in box.servers.items():
        args = servers.get(name, server.args)
        if args is not None:
            changed[name] = replace(server, args=args)
    await workbench.gateway.apply(replace(config, toolboxes={"box": replace(box, servers=changed)}))


async def subscribe(client: Client, server: FakeServer) -> Request | None:
    """Subscribe to two resources. Returns the stream of a modern client."""
    if client.era == "modern":
        stream = client.send_request("subscriptions/listen", {"notifications": {"resourceSubscriptions": URIS}})
        await until(lambda: bool(client.told(ACKNOWLEDGED)))
        assert client.told(ACKNOWLEDGED)[0]["notifications"] == {"resourceSubscriptions": URIS}
        return stream
    for uri in URIS:
        request = client.send_request("resources/subscribe", {"uri": uri})
        await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
        assert request.result == {}
    return None


def subscribed(server: FakeServer) -> list[str]:
    """The resources that a server was asked to report."""
    if server.era == "modern":
        found: list[str] = server.listening_to().get("resourceSubscriptions", [])
        return found
    ended = [each["params"]["uri"] for each in server.requests("resources/unsubscribe")]
    begun = [each["params"]["uri"] for each in server.requests("resources/subscribe")]
    return sorted(uri for uri in begun if uri not in ended)


def updates(client: Client) -> list[str]:
    return [each["uri"] for each in client.told(UPDATED)]


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
async def test_subscriptions_go_on_at_the_server_with_the_new_settings(client_era: str, server_era: str) -> None:
    async with in_process_workbench("", servers={"other": "legacy", "server": server_era}) as workbench:
        client = workbench.client(client_era)
        before = await workbench.connect(client)
        stream = await subscribe(client, before)
        await change(workbench, server=("new",))
        servers = workbench.gateway.fake_servers
        await until(lambda: servers[-1] is not before and subscribed(servers[-1]) == URIS)
        await settled()
        assert servers[-1].connection.config.args == ("new",)
        servers[-1].notify(UPDATED, {"uri": URIS[1]})
        assert updates(client) == [URIS[1]]
        assert stream is None or stream.answer is None
        await until(lambda: before.is_stopped)
        if stream is None:
            request = client.send_request("resources/unsubscribe", {"uri": URIS[1]})
            await until(lambda: request.answer is not None)
        else:
            client.cancel(stream)
        await until(lambda: subscribed(servers[-1]) == ([URIS[0]] if stream is None else []))


@pytest.mark.parametrize("client_era", ERAS)
async def test_subscriptions_to_a_server_that_does_not_start_any_more_are_made_when_it_does(client_era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        client, gateway = workbench.client(client_era), workbench.gateway
        stream = await subscribe(client, await workbench.connect(client))
        failed = asyncio.Event()

        async def fail() -> None:
            failed.set()
            raise DownstreamError("it does not start")

        gateway.before_start = fail
        await change(workbench, server=("new",))
        await failed.wait()
        gateway.before_start = None
        await until(lambda: not any(each.is_running for each in gateway.runtime.pool.connections()))
        client.call()
        await until(lambda: len(gateway.fake_servers) == 2 and subscribed(gateway.fake_servers[-1]) == URIS)
        await settled()
        server = gateway.fake_servers[-1]
        server.notify(UPDATED, {"uri": URIS[1]})
        assert updates(client) == [URIS[1]]
        assert stream is None or stream.answer is None


@pytest.mark.parametrize("way", ["removed", "refused"])
async def test_a_stream_that_can_go_on_no_longer_ends_with_its_result(way: str) -> None:
    async with in_process_workbench("", servers={"other": "legacy", "server": "legacy"}) as workbench:
        client = workbench.client("modern")
        stream = await subscribe(client, await workbench.connect(client))
        assert stream is not None
        if way == "removed":
            await change(workbench, server=None)
        else:
            workbench.gateway.refused.add("resources/subscribe")
            await change(workbench, server=("new",))
        await until(lambda: stream.answer is not None)
        assert stream.result["_meta"] == {META + "subscriptionId": stream.id}
        assert not client.session.streams
        again = client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await until(lambda: len(client.told(ACKNOWLEDGED)) == 2)
        assert again.answer is None


@pytest.mark.parametrize("client_era", ERAS)
async def test_a_subscription_cancelled_during_a_restart_is_not_restored(client_era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        client, gateway = workbench.client(client_era), workbench.gateway
        stream = await subscribe(client, await workbench.connect(client))
        gate, started = asyncio.Event(), asyncio.Event()

        async def start_later() -> None:
            started.set()
            await gate.wait()

        gateway.before_start = start_later
        await change(workbench, server=("new",))
        await started.wait()
        if stream is None:
            request = client.send_request("resources/unsubscribe", {"uri": URIS[1]})
            await until(lambda: request.answer is not None)
        else:
            client.cancel(stream)
        gate.set()
        client.call()
        await until(lambda: len(gateway.fake_servers) == 2 and bool(gateway.fake_servers[-1].open_calls()))
        await settled()
        server = gateway.fake_servers[-1]
        kept = [URIS[0]] if stream is None else []
        await until(lambda: subscribed(server) == kept)
        (connection,) = [each for each in gateway.runtime.pool.connections() if each.is_running]
        assert connection.subscriptions.is_needed is bool(kept)


async def call_that_waits(workbench: InProcessWorkbench, client: Client) -> Request:
    """A call whose server never gets ready."""
    started = asyncio.Event()

    async def start_never() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    workbench.gateway.before_start = start_never
    request = client.call()
    await started.wait()
    workbench.gateway.before_start = None
    return request


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", ["proxy", "flat"])
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_call_that_waits_for_a_start_goes_to_the_server_with_the_new_settings(
    era: str, face: FaceName, is_known: bool
) -> None:
    async with in_process_workbench(era, servers={"other": era, "server": era}, face=face) as workbench:
        client, gateway = workbench.client(era), workbench.gateway
        if is_known:
            fake = await workbench.connect(client)
            fake.crash()
            await until(lambda: fake.is_stopped)
        started = len(gateway.fake_servers)
        request = await call_that_waits(workbench, client)
        await change(workbench, server=("new",))
        await until(lambda: len(workbench.unanswered()) == 1)
        called = [fake for fake in gateway.fake_servers[started:] if fake.open_calls()]
        (server,) = called
        assert server.connection.config.args == ("new",)
        server.reply(server.call, {"content": [{"type": "text", "text": "done"}]})
        assert request.result["content"] == [{"type": "text", "text": "done"}]
        assert workbench.is_clean()


async def test_a_call_that_was_sent_stays_at_the_server_that_has_it() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        request = client.call()
        await change(workbench, server=("new",))
        server.reply(server.call, {"content": []})
        assert request.result["content"] == []
        assert len(workbench.gateway.fake_servers) == 1, "nothing was sent to another"


@pytest.mark.parametrize("face", ["proxy", "flat"])
async def test_a_call_that_waits_for_the_start_of_a_removed_server_fails(face: FaceName) -> None:
    async with in_process_workbench("", servers={"other": "legacy", "server": "legacy"}, face=face) as workbench:
        client, gateway = workbench.client("legacy"), workbench.gateway
        request = await call_that_waits(workbench, client)
        await change(workbench, server=None)
        await until(lambda: request.answer is not None)
        assert "does not exist" in str(request.answer) or "unknown" in str(request.answer), request.answer
        assert gateway.fake_servers == []
