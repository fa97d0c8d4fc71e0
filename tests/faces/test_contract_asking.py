"""What servers ask of a client and tell it while they work, the same in every face; and what nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.harness import ERAS, EVERY_ABILITY, FACES, Bench, Seen, error_text
from tests.faces.memory import MemoryClient
from tests.support.client import Json, RpcError
from tests.support.workbench import logged

every_face = pytest.mark.parametrize("face", FACES)
every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("server_era", ERAS)

ELICITED = {"action": "accept", "content": {"name": "Ann"}, "x-unknown": 1}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m", "x-unknown": [None]}
ROOTS = {"roots": [{"uri": "file:///a", "name": "a", "x-unknown": 1}]}
# Tool, what it asks for, and the answer.
QUESTIONS: dict[str, tuple[str, str, Json]] = {
    "form": ("ask", "elicitation/create", ELICITED),
    "page": ("ask_url", "elicitation/create", {"action": "accept"}),
    "sampling": ("sample", "sampling/createMessage", SAMPLED),
    "roots": ("roots", "roots/list", ROOTS),
}
MESSAGE = "notifications/message"
TASKS = "io.modelcontextprotocol/tasks"


async def answered(seen: Seen, tool: str, method: str, answer: Json) -> Json:
    """Call a tool that asks, and answer in the way of the client's era."""
    seen.client.handlers[method] = lambda params: answer
    result = await seen.call(tool)
    if seen.era == "legacy":
        return result
    assert result["resultType"] == "input_required", result
    (key,) = result["inputRequests"]
    assert result["inputRequests"][key]["method"] == method
    return await seen.call(tool, inputResponses={key: answer}, requestState=result["requestState"])


def levels(seen: Seen) -> list[str]:
    return [params["level"] for params in seen.client.received(MESSAGE)]


@pytest.mark.requirement("asking.elicitation", "asking.url", "asking.sampling", "asking.roots")
@every_face
@every_client
@every_server
@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_question_reaches_the_client_whose_call_it_is_and_the_answer_the_server(
    bench: Bench, face: str, era: str, server_era: str, kind: str
) -> None:
    tool, method, answer = QUESTIONS[kind]
    boxes = {"box": {"server": ("--era", server_era)}}
    async with bench.within(boxes, face, era, capabilities=EVERY_ABILITY) as seen:
        await seen.open()
        async with MemoryClient.of(seen.gateway) as other:
            # Shares the server, and is there to be asked by mistake.
            await other.initialize(capabilities=EVERY_ABILITY)
            result = await answered(seen, tool, method, answer)
            assert result["structuredContent"] == {"result": answer}
            assert other.server_requests == []


@pytest.mark.requirement("asking.capabilities")
@every_face
@every_client
@every_server
async def test_a_client_is_asked_only_within_its_capabilities_and_servers_receive_them(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    declared = bench.path("declared")
    capabilities: Json = {"roots": {}, "experimental": {"x": {"y": 1}}}
    boxes = {"box": {"server": ("--era", server_era, "--capabilities-log", declared)}}
    async with bench.within(boxes, face, era, capabilities=capabilities) as seen:
        await seen.open()
        for tool in ("ask", "ask_url", "sample"):
            answer = await (await seen.start(tool)).response()
            text = json.dumps(answer)
            assert "input_required" not in text
            assert "error" in text or "does not support" in text
        assert seen.client.server_requests == []
    told = [json.loads(line)["capabilities"] for line in declared.read_text().splitlines()]
    assert told and all(each == capabilities for each in told)


@pytest.mark.requirement("asking.modes")
@every_face
@every_client
@every_server
@pytest.mark.parametrize("elicitation", [{}, {"form": {}}])
async def test_a_client_that_knows_forms_only_is_not_sent_to_a_page(
    bench: Bench, face: str, era: str, server_era: str, elicitation: Json
) -> None:
    capabilities = {"elicitation": elicitation}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era, capabilities=capabilities) as seen:
        await seen.open()
        if not (era == server_era == "modern"):
            # Between modern ends the server sees what was declared, and what it answers passes as it is.
            answer = await (await seen.start("ask_url")).response()
            assert "inputRequests" not in json.dumps(answer)
            assert seen.client.server_requests == []
        result = await answered(seen, "ask", "elicitation/create", ELICITED)
        assert result["structuredContent"] == {"result": ELICITED}


