"""What a path that a model writes can mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.manifests import ManifestStore
from mcp_workbench.catalog.names import path_of
from mcp_workbench.catalog.offer import Offer
from mcp_workbench.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.face.paths import Ambiguous, NotListed, ResolvedPath, concerned, find, related
from mcp_workbench.protocol.handshake import ServerProfile

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


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("dev/git/log", "dev/git/log"),
        ("dev/read", "dev/files/read"),
        ("dev/a/b", "dev/git/a/b"),
        ("files/read", "dev/files/read"),
        ("dev/git/missing", "dev/git/missing"),
        ("ops/x/anything", "ops/x/anything"),
    ],
)
def test_a_path_means_one_tool(path: str, meant: str) -> None:
    found = find(KNOWN, path)
    assert isinstance(found, ResolvedPath)
    assert path_of(found.entry, found.tool) == meant


@pytest.mark.parametrize(
    ("path", "paths"),
    [("dev/log", ("dev/git/log", "dev/files/log")), ("git/log", ("dev/git/log", "ops/git/log"))],
)
def test_two_meanings_are_told(path: str, paths: tuple[str, ...]) -> None:
    assert find(KNOWN, path) == Ambiguous(paths)


@pytest.mark.parametrize("path", ["", "/", "dev", "dev/", "dev/nothing", "nowhere/log", "x", "//", "dev//log"])
def test_nothing_is_meant(path: str) -> None:
    assert find(KNOWN, path) is None


def test_servers_that_have_not_spoken_may_have_it() -> None:
    found = find(KNOWN, "ops/something")
    assert isinstance(found, NotListed)
    assert [entry.name for entry in found.entries] == ["x"]


def test_a_known_tool_comes_before_an_unknown_one_of_the_server_that_is_named() -> None:
    made = catalog({"dev": {"git": ["log"], "other": ["git/status"]}})
    found = find(made, "dev/git/status")
    assert isinstance(found, ResolvedPath)
    assert path_of(found.entry, found.tool) == "dev/other/git/status"


def test_whom_a_path_concerns() -> None:
    assert [entry.name for entry in concerned(KNOWN, "dev/git/log")] == ["git"]
    assert [entry.name for entry in concerned(KNOWN, "dev/log")] == ["git", "files"]
    assert len(list(concerned(KNOWN, "files/read"))) == 4
    assert [path_of(entry, "t") for entry in related(KNOWN, "git/log")] == ["dev/git/t", "ops/git/t"]


NAMES = st.text(alphabet="ab/", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.lists(NAMES, max_size=3), max_size=3), max_size=3))
def test_the_whole_path_of_a_tool_means_that_tool_or_is_said_to_be_ambiguous(
    boxes: dict[str, dict[str, list[str] | None]],
) -> None:
    made = catalog(boxes)
    for entry in made.entries():
        for tool in entry.tools:
            path = path_of(entry, tool)
            found = find(made, path)
            if isinstance(found, Ambiguous):
                assert path in found.paths
            else:
                assert isinstance(found, ResolvedPath)
                assert path_of(found.entry, found.tool) == path
