"""The face `dynamic`: opening a toolbox registers its tools, under names that never change."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import pytest

from mcp_workbench.app.gateway import Options
from mcp_workbench.engine.config.load import load
from mcp_workbench.errors import ConfigError
from tests.faces.harness import ERAS, Bench, Seen, error_text, introduce
from tests.faces.memory import MemoryClient, MemoryGateway
from tests.support.client import Json, RpcError
from tests.support.processes import eventually
from tests.support.shared_state import SharedServer, SharedState
from tests.support.workbench import logged

every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("server_era", ERAS)
CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def registered(opened: Json) -> Json:
    """What `open_toolbox` answered: the same as structure and as text."""
    content: Json = opened["structuredContent"]
    assert json.loads(opened["content"][0]["text"]) == content
    return content


async def failure(seen: Seen, name: str) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await seen.client.call_tool(name)
    return caught.value


@pytest.mark.requirement("dynamic.start", "instructions.toolboxes")
@every_client
async def test_at_first_there_is_one_tool_and_nothing_is_started(bench: Bench, era: str) -> None:
    boxes = {"dev": {"git": (), "files": ()}, "ops": {"git": ()}}
    async with bench.within(boxes, "dynamic", era) as seen:
        (tool,) = (await seen.client.request("tools/list"))["tools"]
        assert (tool["name"], tool["inputSchema"]["required"]) == ("open_toolbox", ["toolbox_name"])
        told = await (seen.client.discover() if era == "modern" else seen.client.initialize())
        assert told["capabilities"]["tools"] == {"listChanged": True}
        for expected in ("dev", "Toolbox dev.", "git", "files", "ops", "open_toolbox", "__"):
            assert expected in told["instructions"]
        assert seen.gateway.started == []


@pytest.mark.requirement("dynamic.register", "dynamic.answer", "dynamic.description", "dynamic.names")
@every_client
@every_server
async def test_opening_registers_the_tools_and_answers_with_them(bench: Bench, era: str, server_era: str) -> None:
    flags = ("--era", server_era, "--tool-names", "echo,read_file")
    async with bench.within({"dev": {"files": flags}}, "dynamic", era) as seen:
        content = registered(await seen.open("dev"))
        assert content["toolbox"] == "dev"
        assert content["tools"][1] == {
            "name": "dev__files_read_file",
            "original_name": "read_file",
            "server": "files",
            "toolbox_name": "dev",
            "description": "[dev/files] The arguments, with everything around them that a middleman must not lose.",
            "title": "Read File",
        }
        listed = (await seen.client.request("tools/list"))["tools"]
        assert [tool["name"] for tool in listed] == ["open_toolbox", *(tool["name"] for tool in content["tools"])]
        assert listed[2]["description"] == content["tools"][1]["description"]
        metadata = {key: content["tools"][1][key] for key in ("name", "original_name", "server", "toolbox_name")}
        assert listed[2]["_meta"] == {
            "example.test/tool": "read_file",
            "ui": {"resourceUri": "ui://test/view.html"},
            "mcp-workbench/tool": metadata,
        }
        called = await seen.client.call_tool("dev__files_read_file", {"n": 1})
        assert called["structuredContent"] == {"n": 1}
        assert called["_meta"]["example.test/echo"] == "read_file"


@pytest.mark.requirement("dynamic.announce", "subscriptions.listen")
@every_client
@every_server
async def test_opening_is_announced_once(bench: Bench, era: str, server_era: str) -> None:
    async with bench.within({"dev": {"files": ("--era", server_era)}}, "dynamic", era) as seen:
        await seen.names("tools/list")
        stream = None
        if era == "modern":
            stream = await seen.client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await seen.client.wait_notification("notifications/subscriptions/acknowledged")
        await seen.open("dev")
        told = await seen.client.wait_notification(CHANGED)
        assert told == [{} if stream is None else {"_meta": {SUBSCRIPTION: stream.id}}]
        first = await seen.client.request("tools/list")
        assert registered(await seen.open("dev")) == registered(await seen.open("dev"))
        assert await seen.client.request("tools/list") == first
        assert len(seen.client.received(CHANGED)) == 1


@pytest.mark.requirement("dynamic.idempotent", "dynamic.several", "dynamic.names")
@every_client
async def test_names_are_stable_with_several_open_toolboxes(bench: Bench, era: str) -> None:
    log = bench.path("log")
    flags = ("--tool-names", "echo,count", "--log", log)
    boxes = {"dev": {"files": flags}, "prod": {"files": flags}, "test": {"files": flags}}
    async with bench.within(boxes, "dynamic", era) as seen:
        shown = ["open_toolbox"]
        for toolbox in ("prod", "dev", "prod"):
            await seen.open(toolbox)
            new = [f"{toolbox}__files_{tool}" for tool in ("echo", "count")]
            shown += [name for name in new if name not in shown]
            assert await seen.names("tools/list") == shown
        assert sorted(seen.gateway.started) == ["dev/files", "prod/files"]
        for toolbox, expected in (("dev", 1), ("dev", 2), ("prod", 1)):
            assert (await seen.call("count", server="files", toolbox=toolbox))["structuredContent"] == {
                "count": expected
            }
        assert [message["params"]["name"] for message in logged(log, "tools/call")] == ["count"] * 3


@pytest.mark.requirement("dynamic.idempotent")
async def test_opening_at_the_same_time_shares_one_attempt(bench: Bench) -> None:
    async with bench.within({"dev": {"files": ()}}, "dynamic") as seen:
        gate = seen.gateway.close_gate("dev/files")
        calls = [await seen.client.start_tool("open_toolbox", {"toolbox_name": "dev"}) for _ in range(5)]
        await seen.gateway.wait_for_arrivals(1)
        gate.set()
        results = [await call.result() for call in calls]
        assert all(result == results[0] for result in results)
        assert seen.gateway.started == ["dev/files"]


@pytest.mark.requirement("dynamic.closed")
@every_client
async def test_a_tool_of_a_closed_toolbox_is_refused_with_a_hint(bench: Bench, era: str) -> None:
    boxes: dict[str, Any] = {"dev": {"files": ("--tool-names", "read_file")}, "ops": {"files": ()}}
    async with bench.within(boxes, "dynamic", era) as seen:
        error = await failure(seen, "dev__files_read_file")
        assert error.code == -32602 and "open toolbox `dev`" in error.message
        assert seen.gateway.started == []
        await seen.open("dev")
        assert "`dev__files_read_file`" in (await failure(seen, "dev__files_readfile")).message
        assert "`open_toolbox`" in (await failure(seen, "open_toolbx")).message
        for arguments, named in (
            ({}, "toolbox_name"),
            ({"toolbox_name": 5}, "toolbox_name"),
            ({"toolbox_name": "dve"}, "`dev`"),
        ):
            assert named in error_text(await seen.client.call_tool("open_toolbox", arguments))


@pytest.mark.requirement("dynamic.no-close")
@every_client
async def test_nothing_closes_a_toolbox(bench: Bench, era: str) -> None:
    async with bench.within({"dev": {"files": ()}}, "dynamic", era) as seen:
        await seen.open("dev")
        names = await seen.names("tools/list")
        assert [name for name in names if "close" in name] == []
        assert (await failure(seen, "close_toolbox")).code == -32602
        await seen.call("crash", server="files", toolbox="dev")
        assert await seen.names("tools/list") == names


@pytest.mark.requirement("dynamic.unavailable", "changes.tools")
@every_client
async def test_a_server_that_is_not_there_yet_is_registered_when_it_comes(bench: Bench, era: str) -> None:
    boxes = {"dev": {"alive": ("--tool-names", "echo"), "late": ("--tool-names", "echo")}}
    async with bench.within(boxes, "dynamic", era) as seen:
        seen.gateway.forbid("dev/late")
        content = registered(await seen.open("dev"))
        assert [tool["name"] for tool in content["tools"]] == ["dev__alive_echo"]
        (missing,) = content["unavailable"]
        assert missing["server"] == "late" and "exited" in missing["reason"] and missing["retry"]
        await seen.names("tools/list")
        seen.gateway.allow("dev/late")
        content = registered(await seen.open("dev"))
        assert [tool["name"] for tool in content["tools"]] == ["dev__alive_echo", "dev__late_echo"]
        if era == "legacy":
            await seen.client.wait_notification(CHANGED)
        assert "dev__late_echo" in await seen.names("tools/list")


@pytest.mark.requirement("dynamic.unavailable")
async def test_only_when_all_servers_fail_is_opening_an_error(bench: Bench) -> None:
    dead: tuple[Any, ...] = ("--exit-at-start", 1)
    async with bench.within({"dev": {"one": dead, "two": dead}}, "dynamic") as seen:
        opened = await seen.open("dev")
        assert opened["isError"] is True
        assert [each["server"] for each in registered(opened)["unavailable"]] == ["one", "two"]


@pytest.mark.requirement("names.collisions", "dynamic.collisions")
@every_client
async def test_of_two_tools_that_would_get_the_same_name_the_first_has_it_and_it_is_reported(
    bench: Bench, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {"dev": {"my": ("--tool-names", "srv_tool,fine"), "my_srv": ("--tool-names", "tool")}}
    with caplog.at_level(logging.WARNING, "mcp_workbench"):
        async with bench.within(boxes, "dynamic", era) as seen:
            content = registered(await seen.open("dev"))
            assert [tool["name"] for tool in content["tools"]] == ["dev__my_srv_tool", "dev__my_fine"]
            (text,) = content["refused"]
            assert "`dev/my/srv_tool`" in text and "`dev/my_srv/tool`" in text
            assert await seen.names("tools/list") == ["open_toolbox", "dev__my_srv_tool", "dev__my_fine"]
            await seen.client.call_tool("dev__my_srv_tool")
            assert "would be shown as `dev__my_srv_tool`" in text
            # There is no separator to change in this face.
            assert text.endswith("Use `rename`")
    assert [record.getMessage() for record in caplog.records] == [text]


@pytest.mark.requirement("dynamic.collisions", "dynamic.names")
@every_client
async def test_rename_resolves_a_collision(bench: Bench, era: str) -> None:
    renamed = ("--tool-names", "fine,tool", {"rename": {"tool": "other"}})
    boxes = {"dev": {"my": ("--tool-names", "srv_tool"), "my_srv": renamed}}
    async with bench.within(boxes, "dynamic", era) as seen:
        content = registered(await seen.open("dev"))
        shown = ["dev__my_srv_tool", "dev__my_srv_fine", "dev__my_srv_other"]
        assert [tool["name"] for tool in content["tools"]] == shown
        assert content["tools"][2]["original_name"] == "tool"
        assert "refused" not in content
        called = await seen.client.call_tool("dev__my_srv_other")
        assert called["_meta"]["example.test/echo"] == "tool"
        assert (await seen.client.call_tool("dev__my_srv_tool"))["_meta"]["example.test/echo"] == "srv_tool"


@pytest.mark.requirement("dynamic.names", "config.names")
@pytest.mark.parametrize(
    ("boxes", "named"),
    [
        ({"fine": {"a": ()}, "dev": {"fine": (), "a__b": ()}}, "server name `a__b` contains `__`"),
        ({"fine": {"a": ()}, "dev_": {"a": ()}}, "toolbox name `dev_` ends with `_`"),
        ({"fine": {"a": ()}, "dev": {"a": (), "_a": ()}}, "server name `_a` starts with `_`"),
    ],
)
async def test_names_that_cannot_be_registered_are_refused_where_the_face_is_chosen_elsewhere(
    bench: Bench, boxes: Any, named: str
) -> None:
    config = load(str(bench.write(boxes)), os.environ)
    with pytest.raises(ConfigError, match=named):
        MemoryGateway(config, Options(face="dynamic"))
    async with bench.within({"fine": {"a": ()}}, "dynamic") as seen:
        with pytest.raises(ConfigError, match=named):
            await seen.gateway.apply(config)
        assert "fine__a_echo" in [tool["name"] for tool in registered(await seen.open("fine"))["tools"]]
        assert seen.gateway.reloads.count == 0
    # Nothing is registered in the others.
    async with bench.within(boxes, "proxy") as seen:
        assert len(await seen.names("tools/list")) == 2


@pytest.mark.requirement("names.collisions", "dynamic.collisions")
@every_client
@pytest.mark.parametrize("remembered", [False, True])
async def test_existing_tool_keeps_its_name_when_another_server_claims_it(
    bench: Bench, era: str, remembered: bool
) -> None:
    """`my_srv` is later in the file, and had the name first; also when `my` has more to say after a restart."""
    boxes = {"dev": {"my": ("--tool-names", "change_tools"), "my_srv": ("--tool-names", "tool")}}
    async with bench.within(boxes, "dynamic", era) as seen:
        await seen.open("dev")
        assert "dev__my_srv_tool" in await seen.names("tools/list")
        if not remembered:
            await seen.call("change_tools", {"name": "srv_tool"}, server="my", toolbox="dev")
            await eventually(
                lambda: "srv_tool" in seen.gateway.catalog.toolboxes["dev"]["my"].tools, what="the new tool"
            )
            (text,) = registered(await seen.open("dev"))["refused"]
            assert "`dev/my/srv_tool`" in text
            await seen.client.call_tool("dev__my_srv_tool")
            assert seen.gateway.only_connection("dev/my_srv").traffic.bytes_sent
            return
    boxes["dev"]["my"] = ("--tool-names", "change_tools,srv_tool")
    async with bench.within(boxes, "dynamic", era) as seen:
        await seen.open("dev")
        await eventually(lambda: seen.gateway.catalog.toolboxes["dev"]["my"].is_live, what="the live list")
        table = await seen.names("tools/list")
        assert table.count("dev__my_srv_tool") == 1
        tool = registered(await seen.open("dev"))
        (holder,) = [each for each in tool["tools"] if each["name"] == "dev__my_srv_tool"]
        assert holder["server"] == "my_srv"


@pytest.mark.requirement("errors.shown")
@every_client
async def test_errors_say_toolbox_server_and_tool(bench: Bench, era: str) -> None:
    async with bench.within({"dev": {"files": ()}}, "dynamic", era) as seen:
        await seen.open("dev")
        result = await seen.call("fail", {"message": "no"}, server="files", toolbox="dev")
        assert error_text(result) == "[dev/files/fail] no"


@pytest.mark.requirement("errors.shown")
@every_client
async def test_a_tool_of_a_server_that_does_not_start_is_named_by_its_own_name(bench: Bench, era: str) -> None:
    boxes = {"dev": {"files": (), "my_srv": ("--tool-names", "tool", {"rename": {"tool": "other"}})}}
    async with bench.within(boxes, "dynamic", era) as seen:
        seen.gateway.forbid("dev/my_srv")
        await seen.open("dev")
        for called, named in (("dev__my_srv_echo", "dev/my_srv/echo"), ("dev__my_srv_other", "dev/my_srv/tool")):
            text = error_text(await seen.client.call_tool(called))
            assert text.startswith(f"[{named}] the server exited with status 9")


async def test_tool_is_called_though_the_state_cannot_say_whether_its_toolbox_is_open(bench: Bench) -> None:
    others = SharedServer()
    options = {"face": "dynamic", "state": SharedState(others)}
    async with bench.gateway({"box": {"server": ()}}, options=options) as gateway:
        async with MemoryClient.of(gateway) as client:
            await introduce(client, "modern")
            seen = Seen(client, "dynamic", "modern")
            with pytest.raises(RpcError, match="open toolbox `box` first"):
                await seen.call("count")
            others.is_away = True
            assert (await seen.call("count"))["structuredContent"] == {"count": 1}
            with pytest.raises(RpcError, match="nonsense"):
                await seen.call("nonsense")
