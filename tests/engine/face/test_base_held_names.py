"""Exposed names over restarts: no server takes one that another's manifest held before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.held_names import HeldNames
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.base import Face, FaceSettings
from mcp_workbench.engine.face.dynamic import DynamicFace
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.protocol.handshake import ServerProfile
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.in_process_workbench import Server, tool, workbench_with
from tests.support.processes import eventually

PROFILE = ServerProfile("legacy", "2025-11-25", Raw(b'{"tools":{},"prompts":{}}'))


def config_of(**settings: Any) -> WorkbenchConfig:
    """Two servers; `settings` are those of `my_srv`."""
    configs = {"my": ServerConfig(name="my", command="one", cwd="/")}
    configs["my_srv"] = ServerConfig(name="my_srv", command="two", cwd="/", **settings)
    box = ToolboxConfig(name="box", description="", servers=configs)
    return WorkbenchConfig(path="/plain.json", toolboxes={"box": box}, plain=True)


def started(folder: Path, kind: str, config: WorkbenchConfig | None = None, *, prefix: bool = True) -> Face:
    """A process that starts: what is cached is known, and nothing else."""
    catalog = Catalog(config or config_of(), ManifestStore(lambda: str(folder)))
    catalog.load(catalog.entries())
    if kind == "flat":
        return FlatFace(catalog, FaceSettings(prefix=prefix, plain=True, separator="_"))
    return DynamicFace(catalog, FaceSettings(plain=True))


def listed(face: Face, server: str, *names: str) -> None:
    entry = face.catalog.toolboxes["box"][server]
    definitions = {name: Raw(json.dumps({"name": name}).encode()) for name in names}
    face.catalog.servers.learn(entry, Offer(PROFILE, {"tools": definitions, "prompts": definitions}, 0))


def shown(face: Face) -> dict[str, str]:
    """Exposed names, and who has them."""
    view = View("")
    view.opened["box"] = None
    face.settle_names(face.catalog.entries())
    names = [json.loads(definition)["name"] for definition in face.tools(view)]
    save = face.catalog.held_names.unsaved()
    if save is not None:
        save()
    holders = face.holders("tools")
    return {name: holders[name].entry.name for name in names if name in holders}


@pytest.mark.requirement("names.collisions")
@pytest.mark.parametrize(("kind", "name"), [("flat", "my_srv_tool"), ("dynamic", "box__my_srv_tool")])
def test_server_keeps_its_exposed_name_after_a_restart_in_any_file_order(tmp_path: Path, kind: str, name: str) -> None:
    face = started(tmp_path, kind)
    listed(face, "my_srv", "tool")
    assert shown(face)[name] == "my_srv"
    listed(face, "my", "srv_tool")
    assert shown(face)[name] == "my_srv"
    # Both manifests have it now, and `my` comes first.
    again = started(tmp_path, kind)
    assert shown(again)[name] == "my_srv"
    listed(again, "my", "srv_tool")
    assert shown(again)[name] == "my_srv"


@pytest.mark.requirement("names.collisions")
@pytest.mark.parametrize(("kind", "name"), [("flat", "my_srv_tool"), ("dynamic", "box__my_srv_tool")])
def test_the_names_of_a_server_that_is_not_listed_yet_wait_for_it(tmp_path: Path, kind: str, name: str) -> None:
    face = started(tmp_path, kind)
    listed(face, "my_srv", "tool")
    listed(face, "my")
    assert shown(face)[name] == "my_srv"
    # Its configuration has changed since, so nothing is cached of it.
    changed = config_of(env={"TOKEN": "new"})
    again = started(tmp_path, kind, changed)
    listed(again, "my", "srv_tool")
    assert name not in shown(again)
    listed(again, "my_srv", "tool")
    assert shown(again)[name] == "my_srv"


def test_without_prefixes_a_plain_name_waits_too(tmp_path: Path) -> None:
    face = started(tmp_path, "flat", prefix=False)
    listed(face, "my_srv", "search")
    listed(face, "my")
    assert shown(face) == {"search": "my_srv"}
    changed = config_of(env={"TOKEN": "new"})
    again = started(tmp_path, "flat", changed, prefix=False)
    listed(again, "my", "search")
    assert shown(again) == {"my_search": "my"}
    listed(again, "my_srv", "search")
    assert shown(again) == {"my_search": "my", "search": "my_srv"}


def test_changed_configuration_does_not_reassign_exposed_names(tmp_path: Path) -> None:
    face = started(tmp_path, "flat")
    listed(face, "my_srv", "tool")
    listed(face, "my")
    assert shown(face) == {"my_srv_tool": "my_srv"}
    changed = config_of(env={"TOKEN": "new"})
    face.catalog.replace(face.catalog.plan(changed))
    listed(face, "my", "srv_tool")
    assert shown(face) == {}
    listed(face, "my_srv", "tool")
    assert shown(face) == {"my_srv_tool": "my_srv"}


def test_a_name_that_its_server_gave_up_or_that_the_user_changed_is_free(tmp_path: Path) -> None:
    face = started(tmp_path, "flat")
    listed(face, "my_srv", "tool")
    listed(face, "my")
    assert shown(face) == {"my_srv_tool": "my_srv"}
    renamed = config_of(rename={"tool": "other"})
    again = started(tmp_path, "flat", renamed)
    listed(again, "my", "srv_tool")
    assert shown(again) == {"my_srv_tool": "my", "my_srv_other": "my_srv"}
    third = started(tmp_path, "flat")
    listed(third, "my_srv", "something")
    listed(third, "my", "srv_tool")
    assert shown(third) == {"my_srv_tool": "my", "my_srv_something": "my_srv"}


def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    face = started(tmp_path, "flat")
    listed(face, "my_srv", "tool")
    shown(face)
    (record,) = tmp_path.glob("names-*.bin")
    record.write_bytes(b'{"flat": 7}')
    assert shown(started(tmp_path, "flat")) == {"my_srv_tool": "my_srv"}


@pytest.mark.requirement("names.collisions")
@pytest.mark.parametrize("principal", ["", "bob"])
@pytest.mark.parametrize("policy", [[], [{"tools": ["*/*/secret*"], "then": "hide"}, {"then": "allow"}]])
async def test_a_workbench_that_is_started_again_knows_the_names_of_the_last(
    tmp_path: Path, cache_folder: Path, policy: list[Any], principal: str
) -> None:
    options = {"face": "flat", "separator": "_"}

    async def tools(boxes: dict[str, dict[str, Server]], *, until_saved: bool = False) -> dict[str, Any]:
        async with workbench_with(tmp_path, boxes, options=options, policy=policy) as seen:
            # Of two users, the second one is asked about.
            async with (
                MemoryClient.of(seen.gateway, "alice") as other,
                MemoryClient.of(seen.gateway, principal) as client,
            ):
                for each in (other, client) if principal else (client,):
                    await introduce(each, "legacy")
                if principal:
                    await other.request("tools/list", {})
                found = (await client.request("tools/list", {}))["tools"]
                if until_saved:
                    await eventually(lambda: len(list(cache_folder.rglob("*names-*.bin"))) == 1 + bool(principal))
        return {each["name"]: each for each in found}

    boxes = {"default": {"my": Server(tool("fine")), "my_srv": Server(tool("tool"))}}
    assert list(await tools(boxes, until_saved=True)) == ["default_my_fine", "default_my_srv_tool"]
    # Nothing else is known of the second, and the first has a tool more.
    for manifest in cache_folder.rglob("*.json"):
        manifest.unlink()
    boxes = {
        "default": {"my": Server(tool("fine"), tool("srv_tool", "Evil.")), "my_srv": Server(tool("tool", "Good."))}
    }
    assert (await tools(boxes))["default_my_srv_tool"]["description"] == "Good."


def test_names_held_for_a_user_are_private_and_dropped_with_their_cache(tmp_path: Path) -> None:
    store = ManifestStore(lambda: str(tmp_path))
    for principal, server in (("alice", "one"), ("bob", "two")):
        names = HeldNames(store, "/plain.json", lambda: None, principal)
        names.take(names.read())
        names.note("flat", "tools", {"tool": ("box", server, "tool")})
        save = names.unsaved()
        assert save is not None
        save()
    for principal, held in (("bob", {"tool": ("box", "two", "tool")}), ("", {})):
        names = HeldNames(store, "/plain.json", lambda: None, principal)
        names.take(names.read())
        assert names.of("flat", "tools") == held
    store.drop_users()
    assert HeldNames(store, "/plain.json", lambda: None, "bob").read() is None
