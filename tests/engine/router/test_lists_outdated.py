"""Servers that cannot announce changes: their lists are asked for again when they do not hold any more."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.router import lists
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import ERAS, Client, InProcessWorkbench, Json, in_process_workbench, settled, until

HOUR = 3_600_000
FACES: tuple[FaceName, ...] = ("proxy", "flat", "dynamic")


async def started(workbench: InProcessWorkbench, client: Client, **answers: Json) -> FakeServer:
    """The server, listed once; `answers` are added to what it says to a list request."""
    warming = client.send_request(
        "tools/list" if workbench.gateway.face.name == "flat" else "tools/call",
        {} if workbench.gateway.face.name == "flat" else {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}},
    )
    await until(lambda: bool(workbench.gateway.fake_servers))
    (server,) = workbench.gateway.fake_servers
    for kind, more in answers.items():
        server.offers[f"{kind}/list"].update(more)
    await until(lambda: warming.answer is not None)
    server.received.clear()
    return server


async def listed(client: Client, kind: str) -> list[str]:
    request = client.send_request(f"{kind}/list")
    await until(lambda: request.answer is not None)
    return [item["name"] for item in request.result[kind]]


@pytest.mark.requirement("lists.ttl")
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("answer", "asked"), [({"ttlMs": 0}, 3), ({"ttlMs": HOUR}, 0), ({}, 0), ({"ttlMs": "soon"}, 0), ({"ttlMs": -5}, 3)]
)
async def test_a_list_is_asked_for_again_when_its_time_has_passed(face: FaceName, answer: Json, asked: int) -> None:
    async with in_process_workbench("modern", face=face, use_cache=True) as workbench:
        client = workbench.client("modern")
        server = await started(workbench, client, prompts=answer)
        server.offers["prompts/list"]["prompts"] = [{"name": "other"}]
        names = [await listed(client, "prompts") for _ in range(3)]
        assert len(server.requests("prompts/list")) == asked
        assert names[-1][0].endswith("other" if asked else "write")


@pytest.mark.requirement("lists.ttl")
@pytest.mark.parametrize("era", ERAS)
async def test_a_list_whose_changes_are_announced_is_not_asked_for_again(era: str) -> None:
    async with in_process_workbench(era, use_cache=True) as workbench:
        client = workbench.client(era)
        server = await started(workbench, client, tools={"ttlMs": 0})
        await listed(client, "tools")
        assert server.requests("tools/list") == []


@pytest.mark.requirement("lists.ttl")
async def test_a_server_that_refuses_to_be_listened_to_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_by_itself = FakeServer._answer_by_itself

    def refuse_to_be_listened_to(server: FakeServer, message: Json) -> None:
        if message["method"] == "subscriptions/listen":
            server.fail(message, -32601, "no streams here")
        else:
            answer_by_itself(server, message)

    monkeypatch.setattr(FakeServer, "_answer_by_itself", refuse_to_be_listened_to)
    async with in_process_workbench("modern", use_cache=True) as workbench:
        client = workbench.client("modern")
        server = await started(workbench, client, tools={"ttlMs": 0})
        await listed(client, "tools")
        assert len(server.requests("tools/list")) == 1


@pytest.mark.requirement("lists.ttl")
@pytest.mark.parametrize("face", ["proxy", "dynamic"])
async def test_opening_a_toolbox_asks_servers_whose_lists_are_out_of_date(face: FaceName) -> None:
    async with in_process_workbench("modern", face=face, use_cache=True) as workbench:
        client = workbench.client("modern")
        server = await started(workbench, client, prompts={"ttlMs": 0})
        opening = client.send_request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
        await until(lambda: opening.answer is not None)
        assert len(server.requests("prompts/list")) == 1


@pytest.mark.requirement("lists.no-cache")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
async def test_with_no_cache_such_a_list_is_asked_for_each_time(face: FaceName, era: str) -> None:
    async with in_process_workbench(era, face=face, use_cache=False) as workbench:
        client = workbench.client(era)
        server = await started(workbench, client, prompts={"ttlMs": HOUR})
        for _ in range(3):
            await listed(client, "prompts")
        assert len(server.requests("prompts/list")) == 3


@pytest.mark.requirement("lists.no-cache")
async def test_the_two_tools_of_the_proxy_face_cost_no_server_anything() -> None:
    async with in_process_workbench("modern", face="proxy", use_cache=False) as workbench:
        client = workbench.client("modern")
        server = await started(workbench, client)
        await listed(client, "tools")
        assert server.received == []


@pytest.mark.requirement("lists.ttl")
async def test_a_server_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "REFRESH_PATIENCE", 0.01)
    async with in_process_workbench("modern", use_cache=True) as workbench:
        client = workbench.client("modern")
        server = await started(workbench, client, prompts={"ttlMs": 0})
        del server.offers["prompts/list"]
        assert await listed(client, "prompts") == ["box:server:write"], "what it offered before"
        await until(lambda: server.connection.lists.has_been_asking_for(0.01))
        again = client.send_request("prompts/list")
        await settled()
        assert [prompt["name"] for prompt in again.result["prompts"]] == ["box:server:write"]
        assert len(server.requests("prompts/list")) == 1


def call(face: str, tool: str) -> tuple[str, Json]:
    """Method and parameters of a call by the name that the face gives to a tool."""
    if face == "proxy":
        return "tools/call", {"name": "use_tool", "arguments": {"tool": f"box/server/{tool}", "arguments": {}}}
    return "tools/call", {"name": {"flat": f"box:server:{tool}", "dynamic": f"box__server_{tool}"}[face]}


@pytest.mark.requirement("lists.unknown-tool")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
async def test_a_tool_that_is_new_on_a_running_server_is_found(face: FaceName, era: str) -> None:
    async with in_process_workbench(era, face=face, use_cache=True) as workbench:
        client = workbench.client(era)
        server = await started(workbench, client)
        # Without a word: nothing has announced it.
        server.offers["tools/list"]["tools"].append({"name": "late", "inputSchema": {"type": "object"}})
        request = client.send_request(*call(face, "late"))
        await until(lambda: bool(server.open_calls()))
        assert server.call["params"]["name"] == "late"
        server.reply(server.call, {"content": []})
        assert not request.result.get("isError")
        assert len(server.requests("tools/list")) == 1


@pytest.mark.requirement("lists.unknown-tool")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
async def test_a_tool_that_does_not_exist_is_asked_for_once_and_denied(face: FaceName, era: str) -> None:
    async with in_process_workbench(era, face=face, use_cache=True) as workbench:
        client = workbench.client(era)
        server = await started(workbench, client)
        request = client.send_request(*call(face, "nothing"))
        await until(lambda: request.answer is not None)
        assert request.answer is not None and "nothing" in str(request.answer)
        assert "error" in request.answer or request.result["isError"] is True
        assert len(server.requests("tools/list")) == 1
        assert server.requests("tools/call") == []


@pytest.mark.requirement("lists.unknown-tool")
async def test_server_that_fails_to_list_keeps_its_previous_offer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lists, "REFRESH_PATIENCE", 0.01)
    async with in_process_workbench("legacy", use_cache=True) as workbench:
        client = workbench.client("legacy")
        server = await started(workbench, client)
        del server.offers["tools/list"]
        request = client.send_request(*call("flat", "nothing"))
        await until(lambda: request.answer is not None)
        assert request.error["code"] == -32601
