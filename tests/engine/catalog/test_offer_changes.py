"""Which differences between two lists of tools matter to whoever calls them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Definitions, Offer
from mcp_workbench.engine.catalog.offer_changes import tools_differ
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.base import FaceSettings
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.proxy import ProxyFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.errors import DownstreamError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "since": {"type": "string", "default": "2026-01-01T00:00:00Z", "description": "From when."},
        "default": {"type": ["integer", "null"]},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["since", "kind"],
}


def listed(*tools: dict[str, Any]) -> Definitions:
    return {tool["name"]: Raw(json.dumps(tool).encode()) for tool in tools}


def tool(name: str = "one", schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema, **more}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The schema with another value at a place such as `properties/since/default`."""
    schema: dict[str, Any] = json.loads(json.dumps(SCHEMA))
    *steps, last = path.split("/")
    place = schema
    for step in steps:
        place = place[step]
    place[last] = value
    return schema


@pytest.mark.parametrize(
    "after",
    [
        tool(description="Other words"),
        tool(outputSchema={"type": "object"}),
        tool(schema=changed("properties/since/default", "2026-11-15T21:00:00Z")),
        tool(schema=changed("properties/since/description", "Since when.")),
        tool(schema=changed("required", ["kind", "since"])),
        tool(schema=changed("properties/default/type", ["null", "integer"])),
        tool(schema=changed("properties/kind/enum", ["b", "a"])),
        tool(schema=changed("properties/since/examples", ["x"])),
        tool(schema=dict(reversed(SCHEMA.items()))),
    ],
)
def test_words_defaults_and_order_are_no_difference(after: dict[str, Any]) -> None:
    assert not tools_differ(listed(tool()), listed(after))
    assert not tools_differ(listed(tool(), tool("two")), listed(tool("two"), after))


@pytest.mark.parametrize(
    "after",
    [
        tool(schema=changed("required", ["since"])),
        tool(schema=changed("properties/more", {"type": "string"})),
        tool(schema=changed("properties/since/type", "number")),
        tool(schema=changed("properties/default", {"type": "string"})),
        tool(schema=changed("properties/kind/enum", ["a", "b", "c"])),
        tool(schema=None),
        tool("other"),
    ],
)
def test_other_arguments_and_other_tools_are(after: dict[str, Any]) -> None:
    assert tools_differ(listed(tool()), listed(after))


def test_tools_that_come_and_go_are() -> None:
    assert tools_differ(listed(tool()), listed(tool(), tool("two")))
    assert tools_differ(listed(tool(), tool("two")), listed(tool()))
    assert tools_differ({}, listed(tool()))
    assert not tools_differ(listed(tool()), listed(tool()))


def test_more_than_can_be_compared_at_once_differs() -> None:
    many = [tool(str(number), schema=changed("properties/since/default", "x" * 1000)) for number in range(1000)]
    assert tools_differ(listed(*(tool(str(number)) for number in range(1000))), listed(*many))


def test_unreadable_definitions_differ() -> None:
    assert tools_differ(listed(tool()), {"one": Raw(b'{"name": "one", "inputSchema": ' + b"[" * 5000)})


@pytest.mark.requirement("changes.proxy")
def test_agents_are_told_of_differences_alone() -> None:
    box = ToolboxConfig(name="box", description="A box.", servers={"one": ServerConfig(name="one", command="x")})
    store = ManifestStore(lambda: None)
    catalog = Catalog(WorkbenchConfig(path="config", toolboxes={"box": box}), store)
    face = ProxyFace(catalog, FaceSettings(), ToolIndex(catalog, store))
    view, entry = View("somebody"), catalog.toolboxes["box"]["one"]
    view.opened["box"] = None
    changes: list[frozenset[str]] = []
    catalog.subscribe(lambda _, kinds: changes.append(kinds))
    catalog.subscribe(lambda entry, kinds: face.take_note(view, entry, kinds))

    def learn(*tools: dict[str, Any]) -> bool:
        """Whether it is told that the toolbox has changed."""
        view.changed.clear()
        catalog.servers.learn(entry, Offer(ServerProfile("legacy", "2025-11-25"), {"tools": listed(*tools)}))
        return bool(view.changed)

    assert learn(tool(), tool("two"))
    assert not learn(tool("two"), tool(schema=changed("properties/since/default", "now")))
    assert changes[-1] == {"tools"}, "faces that list tools show the new bytes"
    assert learn(tool("two"))
    view.changed.clear()
    catalog.servers.withdraw(entry, DownstreamError("it crashed too often"))
    assert not view.changed, "a server that has failed has the tools it had"
    assert changes[-1] == {"tools"}, "faces that list tools do not list them any more"
    assert not learn(tool("two")), "and has them when it is back"
    assert "tools" in changes[-1]
    catalog.servers.withdraw(entry, DownstreamError("it crashed too often"))
    assert learn(tool("three")), "unless it is back with others"
    view.changed.clear()
    catalog.servers.withdraw(entry, DownstreamError("it crashed too often"))
    catalog.servers.works(entry)
    assert not view.changed


def opened_while_failed() -> tuple[Catalog, ProxyFace, View, ServerEntry]:
    box = ToolboxConfig(name="box", description="A box.", servers={"one": ServerConfig(name="one", command="x")})
    store = ManifestStore(lambda: None)
    catalog = Catalog(WorkbenchConfig(path="config", toolboxes={"box": box}), store)
    face = ProxyFace(catalog, FaceSettings(), ToolIndex(catalog, store))
    view, entry = View("somebody"), catalog.toolboxes["box"]["one"]
    catalog.subscribe(lambda entry, kinds: face.take_note(view, entry, kinds))
    catalog.servers.learn(entry, Offer(ServerProfile("legacy", "2025-11-25"), {"tools": listed(tool())}))
    catalog.servers.withdraw(entry, DownstreamError("it crashed too often"))
    face.opened(view, OpenRequest("box"), {})
    return catalog, face, view, entry


def test_clients_hear_that_a_failed_server_of_their_opened_toolbox_is_back() -> None:
    catalog, _, view, entry = opened_while_failed()
    catalog.servers.works(entry)
    assert view.changed == {"box": "changed"}
    view.changed.clear()
    catalog.servers.withdraw(entry, DownstreamError("it crashed too often"))
    catalog.servers.works(entry)
    assert not view.changed, "it has seen its tools since"


def test_client_that_opened_the_toolbox_again_is_not_notified() -> None:
    catalog, face, view, entry = opened_while_failed()
    catalog.servers.works(entry)
    face.opened(view, OpenRequest("box"), {})
    assert not view.changed and not view.missing
