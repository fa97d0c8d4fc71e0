"""What a server lists: bounded in count and size, and looked at in pieces between which others are served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.offer import Collected
from mcp_workbench.engine.downstream import server_run
from mcp_workbench.engine.downstream.server_run import (
    MAX_ITEMS_AT_ONCE,
    MAX_SERVER_INSTRUCTIONS_LENGTH,
    list_offer,
    usable_over_http,
)
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.errors import DownstreamError

PROFILE = ServerProfile("legacy", "2025-11-25", Raw(b'{"tools":{}}'))


class Server:
    """Answers with these pages (`Lister`)."""

    def __init__(self, *pages: list[Any]) -> None:
        self._pages = pages
        self.asked = 0

    async def ask_as_era(self, method: str, members: bytes = b"") -> Raw:
        page: dict[str, Any] = {"tools": self._pages[self.asked]}
        self.asked += 1
        if self.asked < len(self._pages):
            page["nextCursor"] = str(self.asked)
        return Raw(json.dumps(page).encode())


def tool(name: str, size: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "x" * size, **more}


class Others:
    """Somebody else who wants to be served: counts how often they are."""

    def __init__(self) -> None:
        self.served = 0

    async def __aenter__(self) -> Others:
        self._task = asyncio.create_task(self._be_served())
        await asyncio.sleep(0)
        self.served = 0
        return self

    async def _be_served(self) -> None:
        while True:
            self.served += 1
            await asyncio.sleep(0)

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest.mark.requirement("lists.bounded")
async def test_a_definition_that_is_too_large_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    server = Server([tool("small"), tool("large", 5_000), tool("other")], [tool("larger", 6_000), tool("last")])
    offer = await list_offer("box/server", server, PROFILE, None, largest=1_000)
    assert list(offer.tools) == ["small", "other", "last"]
    assert {name: size // 1_000 for name, size in offer.oversized["tools"].items()} == {"large": 5, "larger": 6}
    assert offer.dropped == 0
    assert "`large` (5,036 bytes), `larger` (6,037 bytes)" in caplog.text and "maxDefinitionBytes" in caplog.text


@pytest.mark.requirement("lists.bounded")
async def test_a_definition_of_exactly_the_maximum_size_is_listed() -> None:
    size = len(json.dumps(tool("a", 500)))
    offer = await list_offer("box/server", Server([tool("a", 500), tool("b", 501)]), PROFILE, None, largest=size)
    assert (list(offer.tools), list(offer.oversized["tools"])) == (["a"], ["b"])


@pytest.mark.requirement("lists.bounded")
async def test_all_definitions_of_a_list_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_run, "MAX_SERVER_LIST_BYTES", 10_000)
    pages = [[tool(f"{page}-{number}", 100) for number in range(10)] for page in range(100)]
    server = Server(*pages)
    with pytest.raises(DownstreamError, match="more than 10000 bytes"):
        await list_offer("box/server", server, PROFILE, None)
    assert server.asked < 10, "no more pages are asked for"


@pytest.mark.requirement("lists.bounded")
async def test_instructions_are_bounded() -> None:
    profile = ServerProfile("legacy", "2025-11-25", Raw(b"{}"), instructions="x" * 100_000)
    offer = await list_offer("box/server", Server(), profile, None)
    assert offer.profile.instructions == "x" * MAX_SERVER_INSTRUCTIONS_LENGTH


@pytest.mark.requirement("lists.bounded")
async def test_others_are_served_while_a_long_list_is_looked_at() -> None:
    count = 40 * MAX_ITEMS_AT_ONCE
    async with Others() as others:
        offer = await list_offer("box/server", Server([tool(str(number)) for number in range(count)]), PROFILE, None)
    assert len(offer.tools) == count
    assert others.served >= count / MAX_ITEMS_AT_ONCE


@pytest.mark.requirement("lists.bounded")
async def test_others_are_served_while_a_large_list_is_looked_at() -> None:
    megabytes = 16
    tools = [tool(str(number), 64 * 1024) for number in range(16 * megabytes)]
    async with Others() as others:
        offer = await list_offer("box/server", Server(tools), PROFILE, None)
    assert len(offer.tools) == len(tools)
    assert others.served >= megabytes


@pytest.mark.requirement("lists.bounded")
async def test_a_list_of_too_many_items_is_refused_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_run, "MAX_LISTED_ITEMS", 1_000)
    looked_at: list[int] = []
    add = Collected.add

    def counting(self: Collected, items: Any) -> None:
        looked_at.append(len(items))
        add(self, items)

    monkeypatch.setattr(Collected, "add", counting)
    with pytest.raises(DownstreamError, match="more than 1000 items"):
        await list_offer("box/server", Server([{}] * 300_000), PROFILE, None)
    assert sum(looked_at) <= 1_000


@pytest.mark.requirement("lists.bounded")
async def test_others_are_served_while_annotations_are_read() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    tools = [tool(str(number), 64 * 1024, inputSchema=schema) for number in range(256)]
    offer = await list_offer("box/server", Server(tools), PROFILE, None)
    async with Others() as others:
        assert len((await usable_over_http("box/server", offer)).tools) == 256
    assert others.served >= 15
