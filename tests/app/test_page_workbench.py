"""What the page is told of servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mcp_workbench.app.page_workbench import _refused
from mcp_workbench.app.server_links import OTHER_HOSTS
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig


def place(*refused: dict[str, int]) -> Any:
    config = ServerConfig(name="s", command="x", sandbox=SandboxConfig(network=("a.com",)))
    connections = [SimpleNamespace(refused_hosts=each) for each in refused]
    return SimpleNamespace(entries=[SimpleNamespace(config=config)], connections=connections)


def test_refused_hosts_of_all_copies_are_shown_with_the_setting_that_allows_them() -> None:
    assert _refused(place({}, {})) is None
    found = _refused(place({"b.com": 1}, {"b.com": 1, "c.com:22": 5, OTHER_HOSTS: 1}))
    assert found == {
        "hosts": [{"host": "c.com:22", "count": 5}, {"host": "b.com", "count": 2}, {"host": OTHER_HOSTS, "count": 1}],
        "setting": '"network": ["a.com","b.com","c.com:22"]',
    }