@pytest.mark.requirement("asking.roots-changed")
@every_face
async def test_changed_roots_are_told_to_the_servers_that_run(bench: Bench, face: str) -> None:
    log, idle = bench.path("log"), bench.path("idle")
    boxes: dict[str, Any] = {
        "box": {"one": ("--era", "legacy", "--log", log), "two": ("--era", "legacy", "--log", log)},
        "idle": {"three": ("--log", idle)},
    }
    async with bench.within(boxes, face, capabilities=EVERY_ABILITY) as seen:
        await seen.open()
        for server in ("one", "two"):
            await seen.call("count", server=server)
        await seen.client.notify("notifications/roots/list_changed", {"x-unknown": 1})
        for server in ("one", "two"):
            await seen.call("count", server=server)
        told = logged(log, "notifications/roots/list_changed")
        assert [message["params"] for message in told] == [{"x-unknown": 1}] * 2
        assert face == "flat" or logged(idle) == []


@pytest.mark.requirement("asking.roots")
@every_face
async def test_a_server_may_ask_right_after_the_handshake(bench: Bench, face: str) -> None:
    flags = ("--era", "legacy", "--ask-at-start", "roots/list")
    async with bench.within({"box": {"server": flags}}, face, capabilities=EVERY_ABILITY) as seen:
        seen.client.handlers["roots/list"] = lambda params: ROOTS
        await seen.open()
        assert (await seen.call("asked_at_start"))["structuredContent"] == {"result": ROOTS}


# Log messages


@pytest.mark.requirement("logging.legacy")
@every_face
@every_server
async def test_a_legacy_client_sets_its_level_once_for_all_servers(bench: Bench, face: str, server_era: str) -> None:
    everything = {"levels": ["debug", "info", "warning", "error"]}
    boxes = {"box": {"server": ("--era", server_era)}, "later": {"server": ("--era", server_era)}}
    async with bench.within(boxes, face) as seen:
        await seen.open()
        assert await seen.client.request("logging/setLevel", {"level": "warning"}) == {}
        await seen.call("log", everything)
        assert levels(seen) == ["warning", "error"]
        assert seen.client.received(MESSAGE)[0] == {
            "level": "warning",
            "logger": "scripted",
            "data": {"said": "warning", "nested": [None, 1.5, "ü"]},
        }
        await seen.open("later")
        await seen.call("log", everything, toolbox="later")
        assert levels(seen)[2:] == ["warning", "error"]
        await seen.client.request("logging/setLevel", {"level": "debug"})
        await seen.call("log", everything)
        assert levels(seen)[4:] == everything["levels"]
        with pytest.raises(RpcError, match="-32602"):
            await seen.client.request("logging/setLevel", {"level": "loud"})


@pytest.mark.requirement("logging.legacy")
@every_face
async def test_a_log_message_outside_of_any_call_is_held_to_the_level_too(bench: Bench, face: str) -> None:
    async with bench.within({"box": {"server": ("--era", "legacy")}}, face) as seen:
        await seen.open()
        await seen.client.request("logging/setLevel", {"level": "warning"})
        for level in ("info", "error"):
            message = {"level": level, "data": level}
            await seen.call("notify", {"method": MESSAGE, "params": message, "later": True})
        await seen.client.wait_notification(MESSAGE)
        assert levels(seen) == ["error"]


@pytest.mark.requirement("logging.modern")
@every_face
@every_server
async def test_a_modern_client_gets_the_log_of_the_requests_that_want_it(
    bench: Bench, face: str, server_era: str
) -> None:
    everything = {"levels": ["debug", "warning", "error"]}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, "modern") as seen:
        await seen.open()
        await seen.call("log", everything)
        assert levels(seen) == []
        await seen.call("log", everything, _meta={"io.modelcontextprotocol/logLevel": "warning"})
        assert levels(seen) == ["warning", "error"]
        await seen.call("log", everything)
        assert len(levels(seen)) == 2
        with pytest.raises(RpcError, match="-32602"):
            await seen.call("log", everything, _meta={"io.modelcontextprotocol/logLevel": "loud"})


# What nobody knows


