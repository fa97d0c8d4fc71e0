"""The table of clients: complete, consistent, and what docs/start/clients.md is made from."""

from __future__ import annotations

import pytest

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.dialects import DIALECTS
from mcp_workbench.setup.clients.table import clients, find


def test_twenty_clients_each_with_source_and_date() -> None:
    assert len(clients()) >= 20
    for client in clients().values():
        assert client.source and client.date.startswith("2026-") and client.file
        assert all(file.dialect in DIALECTS for file in client.file)
        assert any(file.scope == "user" for file in client.file)


def test_no_name_means_two_clients() -> None:
    names = [name for client in clients().values() for name in (client.name, *client.aliases)]
    assert len(names) == len(set(names))


def test_a_client_is_found_by_name_alias_and_title() -> None:
    assert find("windsurf") is find("devin") is find("Devin Desktop (was Windsurf)")
    with pytest.raises(ConfigError, match="did you mean `cursor`"):
        find("cursr")
    with pytest.raises(ConfigError, match="known clients: claude-code, "):
        find("emacs")
