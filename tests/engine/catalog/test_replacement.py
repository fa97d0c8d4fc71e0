"""What another configuration changes, told before anything is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import CHANGED_IN_CONFIG, REMOVED, Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.replacement import Changes, Difference, compare
from mcp_workbench.engine.config.load import parse
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.protocol.handshake import ServerProfile

GIT = {"command": "git"}
LOGS = {"command": "logs"}
BEFORE: dict[str, Any] = {"dev": {"git": GIT, "files": {"command": "files"}}, "ops": {"logs": LOGS}}


def config(boxes: dict[str, Any], environ: dict[str, str] | None = None, **settings: Any) -> WorkbenchConfig:
    toolboxes = {name: {"description": "d", "mcpServers": servers} for name, servers in boxes.items()}
    return parse(json.dumps({"toolboxes": toolboxes, **settings}).encode(), "w.json", environ or {})


def catalog_of(boxes: dict[str, Any]) -> Catalog:
    return Catalog(config(boxes), ManifestStore(lambda: None))


def offer_of(*tools: str) -> Offer:
    definitions = {name: Raw(json.dumps({"name": name, "inputSchema": {}}).encode()) for name in tools}
    return Offer(ServerProfile("legacy", "2025-11-25"), {"tools": definitions})


def test_the_same_file_again_changes_nothing() -> None:
    difference = compare(config(BEFORE), config(BEFORE))
    assert not difference
    assert difference.servers.untouched == (("dev", "git"), ("dev", "files"), ("ops", "logs"))
    assert difference.toolboxes == Changes(untouched=("dev", "ops"))


@pytest.mark.parametrize("kind", ["added", "removed", "changed", "adjusted"])
def test_one_kind_of_change_is_enough(kind: str) -> None:
    place, nothing = ("dev", "git"), Changes[Any](untouched=("dev",))
    changes = Changes[Any](**{kind: (place,)})
    assert changes and not nothing
    assert Difference(changes, nothing, ()) and Difference(nothing, changes, ())
    assert Difference(nothing, nothing, ("face",)) and not Difference(nothing, nothing, ())


def test_servers_and_toolboxes_are_added_removed_changed_and_untouched() -> None:
    after = {"dev": {"git": GIT, "files": {"command": "files", "args": ["x"]}, "new": GIT}, "web": {"page": GIT}}
    difference = compare(config(BEFORE), config(after))
    assert difference.servers == Changes(
        added=(("dev", "new"), ("web", "page")),
        removed=(("ops", "logs"),),
        changed=(("dev", "files"),),
        untouched=(("dev", "git"),),
    )
    assert difference.toolboxes == Changes(added=("web",), removed=("ops",), changed=("dev",))


@pytest.mark.parametrize(
    "setting", [{"timeout": 7}, {"toolFilters": ["a*"]}, {"idleTimeout": None}, {"resultBudget": 900}]
)
def test_a_server_that_is_only_treated_otherwise_stays_the_same(setting: dict[str, Any]) -> None:
    difference = compare(config(BEFORE), config({**BEFORE, "ops": {"logs": {**LOGS, **setting}}}))
    assert difference.servers.adjusted == (("ops", "logs"),)
    assert not difference.servers.changed


@pytest.mark.parametrize(
    "setting", [{"args": ["x"]}, {"env": {"A": "b"}}, {"cwd": "/"}, {"command": "other"}, {"protocol": "modern"}]
)
def test_a_server_that_would_run_otherwise_is_another_one(setting: dict[str, Any]) -> None:
    difference = compare(config(BEFORE), config({**BEFORE, "ops": {"logs": {**LOGS, **setting}}}))
    assert difference.servers.changed == (("ops", "logs"),)


def test_a_server_whose_env_file_has_changed_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1")
    boxes = {"dev": {"git": GIT}, "ops": {"logs": {**LOGS, "envFile": str(file)}}}
    before = config(boxes)
    assert not compare(before, config(boxes)), "read again, it is the same"
    os.utime(file, (1, 1))
    difference = compare(before, config(boxes))
    assert difference.servers == Changes(changed=(("ops", "logs"),), untouched=(("dev", "git"),))


@pytest.mark.parametrize("others", [{}, {"cwd": "/"}, {"ask": False, "cwd": "/"}])
def test_a_server_that_becomes_everyones_is_another_one(others: dict[str, Any]) -> None:
    """State of one user must not reach others."""
    own, everyones = ({**BEFORE, "ops": {"logs": {**LOGS, **others, **more}}} for more in ({}, {"share": "everyone"}))
    for before, after in ((own, everyones), (everyones, own)):
        assert compare(config(before), config(after)).servers.changed == (("ops", "logs"),)


def test_a_server_that_gets_the_variable_it_lacked_is_another_one() -> None:
    boxes = {"ops": {"logs": {**LOGS, "args": ["${KEY}"]}}}
    difference = compare(config(boxes), config(boxes, {"KEY": "there"}))
    assert difference.servers.changed == (("ops", "logs"),)


def test_a_server_that_was_never_started_is_another_one_with_any_change() -> None:
    """Also where the variable says nothing of which server it is."""

    def logs(*filters: str, timeout: float = 5) -> dict[str, Any]:
        return {"ops": {"logs": {**LOGS, "toolFilters": filters, "timeout": timeout}}}

    lacking, there = config(logs("${KEY}")), config(logs("${KEY}"), {"KEY": "there"})
    still_lacking = config(logs("${KEY}", timeout=7))
    for before, after in ((lacking, there), (there, lacking), (lacking, still_lacking)):
        assert compare(before, after).servers.changed == (("ops", "logs"),)


def test_server_names_with_slashes_are_distinguished() -> None:
    before, after = {"a/b": {"c": GIT}}, {"a": {"b/c": GIT}}
    difference = compare(config(before), config(after))
    assert (difference.servers.removed, difference.servers.added) == ((("a/b", "c"),), (("a", "b/c"),))


def test_settings_of_the_file_are_named() -> None:
    assert compare(config(BEFORE), config(BEFORE, budget=900, pin=["dev/git/x"])).settings == ("budget", "pin")


def test_a_plan_changes_nothing() -> None:
    catalog = catalog_of(BEFORE)
    before, revision = catalog.toolboxes, catalog.revision
    catalog.plan(config({"web": {"page": GIT}}))
    assert (catalog.toolboxes, catalog.revision) == (before, revision)
    assert all(entry.ended is None for entry in catalog.entries())


def test_unchanged_server_keeps_its_entry_with_everything_known_of_it() -> None:
    catalog = catalog_of(BEFORE)
    git, files, logs = catalog.entries()
    catalog.servers.learn(logs, offer_of("tail", "head"))
    told: list[tuple[ServerEntry, frozenset[str]]] = []
    catalog.subscribe(lambda entry, kinds: told.append((entry, kinds)))
    after = {"ops": {"logs": {**LOGS, "toolFilters": ["tail"]}}, "dev": {"git": GIT, "files": {"command": "other"}}}
    catalog.replace(catalog.plan(config(after)))
    assert list(catalog.toolboxes) == ["ops", "dev"]
    assert (catalog.toolboxes["ops"]["logs"], catalog.toolboxes["dev"]["git"]) == (logs, git)
    assert list(logs.tools) == ["tail"]
    assert told == [(logs, frozenset({"tools"}))]
    assert catalog.toolboxes["dev"]["files"] is not files
    assert catalog.toolboxes["dev"]["files"].label == "dev/files"
    assert files.ended is not None and files.ended.message == CHANGED_IN_CONFIG


def test_removing_a_server_announces_its_lists_and_records_the_reason() -> None:
    catalog = catalog_of(BEFORE)
    logs = catalog.toolboxes["ops"]["logs"]
    catalog.servers.learn(logs, offer_of("tail"))
    told: list[tuple[ServerEntry, frozenset[str]]] = []
    catalog.subscribe(lambda entry, kinds: told.append((entry, kinds)))
    catalog.replace(catalog.plan(config({"dev": BEFORE["dev"]})))
    assert told == [(logs, frozenset({"tools"}))]
    assert logs.ended is not None and logs.ended.message == REMOVED


def test_a_server_that_is_no_more_has_nothing_to_tell() -> None:
    catalog = catalog_of(BEFORE)
    logs = catalog.toolboxes["ops"]["logs"]
    catalog.replace(catalog.plan(config({"dev": BEFORE["dev"]})))
    told: list[ServerEntry] = []
    catalog.subscribe(lambda entry, kinds: told.append(entry))
    catalog.servers.learn(logs, offer_of("late"))
    assert told == []


def test_a_new_server_that_lacks_a_variable_says_so() -> None:
    catalog = catalog_of(BEFORE)
    catalog.replace(catalog.plan(config({**BEFORE, "web": {"page": {"command": "${MISSING}"}}})))
    failure = catalog.toolboxes["web"]["page"].failure
    assert failure is not None and "MISSING" in failure.message
