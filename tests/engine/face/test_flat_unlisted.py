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


@pytest.mark.parametrize("has_some", [True, False])
async def test_prompts_and_resources_that_the_only_server_does_not_list_are_passed_on(
    tmp_path: Path, has_some: bool
) -> None:
    server = Server(tool("listed"))
    if has_some:
        server.prompts, server.resources = [{"name": "known"}], [{"uri": "test:///known", "name": "known"}]
    async with workbench_with(tmp_path, {"dev": {"server": server}}, options=OPTIONS) as seen:
        for method, params, item in (
            ("prompts/get", {"name": "unlisted"}, "unlisted"),
            ("resources/read", {"uri": "other:///unlisted"}, "other:///unlisted"),
        ):
            await seen.client.request(method, params)
            assert server.asked[-1] == (method, item)
        assert len(server.asked) == 2


async def test_among_several_servers_unlisted_prompts_and_resources_do_not_exist(tmp_path: Path) -> None:
    servers = {"one": Server(tool("listed")), "two": Server(tool("other"))}
    async with workbench_with(tmp_path, {"dev": servers}, options=OPTIONS) as seen:
        for method, params in (("prompts/get", {"name": "unlisted"}), ("resources/read", {"uri": "other:///unlisted"})):
            with pytest.raises(RpcError):
                await seen.client.request(method, params)
        assert [server.asked for server in servers.values()] == [[], []]


async def test_with_prefixes_unlisted_prompts_of_the_only_server_do_not_exist(tmp_path: Path) -> None:
    server = Server(tool("listed"))
    async with workbench_with(tmp_path, {"dev": {"server": server}}, options={"face": "flat", "prefix": True}) as seen:
        with pytest.raises(RpcError):
            await seen.client.request("prompts/get", {"name": "unlisted"})
        assert server.asked == []
