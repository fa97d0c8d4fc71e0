from __future__ import annotations

import json
import shlex

import pytest

from mcp_workbench.cli.client_settings import client_settings

PROGRAM = "/opt/my tools/mcp-workbench"
CONFIG = '/home/me/it\'s "mine".json'


def test_every_client_gets_the_same_command_line() -> None:
    expected = [PROGRAM, "serve", "--config", CONFIG]
    for setting in client_settings(PROGRAM, CONFIG):
        if setting.client == "Claude Code":
            words = shlex.split(setting.text)
            assert words[:5] == ["claude", "mcp", "add", "workbench", "--"]
            assert words[5:] == expected
        else:
            key = "servers" if setting.client == "VS Code" else "mcpServers"
            entry = json.loads(setting.text)[key]["workbench"]
            assert [entry["command"], *entry["args"]] == expected


@pytest.mark.parametrize("client", ["Claude Code", "Claude Desktop", "Cursor", "VS Code"])
def test_the_common_clients_are_covered(client: str) -> None:
    assert client in [setting.client for setting in client_settings(PROGRAM, CONFIG)]


def test_settings_are_laid_out_as_people_write_them() -> None:
    desktop = client_settings("/bin/mcp-workbench", "/c.json")[1]
    assert desktop.text == (
        "{\n"
        '  "mcpServers": {\n'
        '    "workbench": {\n'
        '      "command": "/bin/mcp-workbench",\n'
        '      "args": ["serve", "--config", "/c.json"]\n'
        "    }\n"
        "  }\n"
        "}"
    )
