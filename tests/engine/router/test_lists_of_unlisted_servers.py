"""Face flat: what nobody is known to have is looked for at servers that are not listed yet, before it is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.router import lists
from tests.bridge.conversation import FINAL
from tests.bridge.in_process import ERAS, Json, in_process_workbench, until
from tests.support.in_process_workbench import Server, tool, workbench_with

COMPLETION: Json = {"ref": {"type": "ref/prompt", "name": "box:server:write"}, "argument": {"name": "a", "value": "x"}}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("route", ["prompt", "resource", "completion"])
async def test_the_first_request_of_a_client_reaches_a_server_that_is_not_listed_yet(era: str, route: str) -> None:
    async with in_process_workbench(era) as workbench:
        client = workbench.client(era)
        if route == "completion":
            request = client.send_request("completion/complete", COMPLETION)
            final: Json = {"completion": {"values": ["xy"]}}
        else:
            request = client.call(route)
            final = FINAL[route]
        await until(lambda: bool(workbench.unanswered()))
        (server,) = workbench.gateway.fake_servers
        server.reply(server.call, {**final, "resultType": "complete"} if era == "modern" else final)
        assert {key: request.result[key] for key in final} == final


async def test_a_subscription_reaches_a_server_that_is_not_listed_yet() -> None:
    async with in_process_workbench("legacy") as workbench:
        client = workbench.client("legacy")
        request = client.send_request("resources/subscribe", {"uri": "test:///one"})
        await until(lambda: request.answer is not None)
        assert request.result == {}
        (server,) = workbench.gateway.fake_servers
        assert [each["params"]["uri"] for each in server.requests("resources/subscribe")] == ["test:///one"]


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_item_is_refused_once_all_servers_are_listed(era: str) -> None:
    async with in_process_workbench(era) as workbench:
        client = workbench.client(era)
        request = client.send_request("prompts/get", {"name": "box:server:nothing"})
        await until(lambda: request.answer is not None)
        assert request.error["code"] == -32602
        (server,) = workbench.gateway.fake_servers
        assert len(server.requests("prompts/list")) == 1, "nobody is asked twice for it"


async def test_a_cache_on_a_disk_that_hangs_is_not_waited_for_and_servers_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(lists, "CACHE_READ_TIMEOUT", 0.05)
    monkeypatch.setattr(ServerEntry, "read_manifest", lambda entry: go_on.wait(60))
    async with workbench_with(tmp_path, {"box": {"files": Server(tool("read"))}}) as client:
        try:
            assert "read" in await client.said(toolbox_name="box")
            assert "isError" not in await client.use("box/files/read")
        finally:
            go_on.set()
    assert "could not be read within" in caplog.text
