"""Comparing the servers of a client costs little for each of them: the loop that does it has other clients waiting."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.registry import SharedServers
from mcp_workbench.engine.config import environment
from mcp_workbench.engine.config.model import ServerConfig, ServerContext, ToolboxConfig, WorkbenchConfig
from mcp_workbench.errors import DownstreamError

VARIABLES = 100
SERVERS = 200


@pytest.fixture
def matches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The variables that were compared with patterns, each time."""
    seen: list[str] = []
    among = environment._Patterns.among

    def counted(self: environment._Patterns, names: Iterable[str]) -> set[str]:
        seen.extend(names)
        return among(self, names)

    monkeypatch.setattr(environment._Patterns, "among", counted)
    return seen


def test_the_environment_of_a_client_is_looked_through_once_for_all_servers(matches: list[str]) -> None:
    servers = {f"s{number}": ServerConfig(name=f"s{number}", command="true") for number in range(SERVERS)}
    box = ToolboxConfig(name="box", description="A box.", servers=servers)
    context = ServerContext(environ={f"LC_{number}": "x" for number in range(VARIABLES)}, folder="/")
    Catalog(WorkbenchConfig(path="c", toolboxes={"box": box}), ManifestStore(lambda: None), SharedServers(), context)
    assert VARIABLES <= len(matches) <= 5 * VARIABLES


def test_an_environment_is_not_kept_for_longer_than_its_servers() -> None:
    box = ToolboxConfig(name="box", description="A box.", servers={"s": ServerConfig(name="s", command="true")})
    shared = SharedServers()
    context = ServerContext(environ={"LC_ALL": "C"}, folder="/")
    catalog = Catalog(WorkbenchConfig(path="c", toolboxes={"box": box}), ManifestStore(lambda: None), shared, context)
    assert shared._environments._base == {"LC_ALL": "C"}
    catalog.close(DownstreamError("closed"))
    assert shared._environments._base == {}
