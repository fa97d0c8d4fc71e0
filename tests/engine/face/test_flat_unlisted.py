"""Tools that the only server does not list: with names that are its own, only the server knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import RpcError
from tests.support.in_process_workbench import Server, text_of, tool, workbench_with

OPTIONS = {"face": "flat", "prefix": False}


async def test_a_tool_that_the_only_server_does_not_list_is_passed_on(tmp_path: Path) -> None:
    server = Server(tool("listed"), toolFilters=["*", "!secret*"])
    async with workbench_with(tmp_path, {"dev": {"server": server}}, options=OPTIONS) as seen:
        result = await seen.client.call_tool("unlisted", {"a": 1})
        assert "unlisted" in text_of(result)
        assert server.calls == [("unlisted", {"a": 1})]
        with pytest.raises(RpcError) as refused:
            await seen.client.call_tool("secret_tool", {})
        assert refused.value.code == -32601
        assert len(server.calls) == 1, "a filter holds for what is not listed, too"


async def test_among_several_servers_it_does_not_exist(tmp_path: Path) -> None:
    servers = {"one": Server(tool("listed")), "two": Server(tool("other"))}
    async with workbench_with(tmp_path, {"dev": servers}, options=OPTIONS) as seen:
        with pytest.raises(RpcError) as refused:
            await seen.client.call_tool("unlisted", {})
        assert refused.value.code == -32601
        assert [server.calls for server in servers.values()] == [[], []]
