"""What is told without being asked for: logs, changed lists, changed resources, roots; and signs of life."""

from __future__ import annotations

import pytest

from tests.bridge.in_process import ERAS, META, Client, Json, in_process_workbench, settled, until
from tests.support.refusals import refused

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOG_LEVEL = META + "logLevel"
SUBSCRIPTION = META + "subscriptionId"


# Logs


def log(client: Client) -> list[object]:
    return [message["data"] for message in client.told("notifications/message")]


@pytest.mark.bridge("logging")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_modern_client_gets_the_log_of_a_request_that_asked_for_it(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        client.call(meta={LOG_LEVEL: "warning"})
        for level in LEVELS:
            server.notify("notifications/message", {"level": level, "data": level})
        assert log(client) == list(LEVELS[3:])
        if server_era == "modern":
            assert server.call["params"]["_meta"][LOG_LEVEL] == "warning"
        else:
            assert [each["params"] for each in server.requests("logging/setLevel")] == [{"level": "warning"}]
            assert "_meta" not in server.call["params"]


@pytest.mark.bridge("logging")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_modern_client_that_did_not_ask_gets_none(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        client.call()
        server.notify("notifications/message", {"level": "emergency", "data": 1})
        assert log(client) == []
        server.reply(server.call, {"content": []})
        server.notify("notifications/message", {"level": "emergency", "data": 1})
        assert log(client) == []


@pytest.mark.bridge("logging")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_level_that_is_none_is_refused(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("modern")
        legacy = workbench.client("legacy")
        await workbench.connect(client)
        await refused(workbench, lambda: client.call(meta={LOG_LEVEL: "loud"}), -32602)
        await refused(workbench, lambda: legacy.send_request("logging/setLevel", {"level": "loud"}), -32602)


@pytest.mark.bridge("logging")
async def test_a_legacy_server_is_asked_for_the_most_that_anybody_wants_and_each_gets_its_own() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        for level in ("error", "debug", "info"):
            client.call(meta={LOG_LEVEL: level})
        assert [each["params"]["level"] for each in server.requests("logging/setLevel")] == ["error", "debug"]
        server.notify("notifications/message", {"level": "debug", "data": "too much for the youngest"})
        server.notify("notifications/message", {"level": "info", "data": "enough"})
        assert log(client) == ["enough"]


@pytest.mark.bridge("logging")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_legacy_client_sets_its_level_once(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        assert client.send_request("logging/setLevel", {"level": "error"}).result == {}
        client.call()
        client.call(meta={"a": 1})
        if server_era == "legacy":
            assert [each["params"] for each in server.requests("logging/setLevel")] == [{"level": "error"}]
        else:
            assert [call["params"]["_meta"][LOG_LEVEL] for call in server.open_calls()] == ["error", "error"]
        for level in ("warning", "error"):
            server.notify("notifications/message", {"level": level, "data": level})
        assert log(client) == ["error"]


@pytest.mark.bridge("logging")
async def test_a_legacy_client_without_a_log_level_gets_all_log_messages() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.call()
        server.notify("notifications/message", {"level": "debug", "data": 1})
        server.reply(server.call, {"content": []})
        server.notify("notifications/message", {"level": "debug", "data": 2})
        assert log(client) == [1, 2]


# Lists


@pytest.mark.bridge("list-changes")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_changed_list_is_reported_in_the_way_of_the_client(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era, use_cache=True) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        listed = client.send_request("tools/list")
        await until(lambda: listed.answer is not None)
        stream = None
        if client_era == "modern":
            stream = client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
        server.offers["tools/list"]["tools"].append({"name": "new", "inputSchema": {"type": "object"}})
        server.notify("notifications/tools/list_changed")
        await until(lambda: bool(client.told("notifications/tools/list_changed")))
        (told,) = client.told("notifications/tools/list_changed")
        assert told == ({} if stream is None else {"_meta": {SUBSCRIPTION: stream.id}})
        names = [tool["name"] for tool in client.send_request("tools/list").result["tools"]]
        assert "box:server:new" in names


# Resources


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("client_era", ERAS)
async def test_a_changed_resource_with_odd_meta_is_reported_without_it(client_era: str) -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        if client_era == "legacy":
            asked = client.send_request("resources/subscribe", {"uri": "test:///one"})
            await until(lambda: asked.answer is not None)
        else:
            wanted = {"notifications": {"resourceSubscriptions": ["test:///one"]}}
            client.send_request("subscriptions/listen", wanted)
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
        server.notify("notifications/resources/updated", {"uri": "test:///one", "_meta": []})
        (told,) = client.told("notifications/resources/updated")
        assert told["uri"] == "test:///one" and told.get("_meta") != []


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_changed_resource_is_reported_in_the_way_of_the_client(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        wanted = ["test:///one"]
        if client_era == "legacy":
            stream = client.send_request("resources/subscribe", {"uri": wanted[0]})
            await until(lambda: stream.answer is not None)
            assert stream.result == {}
        else:
            stream = client.send_request("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
            (acknowledged,) = client.told("notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == {"resourceSubscriptions": wanted}
            assert acknowledged["_meta"] == {SUBSCRIPTION: stream.id}
        if server_era == "legacy":
            assert [each["params"] for each in server.requests("resources/subscribe")] == [{"uri": wanted[0]}]
            server.notify("notifications/resources/updated", {"uri": wanted[0], "kept": 1})
        else:
            listening = server.requests("subscriptions/listen")[-1]
            assert listening["params"]["notifications"]["resourceSubscriptions"] == wanted
            stamp = {SUBSCRIPTION: listening["id"]}
            server.notify("notifications/resources/updated", {"uri": wanted[0], "kept": 1, "_meta": stamp})
        told: Json = {"uri": wanted[0], "kept": 1}
        if client_era == "modern":
            told["_meta"] = {SUBSCRIPTION: stream.id}
        assert client.told("notifications/resources/updated") == [told]


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_subscription_ends_with_its_last_subscriber(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        if client_era == "legacy":
            subscribed = client.send_request("resources/subscribe", {"uri": "test:///one"})
            await until(lambda: subscribed.answer is not None)
            client.send_request("resources/unsubscribe", {"uri": "test:///one"})
        else:
            wanted = {"notifications": {"resourceSubscriptions": ["test:///one"]}}
            stream = client.send_request("subscriptions/listen", wanted)
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
            client.cancel(stream)
        if server_era == "legacy":
            await until(lambda: bool(server.requests("resources/unsubscribe")))
            assert server.requests("resources/unsubscribe")[0]["params"] == {"uri": "test:///one"}
        else:
            await until(lambda: "resourceSubscriptions" not in server.listening_to())


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("client_era", ERAS)
async def test_an_update_that_a_server_reports_on_an_old_and_a_new_stream_is_reported_once(
    client_era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        uris = ["test:///one", "test:///two"]
        answer_by_itself = server._answer_by_itself
        streams: list[object] = []

        def report_one(when: str) -> None:
            for id in streams:
                params = {"uri": "test:///one", "when": when, "_meta": {SUBSCRIPTION: id}}
                server.notify("notifications/resources/updated", params)

        def answer(message: Json) -> None:
            if message["method"] == "subscriptions/listen":
                report_one(f"before {len(streams)}")
                answer_by_itself(message)
                streams.append(message["id"])
                report_one(f"after {len(streams)}")
            else:
                answer_by_itself(message)

        monkeypatch.setattr(server, "_answer_by_itself", answer)
        for number, uri in enumerate(uris, 1):
            if client_era == "legacy":
                client.send_request("resources/subscribe", {"uri": uri})
            else:
                client.send_request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
            await until(lambda number=number: len(streams) == number)  # type: ignore[misc]
            await settled()
        # The server has not read yet that the first stream has ended.
        report_one("later")
        told = [(each["uri"], each["when"]) for each in client.told("notifications/resources/updated")]
        assert told == [("test:///one", when) for when in ("after 1", "before 1", "after 2", "later")]


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
async def test_an_update_of_a_part_is_sent_once_to_a_subscriber_of_both(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        uris = ["test:///one", "test:///one/part"]
        offers = [{"uri": uri, "name": uri} for uri in uris]
        server.offers["resources/list"] = {"resources": offers}
        server.notify("notifications/resources/list_changed")
        if client_era == "legacy":
            asked = [client.send_request("resources/subscribe", {"uri": uri}) for uri in uris]
            await until(lambda: all(each.answer is not None for each in asked))
        else:
            client.send_request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
        server.notify("notifications/resources/updated", {"uri": uris[1]})
        assert [each["uri"] for each in client.told("notifications/resources/updated")] == [uris[1]]


# The rest


@pytest.mark.bridge("ping")
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_signs_of_life_are_given_on_each_side_of_us(client_era: str, server_era: str) -> None:
    """A client wants to know whether we are there, a server the same: neither is asked for the other."""
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        assert (server.answer_to(server.ask("ping")) or {})["result"] == {}
        assert client.received == []
        ping = client.send_request("ping")
        if client_era == "legacy":
            assert ping.result == {}
        else:
            assert ping.error["code"] == -32601, "the modern era has none"
        assert server.requests("ping") == []


@pytest.mark.bridge("roots-changes")
@pytest.mark.parametrize("server_era", ERAS)
async def test_changed_roots_are_told_to_servers_that_would_remember_them(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("legacy")
        server = await workbench.connect(client)
        client.notify("notifications/roots/list_changed", {"kept": 1})
        expected: list[Json] = [{"kept": 1}] if server_era == "legacy" else []
        assert server.told("notifications/roots/list_changed") == expected
        modern = workbench.client("modern", {"roots": {}})
        other = await workbench.connect(modern)
        client.notify("notifications/roots/list_changed")
        assert other.told("notifications/roots/list_changed") == [], "they are not its client's"


@pytest.mark.bridge("resource-subscriptions", "list-changes")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_first_request_that_listens_waits_for_the_servers_that_have_the_resources(server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client("modern")
        wanted = {"resourceSubscriptions": ["test:///one"], "resourcesListChanged": True}
        client.send_request("subscriptions/listen", {"notifications": wanted})
        await until(lambda: bool(client.received))
        acknowledged = client.received[0]
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged", "nothing comes before it"
        assert acknowledged["params"]["notifications"] == wanted
        (server,) = workbench.gateway.fake_servers
        server.notify("notifications/resources/updated", {"uri": "test:///one"})
        assert [each["uri"] for each in client.told("notifications/resources/updated")] == ["test:///one"]


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("client_era", ERAS)
async def test_a_modern_server_is_told_whose_subscriptions_they_are(client_era: str) -> None:
    """Another workbench holds clients with different capabilities on different connections to its servers."""
    async with in_process_workbench("modern") as workbench:
        declared: list[Json] = [{}, {"elicitation": {}}]
        clients = [workbench.client(client_era, capabilities) for capabilities in declared]
        server = await workbench.connect(clients[0])
        for client in clients:
            if client_era == "modern":
                client.send_request(
                    "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["test:///one"]}}
                )
                await until(lambda client=client: bool(client.told("notifications/subscriptions/acknowledged")))  # type: ignore[misc]
            else:
                request = client.send_request("resources/subscribe", {"uri": "test:///one"})
                await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
        over = {each["requestId"] for each in server.told("notifications/cancelled")}
        streams = [each for each in server.requests("subscriptions/listen") if each["id"] not in over]
        plain, asked = (each for each in streams if "resourceSubscriptions" in each["params"]["notifications"])
        assert plain["params"]["_meta"][META + "clientCapabilities"] == {}
        assert asked["params"]["_meta"][META + "clientCapabilities"] == {"elicitation": {}}
        assert asked["params"]["notifications"] == {"resourceSubscriptions": ["test:///one"]}
        server.notify("notifications/resources/updated", {"uri": "test:///one", "_meta": {SUBSCRIPTION: asked["id"]}})
        assert [len(client.told("notifications/resources/updated")) for client in clients] == [0, 1]
        server.notify("notifications/resources/updated", {"uri": "test:///one"})
        assert [len(client.told("notifications/resources/updated")) for client in clients] == [1, 2]
        for client in clients:
            client.session.leave()
        await until(lambda: server.listening_to() == {"toolsListChanged": True})
        over = {each["requestId"] for each in server.told("notifications/cancelled")}
        assert asked["id"] in over


@pytest.mark.bridge("resource-subscriptions")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
async def test_the_meta_of_an_update_reaches_the_client(client_era: str, server_era: str) -> None:
    async with in_process_workbench(server_era) as workbench:
        client = workbench.client(client_era)
        server = await workbench.connect(client)
        wanted = {"notifications": {"resourceSubscriptions": ["test:///one"]}}
        if client_era == "modern":
            request = client.send_request("subscriptions/listen", wanted)
            await until(lambda: bool(client.told("notifications/subscriptions/acknowledged")))
        else:
            request = client.send_request("resources/subscribe", {"uri": "test:///one"})
            await until(lambda: request.answer is not None)
        meta = {SUBSCRIPTION: 77, "x-kept": {"a": 1}}
        server.notify("notifications/resources/updated", {"uri": "test:///one", "_meta": meta})
        own = {SUBSCRIPTION: request.id} if client_era == "modern" else {}
        assert client.told("notifications/resources/updated") == [
            {"uri": "test:///one", "_meta": {"x-kept": {"a": 1}, **own}}
        ]


@pytest.mark.bridge("tasks")
async def test_states_of_tasks_are_refused_to_clients_without_the_extension() -> None:
    tasks: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("modern", {"extensions": {"com.example/other": {}}})
        wanted = {"notifications": {"toolsListChanged": True, "taskIds": ["one"]}}
        error = client.send_request("subscriptions/listen", wanted).error
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": tasks})
        assert client.told("notifications/subscriptions/acknowledged") == [] and not client.session.streams
        capable = workbench.client("modern", tasks)
        capable.send_request("subscriptions/listen", wanted)
        await until(lambda: bool(capable.told("notifications/subscriptions/acknowledged")))
        (granted,) = capable.told("notifications/subscriptions/acknowledged")
        assert granted["notifications"] == {"toolsListChanged": True}, "what is not sent is not promised"