@pytest.mark.requirement("unknown.notifications")
@every_face
@every_client
@every_server
async def test_an_unknown_notification_reaches_the_client_unchanged(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    params = {"a": [1, None, {"b": "ü"}], "_meta": {"example.test/x": 1}}
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        await seen.call("notify", {"method": "notifications/example", "params": params})
        assert seen.client.received("notifications/example") == [params]


@pytest.mark.requirement("unknown.notifications")
@every_face
async def test_a_notification_of_the_client_is_passed_on_where_one_server_can_be_meant(bench: Bench, face: str) -> None:
    log = bench.path("log")
    only: dict[str, Any] = {"box": {"server": ("--era", "legacy", "--log", log)}}
    several = {"box": {"server": ("--era", "legacy", "--log", log), "other": ()}}
    for boxes, expected in ((only, [{"a": 1}]), (several, [])):
        log.unlink(missing_ok=True)
        async with bench.within(boxes, face) as seen:
            await seen.open()
            await seen.call("count")
            await seen.client.notify("notifications/example", {"a": 1})
            await seen.call("count")
            told = [message["params"] for message in logged(log, "notifications/example")]
            assert told == expected


@pytest.mark.requirement("unknown.methods")
@every_face
@every_client
@every_server
async def test_an_unknown_method_is_relayed_if_one_server_can_be_meant(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    flags = ("--era", server_era, "--unknown-method")
    async with bench.within({"box": {"server": flags}}, face, era) as seen:
        result = await seen.client.request("example/method", {"a": [1, None]})
        assert result["received"] == {"a": [1, None]}
        with pytest.raises(RpcError, match="-32601"):
            await seen.client.request("example/other", {})
    async with bench.within({"box": {"server": flags, "other": flags}}, face, era) as seen:
        await seen.open()
        with pytest.raises(RpcError, match="-32601"):
            await seen.client.request("example/method", {})


# Extensions


@pytest.mark.requirement("extensions.negotiated", "extensions.apps")
@every_face
@every_client
async def test_extensions_are_declared_to_both_sides(bench: Bench, face: str, era: str) -> None:
    declared = bench.path("declared")
    apps = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    flags = ("--offers", "test", "--extensions", json.dumps(apps), "--capabilities-log", declared)
    capabilities: Json = {"extensions": apps}
    async with bench.within({"box": {"server": flags}}, face, era, capabilities=capabilities) as seen:
        await seen.open()
        told = await (seen.client.discover() if era == "modern" else seen.client.initialize(capabilities=capabilities))
        assert told["capabilities"]["extensions"] == apps
        read = await seen.client.request("resources/read", {"uri": "ui://test/view.html"})
        assert read["contents"][0]["uri"] == "ui://test/view.html"
    assert json.loads(declared.read_text().splitlines()[-1])["capabilities"]["extensions"] == apps


@pytest.mark.requirement("extensions.tasks")
@every_face
async def test_a_task_is_asked_of_the_server_that_gave_it_out(bench: Bench, face: str) -> None:
    flags = ("--era", "modern", "--tasks")
    capabilities: Json = {"extensions": {TASKS: {}}, "elicitation": {}}
    boxes = {"box": {"server": flags, "other": flags}}
    async with bench.within(boxes, face, "modern", capabilities=capabilities) as seen:
        await seen.open()
        started = {}
        for server in ("server", "other"):
            started[server] = await seen.call("start_task", {"ask": True, "taskId": f"of-{server}"}, server=server)
            assert started[server]["resultType"] == "task"
            assert (started[server]["status"], started[server]["x-unknown"]) == ("input_required", 1)
        for server, task in started.items():
            got = await seen.client.request("tasks/get", {"taskId": task["taskId"]})
            assert (got["status"], list(got["inputRequests"])) == ("input_required", ["sure"])
            responses = {"sure": {"action": "accept", "content": {"from": server}}}
            updated = await seen.client.request("tasks/update", {"taskId": task["taskId"], "inputResponses": responses})
            assert updated["resultType"] == "complete"
            got = await seen.client.request("tasks/get", {"taskId": task["taskId"]})
            assert (got["status"], got["result"]["structuredContent"]) == ("completed", responses)
        await seen.client.request("tasks/cancel", {"taskId": "of-other"})
        assert (await seen.client.request("tasks/get", {"taskId": "of-other"}))["status"] == "cancelled"
        assert (await seen.client.request("tasks/get", {"taskId": "of-server"}))["status"] == "completed"
        with pytest.raises(RpcError, match="-32602"):
            await seen.client.request("tasks/get", {"taskId": "of-nobody"})


@pytest.mark.requirement("extensions.tasks")
@every_face
@every_client
async def test_a_client_that_knows_no_tasks_gets_none(bench: Bench, face: str, era: str) -> None:
    async with bench.within({"box": {"server": ("--tasks",)}}, face, era) as seen:
        await seen.open()
        assert (await seen.call("start_task"))["structuredContent"] == {"task": False}


@pytest.mark.requirement("errors.gone")
@every_face
@every_client
@every_server
async def test_a_call_under_way_when_its_server_goes_ends_in_an_error_that_says_where(
    bench: Bench, face: str, era: str, server_era: str
) -> None:
    async with bench.within({"box": {"server": ("--era", server_era)}}, face, era) as seen:
        await seen.open()
        hanging = await seen.start("hang")
        crashed = await seen.call("crash")
        for result, tool in ((crashed, "crash"), (await hanging.result(), "hang")):
            assert error_text(result).startswith(f"[box/server/{tool}] the server exited with status 3")
        assert (await seen.call("count"))["structuredContent"] == {"count": 1}
