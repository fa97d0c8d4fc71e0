"""Face flat without prefixes: names that one server alone uses stand for themselves; prompts as well as tools."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.base import FaceSettings
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.protocol.handshake import ServerProfile

VIEW = View("")


def face(*, prefix: bool, **servers: list[str]) -> FlatFace:
    """Servers that each offer prompts and tools of these names."""
    configs = {name: ServerConfig(name=name, command="none") for name in servers}
    box = ToolboxConfig(name="default", description="", servers=configs)
    config = WorkbenchConfig(path="plain.json", toolboxes={"default": box}, plain=True)
    catalog = Catalog(config, ManifestStore(lambda: None))
    for entry in catalog.entries():
        definitions = {name: Raw(json.dumps({"name": name}).encode()) for name in servers[entry.name]}
        profile = ServerProfile("legacy", "2025-11-25", Raw(b'{"tools":{},"prompts":{}}'))
        catalog.servers.learn(entry, Offer(profile, {"tools": definitions, "prompts": definitions}, 0))
    return FlatFace(catalog, FaceSettings(prefix=prefix, plain=True))


def shown(face: FlatFace, kind: str) -> list[str]:
    return sorted(json.loads(definition)["name"] for definition in face.definitions(VIEW, kind))


@pytest.mark.parametrize("kind", ["tools", "prompts"])
def test_a_name_that_several_servers_use_keeps_its_prefix(kind: str) -> None:
    assert shown(face(prefix=False, one=["own", "shared"], two=["shared"]), kind) == ["one:shared", "own", "two:shared"]
    assert shown(face(prefix=True, one=["own"], two=["shared"]), kind) == ["one:own", "two:shared"]


@pytest.mark.parametrize("kind", ["tools", "prompts"])
def test_a_definition_keeps_its_bytes_but_for_the_name(kind: str) -> None:
    flat = face(prefix=True, one=[])
    (entry,) = flat.catalog.entries()
    written = b'{ "title":"Own",  "name" :"own",\n "arguments": [ 1.0, "\\u00e9" ] }'
    assert entry.offer is not None
    flat.catalog.servers.learn(entry, Offer(entry.offer.profile, {kind: {"own": Raw(written)}}, 0))
    assert list(flat.definitions(VIEW, kind)) == [written.replace(b'"own"', b'"one:own"')]


def test_a_prompt_is_found_by_the_name_that_is_shown() -> None:
    flat = face(prefix=False, one=["own", "shared"], two=["shared"])
    for name, server, own in (("own", "one", "own"), ("two:shared", "two", "shared")):
        decision = flat.resolve_prompt(VIEW, {"name": Raw(json.dumps(name).encode())})
        assert isinstance(decision, Forward)
        assert (decision.entry.name, decision.item) == (server, own)
