"""`"shared": true` in the file: the first client starts the shared workbench, and it ends by itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.sharing.harness import Shared
from tests.support.workbench import scripted_entry

BOX = {"box": {"server": scripted_entry()}}


async def test_clients_that_start_at_once_share_one(shared: Shared) -> None:
    async with AsyncExitStack() as stack:
        joining = (stack.enter_async_context(shared.client(BOX, shared=True)) for _ in range(8))
        clients = await asyncio.gather(*joining)
        assert [await client.request("ping") for client in clients] == [{}] * 8
        assert {client.stderr for client in clients} == {""}
    assert len(shared.pids) == 1
    assert shared.log.count("joins from") == 8


async def test_the_shared_workbench_exits_after_a_while_without_clients(shared: Shared) -> None:
    async with shared.client(BOX, shared=True, sharedIdleExit=0.2) as client:
        assert await client.request("ping") == {}
    shared.wait_until_gone()
    assert not shared.has_socket
    async with shared.client(BOX, shared=True, sharedIdleExit=0.2) as client:
        assert await client.request("ping") == {}
    shared.wait_until_gone()
    assert len(shared.pids) == 2


async def test_other_files_are_not_shared_with_it(shared: Shared) -> None:
    async with shared.client(BOX, shared=True) as client:
        async with shared.client(BOX) as alone:
            assert await alone.request("ping") == {}
            assert alone.stderr == ""
        assert await client.request("ping") == {}
    assert shared.log.count("joins from") == 1


async def test_private_and_http_are_as_ever(shared: Shared) -> None:
    async with shared.client(BOX, "--private", shared=True) as client:
        assert await client.request("ping") == {}
    assert shared.pids == []


async def test_after_up_it_is_started_again_by_the_next_client(shared: Shared) -> None:
    shared.up()
    async with shared.client(BOX, sharedIdleExit=0.2):
        pass
    shared.wait_until_gone()
    async with shared.client(BOX) as client:
        assert await client.request("ping") == {}
    assert len(shared.pids) == 2
