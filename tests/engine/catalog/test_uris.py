"""Whose a resource URI is: what is listed, what a result linked to, what a template fits; never a guess."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.uris import claimants, fits, shared_addresses
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.protocol.handshake import ServerProfile


def servers(
    skills: dict[str, dict[str, list[str]]] | None = None, /, **offered: tuple[list[str], list[str]]
) -> list[ServerEntry]:
    """Servers that each list these resources and these templates. `skills`: by server and address, their files."""
    configs = {name: ServerConfig(name=name, command="none") for name in offered}
    box = ToolboxConfig(name="box", description="", servers=configs)
    catalog = Catalog(WorkbenchConfig(path="x", toolboxes={"box": box}), ManifestStore(lambda: None))
    for entry in catalog.entries():
        resources, templates = offered[entry.name]
        lists = {
            "resources": {uri: Raw(json.dumps({"uri": uri}).encode()) for uri in resources},
            "resourceTemplates": {each: Raw(json.dumps({"uriTemplate": each}).encode()) for each in templates},
            "skills": {
                uri: Raw(json.dumps({"uri": uri, "resources": [{"uri": each} for each in files]}).encode())
                for uri, files in (skills or {}).get(entry.name, {}).items()
            },
        }
        catalog.servers.learn(entry, Offer(ServerProfile("legacy", "2025-11-25"), lists))
    return list(catalog.entries())


def claim(entries: list[ServerEntry], uri: str, *linked: str) -> list[str]:
    return [entry.name for entry in claimants(entries, uri, lambda entry: entry.name in linked)]


def test_listed_resource_wins_over_a_template() -> None:
    entries = servers(greedy=([], ["{+any}", "notes://{+rest}", "notes://1"]), notes=(["notes://1"], []))
    assert claim(entries, "notes://1") == ["notes"]
    assert claim(entries, "notes://1", "greedy") == ["notes"], "nor does a link"


def test_catch_all_template_yields_to_any_better_claim() -> None:
    entries = servers(greedy=([], ["{+any}"]), notes=([], ["notes://{id}"]), plain=([], []))
    assert claim(entries, "notes://1") == ["notes"]
    assert claim(entries, "other://1") == ["greedy"]
    assert claim(entries, "other://1", "plain") == ["plain"], "a link is a better claim"


def test_servers_with_equal_right_are_all_named() -> None:
    entries = servers(one=(["a:1"], ["b:{x}", "{x}"]), two=(["a:1"], ["b:{x}/{y}", "{+y}"]), three=([], []))
    assert claim(entries, "a:1") == ["one", "two"]
    assert claim(entries, "b:1/2") == ["one", "two"], "a template that says more is no better: anybody can write one"
    assert claim(entries, "c:1") == ["one", "two"]
    assert claim(entries, "b:1", "three") == ["one", "three"]
    assert claim(servers(one=([], [])), "a:1") == []


def test_skill_directory_takes_no_address_claimed_by_others() -> None:
    entries = servers(
        {"greedy": {"file:///SKILL.md": [], "skill:": []}, "shop": {"skill://pay/SKILL.md": ["skill://pay/a.md"]}},
        greedy=([], []),
        files=([], ["file:///{+path}"]),
        shop=([], []),
        listed=(["file:///b"], []),
        plain=([], []),
    )
    assert claim(entries, "file:///home/x") == ["greedy", "files"]
    assert claim(entries, "file:///b") == ["listed"], "a listed one is its server's"
    assert claim(entries, "file:///c", "plain") == ["greedy", "files", "plain"]
    for own in ("skill://pay/SKILL.md", "skill://pay", "skill://pay/a.md"):
        assert claim(entries, own) == ["shop"]
    assert claim(entries, "skill://pay/not-listed.md") == ["greedy", "shop"]
    assert claim(entries, "file:///SKILL.md") == ["greedy"]


@pytest.mark.parametrize(
    ("uri", "template", "expected"),
    [
        ("a:1", "a:1", True),
        ("a:1", "a:{x}", True),
        ("a:1/2", "a:{x}/{y}", True),
        ("a:1-2", "a:{x}/{y}", False),
        ("a:1", "a:{x}1", True),
        ("a:", "a:{x}:", False),
        ("b:1", "a:{x}", False),
        ("anything", "{+x}", True),
    ],
)
def test_uris_matched_by_a_template(uri: str, template: str, expected: bool) -> None:
    assert fits(uri, template) is expected


@given(st.lists(st.text("ab/", max_size=3), min_size=2, max_size=5), st.lists(st.text("ab", max_size=4), min_size=4))
def test_every_expansion_fits_its_template(literals: list[str], values: list[str]) -> None:
    template = "{x}".join(literals)
    pieces = [literals[0]]
    for value, literal in zip(values, literals[1:], strict=False):
        pieces += [value, literal]
    if len(pieces) == 2 * len(literals) - 1:
        assert fits("".join(pieces), template)


def test_addresses_that_two_servers_list_are_found_pair_by_pair() -> None:
    one, two, three = entries = servers(one=(["a", "b"], []), two=(["b", "a", "c"], []), three=(["c", "d"], []))
    assert shared_addresses(entries, "resources") == {(one, two): ["b", "a"], (two, three): ["c"]}
    assert shared_addresses(entries, "resourceTemplates") == {}
