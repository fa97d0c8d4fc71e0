"""What servers tell without being asked, in every face: changed lists, changed resources, storms of both."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from mcp_workbench.engine.downstream import connection, server_subscriptions
from mcp_workbench.engine.face.view import View
from tests.faces.harness import ERAS, FACES, Bench, Seen
from tests.faces.memory import MemoryClient
from tests.support.client import Call, RpcError
from tests.support.processes import eventually
from tests.support.workbench import logged

every_face = pytest.mark.parametrize("face", FACES)
every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("server_era", ERAS)

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
ALL_LISTS = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
# What adds one more to a list, which notification tells of it, and where the new one is seen.
CHANGES = {
    "tools": ("change_tools", {"name": "late"}, "tools/list"),
    "prompts": ("change_offers", {"kind": "prompts", "name": "late"}, "prompts/list"),
    "resources": ("change_offers", {"kind": "resources", "name": "late"}, "resources/list"),
    "templates": ("change_offers", {"kind": "resourceTemplates", "name": "late"}, "resources/templates/list"),
}


def offering(server_era: str = "dual", *flags: object) -> dict[str, Any]:
    return {"box": {"server": ("--era", server_era, "--offers", "test", *flags)}}


async def listen(seen: Seen, **wanted: Any) -> Call:
    before = len(seen.client.received(ACKNOWLEDGED))
    stream = await seen.client.start("subscriptions/listen", {"notifications": wanted})
    await seen.client.wait_notification(ACKNOWLEDGED, before + 1)
    return stream


def view_of(seen: Seen) -> View:
    assert isinstance(seen.client, MemoryClient)
    return seen.client.session.view


def told(seen: Seen, kind: str) -> list[Any]:
    return seen.client.received(f"notifications/{kind}/list_changed")


@pytest.mark.requirement("changes.tools", "changes.prompts", "changes.resources")
@every_face
@every_client
@every_server
@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_list_is_reported_and_then_shown(
    bench: Bench, face: str, era: str, server_era: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, arguments, method = CHANGES[change]
    kind = "resources" if change == "templates" else change
    if kind != "tools" or face != "proxy":
        # That several changes are fetched together has a test of its own. Where one is noted with the next result, that
        # must not be the result of the call that makes the change.
        monkeypatch.setattr(connection, "REFRESH_PAUSE", 0.0)
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        before = await seen.names(method)
        stream = await listen(seen, **ALL_LISTS) if era == "modern" else None
        await seen.call(tool, arguments)
        if kind == "tools" and face == "proxy":
            await eventually(lambda: bool(view_of(seen).changed), what="a note about the change")
            assert told(seen, "tools") == []
            return
        (params,) = await seen.client.wait_notification(f"notifications/{kind}/list_changed")
        assert params == ({} if stream is None else {"_meta": {SUBSCRIPTION: stream.id}})
        after = await seen.names(method)
        assert after[: len(before)] == before
        assert len(after) == len(before) + 1 and "late" in after[-1]
        others = {"tools", "prompts", "resources"} - {kind}
        assert [other for other in others if told(seen, other)] == []


@pytest.mark.requirement("changes.proxy")
@every_client
@every_server
async def test_the_proxy_face_tells_of_a_changed_toolbox_with_the_next_result(
    bench: Bench, era: str, server_era: str
) -> None:
    boxes = {"one": {"server": ("--era", server_era)}, "two": {"server": ("--era", server_era)}}
    async with bench.within(boxes, "proxy", era) as seen:
        for toolbox in boxes:
            assert "changed" not in (await seen.open(toolbox))["structuredContent"]
        listed = await seen.client.request("tools/list")
        plain = await seen.call("all_content", toolbox="one")

        async def change(toolbox: str, name: str) -> None:
            await seen.call("change_tools", {"name": name}, toolbox=toolbox)
            await eventually(lambda: toolbox in view_of(seen).changed, what="a note about the change")

        await change("one", "late")
        noted = await seen.call("all_content", toolbox="two")
        assert noted["content"][:-1] == plain["content"]
        assert "one" in noted["content"][-1]["text"] and "open_toolbox" in noted["content"][-1]["text"]
        assert noted["_meta"]["mcp-workbench/changed"] == ["one"]
        assert noted["structuredContent"] == plain["structuredContent"]
        assert await seen.call("all_content", toolbox="two") == plain, "it is told once"

        await change("one", "later")
        opened = (await seen.open("two"))["structuredContent"]
        assert opened["changed"] == ["one"]
        await change("one", "latest")
        opened = (await seen.open("one"))["structuredContent"]
        assert "changed" not in opened, "what was asked for is there"
        assert {"late", "later", "latest"} <= {tool["name"] for tool in opened["tools"]}
        assert await seen.client.request("tools/list") == listed


@pytest.mark.requirement("changes.storm")
@every_face
@every_client
@every_server
async def test_a_storm_of_changes_costs_one_listing_and_one_notification(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    log = bench.path("log")
    async with bench.within(offering(server_era, "--log", log), face, era) as seen:
        await seen.open()
        await seen.names("tools/list")
        if era == "modern":
            await listen(seen, **ALL_LISTS)
        before = len(logged(log, "tools/list"))
        await seen.call("change_tools", {"name": "late", "times": 10_000})
        if face == "proxy":
            await eventually(lambda: len(logged(log, "tools/list")) > before, what="another listing")
        else:
            await seen.client.wait_notification("notifications/tools/list_changed")
        assert len(logged(log, "tools/list")) == before + 1
        assert len(told(seen, "tools")) == (0 if face == "proxy" else 1)


@pytest.mark.requirement("changes.rate")
@pytest.mark.parametrize("face", ["flat", "dynamic"])
async def test_changes_one_after_the_other_are_told_at_most_once_a_second(bench: Bench, face: str) -> None:
    async with bench.within(offering(), face) as seen:
        await seen.open()
        await seen.names("tools/list")

        def knows(name: str) -> bool:
            return name in seen.gateway.catalog.toolboxes["box"]["server"].tools

        for number in range(4):
            await seen.call("change_tools", {"name": f"late{number}"})
            await eventually(partial(knows, f"late{number}"), what="the new tool")
        # Four changes, each listed for itself, in less than a second.
        assert len(told(seen, "tools")) <= 1
        await seen.client.wait_notification("notifications/tools/list_changed")
        assert "late3" in (await seen.names("tools/list"))[-1]
        assert len(told(seen, "tools")) <= 2


@pytest.mark.requirement("changes.equal")
@pytest.mark.parametrize("face", ["flat", "dynamic"])
@every_client
@every_server
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_list_that_is_announced_as_changed_is_told_also_when_it_is_equal_again(
    bench: Bench, face: str, era: str, server_era: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFRESH_PAUSE", 0.0)
    log = bench.path("log")
    async with bench.within(offering(server_era, "--log", log), face, era) as seen:
        await seen.open()
        shown = await seen.client.request(f"{kind}/list")
        if era == "modern":
            await listen(seen, **ALL_LISTS)
        revision, before = seen.gateway.catalog.revision, len(logged(log, f"{kind}/list"))
        await seen.call("notify", {"method": f"notifications/{kind}/list_changed"})
        await seen.client.wait_notification(f"notifications/{kind}/list_changed")
        assert len(logged(log, f"{kind}/list")) == before + 1, "fetched before it is told"
        assert seen.gateway.catalog.revision == revision, "nothing is computed anew"
        assert await seen.client.request(f"{kind}/list") == shown
        assert [other for other in {"tools", "prompts", "resources"} - {kind} if told(seen, other)] == []


@pytest.mark.requirement("changes.nothing")
@pytest.mark.parametrize("face", ["proxy"])
async def test_the_proxy_face_does_not_announce_a_list_that_only_claims_to_have_changed(
    bench: Bench, face: str
) -> None:
    log = bench.path("log")
    async with bench.within(offering("legacy", "--log", log), face) as seen:
        await seen.open()
        await seen.names("tools/list")
        before = len(logged(log, "tools/list"))
        await seen.call("notify", {"method": "notifications/tools/list_changed"})
        await eventually(lambda: len(logged(log, "tools/list")) > before, what="another listing")
        # What comes later and is announced shows that the first one has been dealt with.
        await seen.names("prompts/list")
        await seen.call("change_offers", {"kind": "prompts", "name": "late"})
        await seen.client.wait_notification("notifications/prompts/list_changed")
        assert told(seen, "tools") == []


@pytest.mark.requirement("changes.proxy", "subscriptions.listen")
async def test_the_two_tools_can_change_with_the_configuration_and_that_is_acknowledged(bench: Bench) -> None:
    async with bench.within(offering(), "proxy", "modern") as seen:
        stream = await listen(seen, **ALL_LISTS)
        (acknowledged,) = seen.client.received(ACKNOWLEDGED)
        assert acknowledged == {
            "notifications": {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
            "_meta": {SUBSCRIPTION: stream.id},
        }


# Resources that are watched


@pytest.mark.requirement("resources.subscribe", "resources.unsubscribe")
@every_face
@every_server
async def test_a_legacy_client_is_notified_only_of_its_subscriptions(bench: Bench, face: str, server_era: str) -> None:
    async with bench.within(offering(server_era), face) as seen:
        await seen.open()
        assert await seen.client.request("resources/subscribe", {"uri": "test:///one"}) == {}
        for uri in ("test:///two", "test:///one"):
            await seen.call("update_resource", {"uri": uri})
        assert await seen.client.wait_notification(UPDATED) == [{"uri": "test:///one", "x-unknown": 1}]
        assert await seen.client.request("resources/unsubscribe", {"uri": "test:///one"}) == {}
        await seen.call("update_resource", {"uri": "test:///one"})
        await seen.call("count")
        assert len(seen.client.received(UPDATED)) == 1


@pytest.mark.requirement("resources.subscribe", "resources.unsubscribe", "resources.collisions")
@every_client
@every_server
async def test_twins_are_distinguished_by_the_addresses_that_the_client_subscribed_to(
    bench: Bench, era: str, server_era: str
) -> None:
    twin = offering(server_era)["box"]["server"]
    one, two = (f"workbench://resources/{box}/server/test:///one" for box in ("one", "two"))
    async with bench.within({"one": {"server": twin}, "two": {"server": twin}}, "proxy", era) as seen:
        await seen.open("one")
        await seen.open("two")
        stream = None
        if era == "legacy":
            for address in (one, two):
                assert await seen.client.request("resources/subscribe", {"uri": address}) == {}
        else:
            await listen(seen, resourceSubscriptions=[one])
            stream = await listen(seen, resourceSubscriptions=[two])
            granted = [each["notifications"]["resourceSubscriptions"] for each in seen.client.received(ACKNOWLEDGED)]
            assert granted == [[one], [two]]
        for box in ("two", "one"):
            await seen.call("update_resource", {"uri": "test:///one"}, toolbox=box)
        updates = await seen.client.wait_notification(UPDATED, 2)
        assert sorted(each["uri"] for each in updates) == [one, two]
        assert all(each["x-unknown"] == 1 for each in updates)
        if stream is None:
            await seen.client.request("resources/unsubscribe", {"uri": two})
        else:
            await seen.client.cancel(stream)
            await seen.call("count", toolbox="two")
        for box in ("two", "one"):
            await seen.call("update_resource", {"uri": "test:///one"}, toolbox=box)
        await seen.client.wait_notification(UPDATED, 3)
        await seen.call("count", toolbox="two")
        assert [each["uri"] for each in seen.client.received(UPDATED)[2:]] == [one]


@pytest.mark.requirement("resources.subscribe", "subscriptions.listen")
@every_face
@every_server
async def test_a_modern_client_is_told_on_the_stream_that_it_opened(bench: Bench, face: str, server_era: str) -> None:
    boxes = {"box": {**offering(server_era)["box"], "other": ("--offers", "other")}}
    async with bench.within(boxes, face, "modern") as seen:
        await seen.open()
        first = await listen(seen, resourceSubscriptions=["test:///one", "nowhere:///x"])
        second = await listen(seen, resourceSubscriptions=["test:///one", "test:///item/7"], promptsListChanged=True)
        assert seen.client.received(ACKNOWLEDGED) == [
            {"notifications": {"resourceSubscriptions": ["test:///one"]}, "_meta": {SUBSCRIPTION: first.id}},
            {
                "notifications": {
                    "resourceSubscriptions": ["test:///one", "test:///item/7"],
                    "promptsListChanged": True,
                },
                "_meta": {SUBSCRIPTION: second.id},
            },
        ]
        await seen.call("update_resource", {"uri": "test:///one"})
        await seen.call("update_resource", {"uri": "test:///item/7"})
        updates = await seen.client.wait_notification(UPDATED, 3)
        one, seven = ({"uri": uri, "x-unknown": 1} for uri in ("test:///one", "test:///item/7"))
        assert sorted(updates, key=lambda params: (params["uri"], params["_meta"][SUBSCRIPTION])) == [
            {**seven, "_meta": {SUBSCRIPTION: second.id}},
            {**one, "_meta": {SUBSCRIPTION: first.id}},
            {**one, "_meta": {SUBSCRIPTION: second.id}},
        ]
        await seen.client.cancel(second)
        await seen.call("count")
        await seen.call("update_resource", {"uri": "test:///item/7"})
        await seen.call("update_resource", {"uri": "test:///one"})
        await seen.client.wait_notification(UPDATED, 4)
        assert [params["_meta"] for params in seen.client.received(UPDATED)[3:]] == [{SUBSCRIPTION: first.id}]
        assert not first.answered and not second.answered


@pytest.mark.requirement("resources.subscribe")
@every_face
@every_client
@every_server
async def test_a_subscription_outlives_a_crash_of_its_server(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with bench.within(offering(server_era), face, era) as seen:
        await seen.open()
        if era == "modern":
            await listen(seen, resourceSubscriptions=["test:///one"])
        else:
            await seen.client.request("resources/subscribe", {"uri": "test:///one"})
        await seen.call("crash")
        await seen.call("count")
        # Subscribing again happens behind the first call; there is nothing to see of it but the update.
        async with asyncio.timeout(20):
            while not seen.client.received(UPDATED):
                await seen.call("update_resource", {"uri": "test:///one"})
                await asyncio.sleep(0.01)


@pytest.mark.requirement("resources.subscribe")
@every_face
async def test_a_subscription_that_a_server_refuses_is_refused(bench: Bench, face: str) -> None:
    boxes = {"box": {"server": ("--era", "legacy", "--offers", "test"), "other": ("--offers", "other")}}
    async with bench.within(boxes, face) as seen:
        await seen.open()
        for uri, code in (("test:///file/forbidden", -32000), ("nowhere:///x", -32002)):
            with pytest.raises(RpcError) as caught:
                await seen.client.request("resources/subscribe", {"uri": uri})
            assert (caught.value.code, caught.value.data) == (code, {"uri": uri})


@pytest.mark.requirement("subscriptions.listen")
@every_face
async def test_a_stream_carries_only_notifications_in_its_filter(bench: Bench, face: str) -> None:
    async with bench.within(offering(), face, "modern") as seen:
        await seen.open()
        stream = await listen(seen, promptsListChanged=True)
        await seen.call("change_tools", {"name": "late"})
        await seen.call("change_offers", {"kind": "resources", "name": "late"})
        await seen.call("change_offers", {"kind": "prompts", "name": "late"})
        await seen.client.wait_notification("notifications/prompts/list_changed")
        assert {message["method"] for message in seen.client.notifications} == {
            ACKNOWLEDGED,
            "notifications/prompts/list_changed",
        }
        assert not stream.answered
        for wanted in (None, 5):
            with pytest.raises(RpcError, match="-32602"):
                await seen.client.request("subscriptions/listen", {"notifications": wanted})


@pytest.mark.requirement("subscriptions.server-ends")
@every_face
@every_client
async def test_a_stream_that_a_server_ends_is_opened_again(
    bench: Bench, face: str, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_subscriptions, "LISTEN_AGAIN_AFTER", 0.0)
    async with bench.within(offering("modern"), face, era) as seen:
        await seen.open()
        if era == "modern":
            await listen(seen, resourceSubscriptions=["test:///one"])
        else:
            await seen.client.request("resources/subscribe", {"uri": "test:///one"})
        await seen.call("end_subscriptions")
        async with asyncio.timeout(20):
            while not seen.client.received(UPDATED):
                await seen.call("update_resource", {"uri": "test:///one"})
                await asyncio.sleep(0.05)


@pytest.mark.requirement("subscriptions.shared")
@every_server
async def test_two_clients_that_subscribe_to_the_same_cost_one_subscription(bench: Bench, server_era: str) -> None:
    log = bench.path("log")
    async with bench.within(offering(server_era, "--log", log), "flat") as seen:
        await seen.open()
        async with MemoryClient.of(seen.gateway) as other:
            await other.initialize()
            for client in (seen.client, other):
                await client.request("resources/subscribe", {"uri": "test:///one"})
            await seen.call("update_resource", {"uri": "test:///one"})
            for client in (seen.client, other):
                await client.wait_notification(UPDATED)
        await seen.call("count")
        await seen.call("update_resource", {"uri": "test:///one"})
        await seen.client.wait_notification(UPDATED, 2)
        assert len(other.received(UPDATED)) == 1
    if server_era == "legacy":
        assert len(logged(log, "resources/subscribe")) == 1
