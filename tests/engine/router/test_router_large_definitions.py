"""A tool that is too large to be shown: left out, said where the others are shown, and remembered."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from mcp_workbench.cli.commands.check import Finding, _learnt
from mcp_workbench.engine.config.model import DEFAULT_MAX_DEFINITION_BYTES, FaceName
from mcp_workbench.engine.config.policy_settings import PolicyRule
from mcp_workbench.engine.face.proxy import ProxyFace
from mcp_workbench.engine.router.lists import LARGE_LISTING
from tests.bridge.in_process import Client, InProcessWorkbench, Json, in_process_workbench, until

HUGE = {"name": "huge", "description": "x" * DEFAULT_MAX_DEFINITION_BYTES}


async def opened(workbench: InProcessWorkbench, client: Client, *large: Json) -> Json:
    opening = client.send_request("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "box"}})
    await until(lambda: bool(workbench.gateway.fake_servers))
    workbench.gateway.fake_servers[0].offers["tools/list"]["tools"].extend(large or [HUGE])
    await until(lambda: opening.answer is not None)
    content: Json = opening.result["structuredContent"]
    return content


@pytest.mark.requirement("lists.bounded")
@pytest.mark.parametrize("face", ["proxy", "dynamic"])
async def test_it_is_named_where_a_toolbox_is_opened(face: FaceName) -> None:
    # The second time from what is remembered.
    for _ in range(2):
        async with in_process_workbench("legacy", face=face, use_cache=True) as workbench:
            content = await opened(workbench, workbench.client("legacy"))
            assert len(content["tools"]) == 2
            (told,) = content["unavailable"]
            assert told["server"] == "server"
            assert "`huge` (262," in told["reason"] and "`maxDefinitionBytes`" in told["retry"]


@pytest.mark.requirement("lists.bounded")
async def test_a_call_of_it_is_told_why_it_is_not_there() -> None:
    async with in_process_workbench("legacy", face="proxy", use_cache=True) as workbench:
        client = workbench.client("legacy")
        await opened(workbench, client)
        call = client.send_request(
            "tools/call", {"name": "use_tool", "arguments": {"tool": "box/server/huge", "arguments": {}}}
        )
        await until(lambda: call.answer is not None)
        assert call.result["isError"] is True
        assert "maxDefinitionBytes" in call.result["content"][0]["text"]


@pytest.mark.requirement("lists.bounded")
@pytest.mark.parametrize("face", ["proxy", "dynamic"])
async def test_hidden_tool_is_not_named_to_those_from_whom_it_is_hidden(face: FaceName) -> None:
    policy = (
        PolicyRule(who=("carol",), then="allow"),
        PolicyRule(who=("bob",), tools=("*/*/secret",), then="hide"),
        PolicyRule(then="allow"),
    )
    for principal, named in (("alice", ["huge", "secret"]), ("bob", ["huge"])):
        async with in_process_workbench("legacy", face=face, policy=policy) as workbench:
            client = workbench.client("legacy", principal=principal)
            content = await opened(workbench, client, HUGE, {**HUGE, "name": "secret"})
            (told,) = content["unavailable"]
            assert [name for name in ("huge", "secret") if f"`{name}` (262," in told["reason"]] == named
            assert ("secret" in json.dumps(client.received)) is ("secret" in named)
            if face == "proxy":
                call = client.send_request(
                    "tools/call", {"name": "use_tool", "arguments": {"tool": "box/server/secret", "arguments": {}}}
                )
                await until(lambda call=call: call.answer is not None)  # type: ignore[misc]
                assert ("maxDefinitionBytes" in json.dumps(call.answer)) is ("secret" in named)


@pytest.mark.requirement("lists.bounded")
async def test_check_names_it() -> None:
    async with in_process_workbench("legacy", face="proxy", use_cache=True) as workbench:
        await opened(workbench, workbench.client("legacy"))
        finding = Finding("box", "server")
        _learnt(finding, workbench.gateway.catalog.toolboxes["box"]["server"])
        assert [remark for remark in finding.remarks if "`huge` (262," in remark]


@pytest.mark.requirement("lists.bounded")
@pytest.mark.parametrize(("size", "is_here"), [(1_000, True), (LARGE_LISTING // 4, False)])
@pytest.mark.parametrize("asked", [{"toolbox_name": "box"}, {"query": "many words"}, {"tools": ["box/server/many0"]}])
async def test_many_definitions_are_encoded_in_a_thread(
    size: int, is_here: bool, asked: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    opened_by = ProxyFace.opened

    def watched(self: ProxyFace, *given: Any) -> bytes:
        threads.append(threading.current_thread())
        return opened_by(self, *given)

    monkeypatch.setattr(ProxyFace, "opened", watched)
    async with in_process_workbench("legacy", face="proxy") as workbench:
        client = workbench.client("legacy")
        opening = client.send_request("tools/call", {"name": "open_toolbox", "arguments": asked})
        await until(lambda: bool(workbench.gateway.fake_servers))
        workbench.gateway.fake_servers[0].offers["tools/list"]["tools"] += [
            {"name": f"many{number}", "description": "many words " * (size // 11)} for number in range(5)
        ]
        await until(lambda: opening.answer is not None)
        assert "many0" in str(opening.result)
    assert [thread is threading.current_thread() for thread in threads] == [is_here]
