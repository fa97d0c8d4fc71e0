"""What a path names, and what one may have meant that names nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.names import path_of
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.face.paths import Parts, fitting, named, places_of, readings
from mcp_workbench.engine.protocol.handshake import ServerProfile

PROFILE = ServerProfile(era="legacy", version="2025-11-25", capabilities=Raw(b"{}"), server_info=Raw(b"{}"))


def catalog(boxes: dict[str, dict[str, list[str] | None]]) -> Catalog:
    """`{toolbox: {server: tools}}`; None for a server that has not spoken."""
    toolboxes = {
        box: ToolboxConfig(name=box, description="", servers={name: ServerConfig(name=name) for name in servers})
        for box, servers in boxes.items()
    }
    made = Catalog(WorkbenchConfig(path="x", toolboxes=toolboxes), ManifestStore(lambda: None))
    for box, servers in boxes.items():
        for name, tools in servers.items():
            if tools is not None:
                made.servers.learn(
                    made.toolboxes[box][name],
                    Offer(PROFILE, {"tools": {tool: Raw(b'{"name":"x"}') for tool in tools}}),
                )
    return made


KNOWN = catalog({"dev": {"git": ["log", "a/b"], "files": ["read", "log"]}, "ops": {"git": ["log"], "x": None}})
SLASHES = catalog({"dev": {"a": ["b/run"]}, "dev/a": {"b": None, "c": ["run"]}})


def paths(made: Catalog, path: str) -> list[tuple[str, str, str]]:
    return [(entry.toolbox, entry.name, tool) for entry, tool in named(made, path)]


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("dev/git/log", ("dev", "git", "log")),
        ("dev/git/a/b", ("dev", "git", "a/b")),
        ("dev/git/missing", ("dev", "git", "missing")),
        ("ops/x/anything", ("ops", "x", "anything")),
    ],
)
def test_a_full_path_names_one_tool_whether_or_not_it_is_known(path: str, parts: tuple[str, str, str]) -> None:
    assert paths(KNOWN, path) == [parts]


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    "path",
    ["", "/", "dev", "dev/", "dev/read", "dev/a/b", "git/log", "files/read", "log", "x", "//", "dev//log", "dev/git/"],
)
def test_nothing_less_names_a_tool(path: str) -> None:
    assert named(KNOWN, path) == []


@pytest.mark.requirement("proxy.identity")
def test_every_way_to_split_a_path_counts_known_or_not() -> None:
    assert paths(SLASHES, "dev/a/b/run") == [("dev", "a", "b/run"), ("dev/a", "b", "run")]
    assert paths(SLASHES, "dev/a/c/run") == [("dev", "a", "c/run"), ("dev/a", "c", "run")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("log", [("", "", "log")]),
        ("git/log", [("", "git", "log")]),
        ("dev/log", [("dev", "", "log")]),
        ("dev/a/b", [("dev", "", "a/b")]),
        ("dev/git", [("dev", "git", "")]),
        ("dev/git/", [("dev", "git", "")]),
        ("ops", [("ops", "", ""), ("", "", "ops")]),
        ("nowhere/log", []),
    ],
)
def test_partial_identifier_is_read_from_a_path(path: str, expected: list[Parts]) -> None:
    assert list(readings(KNOWN, path)) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("", "", "log"), ["dev/git/log", "dev/files/log", "ops/git/log"]),
        (("ops", "", "log"), ["ops/git/log"]),
        (("", "git", "log"), ["dev/git/log", "ops/git/log"]),
        (("dev", "git", ""), ["dev/git/log", "dev/git/a/b"]),
        (("", "", "ops/git/log"), ["ops/git/log"]),
        (("dev", "", "git/log"), ["dev/git/log"]),
        (("", "", "b"), []),
    ],
)
def test_known_tools_that_fit_are_found(parts: Parts, expected: list[str]) -> None:
    assert [path_of(entry, tool) for entry, tool in fitting(KNOWN, parts)] == expected


def test_partial_identifier_matches_servers() -> None:
    assert [entry.label for entry in places_of(KNOWN, ("", "git", "log"))] == ["dev/git", "ops/git"]
    assert [entry.label for entry in places_of(KNOWN, ("ops", "", ""))] == ["ops/git", "ops/x"]


NAMES = st.text(alphabet="ab/", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.lists(NAMES, max_size=3), max_size=3), max_size=3))
def test_the_full_path_of_a_tool_names_it_among_the_ways_to_split_it(
    boxes: dict[str, dict[str, list[str] | None]],
) -> None:
    made = catalog(boxes)
    for entry in made.entries():
        for tool in entry.tools:
            assert (entry, tool) in named(made, path_of(entry, tool))
