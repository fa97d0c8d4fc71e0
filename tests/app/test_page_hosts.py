"""Hosts that a sandbox refused, as the page is told of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.app.page_hosts import can_be_listed, refused_hosts
from mcp_workbench.app.server_links import OTHER_HOSTS
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig

CONFIG = ServerConfig(name="s", command="x", sandbox=SandboxConfig(network=("a.com",)))


def copy(refused: dict[str, int], **decisions: bool) -> Any:
    decided = {name.replace("_", "."): each for name, each in decisions.items()}
    return SimpleNamespace(refused_hosts=refused, entry=SimpleNamespace(host_decisions=decided))


def test_hosts_of_all_copies_are_shown_with_the_setting_that_allows_them() -> None:
    assert refused_hosts(CONFIG, [copy({}), copy({})]) is None
    found = refused_hosts(CONFIG, [copy({"b.com": 1}), copy({"b.com": 1, "c.com:22": 5, OTHER_HOSTS: 1})])
    assert found == {
        "hosts": [
            {"host": "c.com:22", "count": 5, "decision": ""},
            {"host": "b.com", "count": 2, "decision": ""},
            {"host": OTHER_HOSTS, "count": 1, "decision": None},
        ],
        "setting": '"network": ["a.com","c.com:22","b.com"]',
    }


def test_still_refused_hosts_are_not_in_the_setting() -> None:
    found = refused_hosts(CONFIG, [copy({"b.com": 1, "c.com": 1}, b_com=True, c_com=False)])
    assert found is not None and [each["decision"] for each in found["hosts"]] == ["allow", "refuse"]
    assert found["setting"] == '"network": ["a.com","b.com"]'
    found = refused_hosts(CONFIG, [copy({"c.com": 1}, c_com=False)])
    assert found is not None and found["setting"] is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("b.com", True),
        ("b.com:8443", True),
        ("10.1.2.3", True),
        ("[fd00::1]:443", True),
        ("localhost:5432", True),
        # What a server may ask for in order to have a pattern written into its settings.
        ("*.com", False),
        ("*.b.com:443", False),
        ("0.0.0.0/0", False),
        ("0.0.0.0/0:443", False),
        ("::/0", False),
        ("127.1:80", False),
        ("a b", False),
        ("", False),
        (OTHER_HOSTS, False),
    ],
)
def test_only_one_host_can_be_allowed_at_a_time(host: str, expected: bool) -> None:
    assert can_be_listed(host) is expected
