"""Links in results: found wherever the specification puts them, bounded, and nobody else's business."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face import links as links_module
from mcp_workbench.engine.face.links import MAX_LINK_URI_LENGTH, Links, links_in
from mcp_workbench.engine.protocol.handshake import ServerProfile
from tests.support.in_process_workbench import Server, tool, workbench_with

LINK = {"type": "resource_link", "uri": "a:link", "name": "a"}
EMBEDDED = {"type": "resource", "resource": {"uri": "a:embedded", "text": "x"}}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.fixture
def entries() -> list[ServerEntry]:
    configs = {name: ServerConfig(name=name, command="none") for name in ("one", "two")}
    box = ToolboxConfig(name="box", description="", servers=configs)
    catalog = Catalog(WorkbenchConfig(path="x", toolboxes={"box": box}), ManifestStore(lambda: None))
    for entry in catalog.entries():
        catalog.servers.learn(entry, Offer(ServerProfile("legacy", "2025-11-25", Raw(b'{"resources":{}}'))))
    return list(catalog.entries())


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [{"type": "text", "text": '"resource_link"'}, LINK, EMBEDDED]}, ["a:link", "a:embedded"]),
        ({"messages": [{"role": "user", "content": LINK}, {"content": [EMBEDDED]}]}, ["a:link", "a:embedded"]),
        ({"taskId": "1", "result": {"content": [LINK]}}, ["a:link"]),
        ({"content": [{"type": "resource_link", "uri": 5}, LINK]}, ["a:link"]),
        ({"content": [{"type": "resource_link"}, {"type": "resource"}, 5, None, "resource_link"]}, []),
        ({"content": [{"type": "text", "uri": "a:no", "resource": {"uri": "a:no"}}]}, []),
        ({"structuredContent": {"content": [LINK]}}, []),
        ({"content": {"type": "resource_link", "uri": "a:no"}}, []),
        ([LINK], []),
        ({"content": [{**LINK, "uri": "a:" + "x" * MAX_LINK_URI_LENGTH}]}, []),
    ],
)
def test_links_are_found_where_results_have_them(result: Any, expected: list[str]) -> None:
    assert list(links_in(raw(result))) == expected


@given(st.binary(max_size=200))
def test_an_unreadable_result_has_no_links(noise: bytes) -> None:
    whole = b'{"content":[{"type":"resource_link","uri":"a:1"}]}'
    assert list(links_in(Raw(whole))) == ["a:1"]
    assert list(links_in(Raw(whole[:-2] + noise))) in ([], ["a:1"])


@pytest.mark.requirement("resources.links")
def test_links_belong_to_the_principal_that_got_them_and_to_the_server_that_gave_them(
    entries: list[ServerEntry],
) -> None:
    links = Links()
    one, two = entries
    links.note("ann", one, raw({"content": [LINK]}))
    assert links.has("ann", one, "a:link")
    assert not links.has("bob", one, "a:link") and not links.has("ann", two, "a:link")


async def test_links_of_a_server_without_resources_are_not_remembered(tmp_path: Path) -> None:
    server = Server(tool("link"), answer=lambda name, arguments: {"content": [LINK]})
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        result = await seen.use("box/server/link")
        assert result["content"] == [LINK]
        (entry,) = seen.gateway.catalog.entries()
        assert not entry.has_resources and not seen.gateway.face.links.has("", entry, LINK["uri"])


def test_the_oldest_links_of_a_server_are_forgotten_and_no_other_servers(
    entries: list[ServerEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "MAX_LINKS_PER_SERVER", 3)
    links = Links()
    one, two = entries
    links.note("ann", two, raw({"content": [LINK]}))
    for number in (0, 1, 2, 0, 3):
        links.note("ann", one, raw({"content": [{**LINK, "uri": f"a:{number}"}]}))
    assert [number for number in range(4) if links.has("ann", one, f"a:{number}")] == [0, 2, 3]
    assert links.has("ann", two, "a:link")


def test_a_result_without_links_is_not_decoded_nor_one_that_is_too_large(
    entries: list[ServerEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[object] = []

    def counted(result: Raw) -> object:
        decoded.append(result)
        return Decoder(links_module._LinkingResult).decode(result)

    monkeypatch.setattr(links_module, "_decode_result", counted)
    monkeypatch.setattr(links_module, "MAX_LINK_SEARCH_BYTES", 1000)
    links, one = Links(), entries[0]
    links.note("ann", one, raw({"content": [{"type": "text", "text": 'a resource, a "resource_link"'}]}))
    links.note("ann", one, raw({"content": [{"type": "text", "text": "x" * 1000}, LINK]}))
    assert decoded == []
    links.note("ann", one, raw({"content": [LINK]}))
    assert len(decoded) == 1
