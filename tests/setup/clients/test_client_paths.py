"""Where files of clients lie, on three systems of which two are made up."""

from __future__ import annotations

import ntpath

import pytest

from mcp_workbench.setup.clients.client_paths import System, SystemName, patterns, this_system
from mcp_workbench.setup.clients.table import clients

LINUX = System("linux", "/home/ada", {}, "/home/ada/site")
MACOS = System("macos", "/Users/ada", {}, "/Users/ada/site")
WINDOWS = System("windows", "C:\\Users\\ada", {"APPDATA": "C:\\Users\\ada\\AppData\\Roaming"}, "D:\\site")

# Client, which of its files, and where that lies.
PLACES = [
    ("claude-code", 0, "/home/ada/.claude.json", "/Users/ada/.claude.json", "C:\\Users\\ada\\.claude.json"),
    ("claude-code", 1, "/home/ada/site/.mcp.json", "/Users/ada/site/.mcp.json", "D:\\site\\.mcp.json"),
    (
        "claude-desktop",
        0,
        "/home/ada/.config/Claude/claude_desktop_config.json",
        "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json",
        "C:\\Users\\ada\\AppData\\Local\\Packages\\Claude_*\\LocalCache\\Roaming\\Claude\\claude_desktop_config.json",
    ),
    ("cursor", 0, "/home/ada/.cursor/mcp.json", "/Users/ada/.cursor/mcp.json", "C:\\Users\\ada\\.cursor\\mcp.json"),
    (
        "vscode",
        0,
        "/home/ada/.config/Code/User/mcp.json",
        "/Users/ada/Library/Application Support/Code/User/mcp.json",
        "C:\\Users\\ada\\AppData\\Roaming\\Code\\User\\mcp.json",
    ),
    (
        "vscode",
        2,
        "/home/ada/.config/Code/User/profiles/*/mcp.json",
        "/Users/ada/Library/Application Support/Code/User/profiles/*/mcp.json",
        "C:\\Users\\ada\\AppData\\Roaming\\Code\\User\\profiles\\*\\mcp.json",
    ),
    (
        "vscode-insiders",
        0,
        "/home/ada/.config/Code - Insiders/User/mcp.json",
        "/Users/ada/Library/Application Support/Code - Insiders/User/mcp.json",
        "C:\\Users\\ada\\AppData\\Roaming\\Code - Insiders\\User\\mcp.json",
    ),
    (
        "devin",
        0,
        "/home/ada/.config/devin/mcp_config.json",
        "/Users/ada/.config/devin/mcp_config.json",
        "C:\\Users\\ada\\AppData\\Roaming\\devin\\mcp_config.json",
    ),
    (
        "zed",
        0,
        "/home/ada/.config/zed/settings.json",
        "/Users/ada/.config/zed/settings.json",
        "C:\\Users\\ada\\AppData\\Roaming\\Zed\\settings.json",
    ),
    (
        "goose",
        0,
        "/home/ada/.config/goose/config.yaml",
        "/Users/ada/.config/goose/config.yaml",
        "C:\\Users\\ada\\AppData\\Roaming\\Block\\goose\\config\\config.yaml",
    ),
    (
        "codex",
        0,
        "/home/ada/.codex/config.toml",
        "/Users/ada/.codex/config.toml",
        "C:\\Users\\ada\\.codex\\config.toml",
    ),
]


@pytest.mark.parametrize(("client", "index", "linux", "macos", "windows"), PLACES)
def test_the_preferred_place_on_each_system(client: str, index: int, linux: str, macos: str, windows: str) -> None:
    file = clients()[client].file[index]
    assert [patterns(file, system)[0] for system in (LINUX, MACOS, WINDOWS)] == [linux, macos, windows]


def test_variables_move_files() -> None:
    moved = System("linux", "/home/ada", {"CODEX_HOME": "/c", "XDG_CONFIG_HOME": "/x", "COPILOT_HOME": ""}, "/p")
    assert patterns(clients()["codex"].file[0], moved) == ["/c/config.toml"]
    assert patterns(clients()["zed"].file[0], moved) == ["/x/zed/settings.json"]
    assert patterns(clients()["copilot"].file[0], moved) == ["/home/ada/.copilot/mcp-config.json"], "empty is unset"
    flatpak = System("linux", "/home/ada", {"FLATPAK_XDG_CONFIG_HOME": "/f", "XDG_CONFIG_HOME": "/x"}, "/p")
    assert patterns(clients()["zed"].file[0], flatpak) == ["/f/zed/settings.json"]


@pytest.mark.parametrize("system", [LINUX, MACOS, WINDOWS], ids=lambda system: system.name)
def test_every_rule_becomes_an_absolute_path(system: System) -> None:
    for client in clients().values():
        found = [path for file in client.file for path in patterns(file, system)]
        assert found and all(system.flavour.isabs(path) for path in found), client.name
        assert not any(letter in path for path in found for letter in "${}~"), client.name


def test_this_machine_is_one_of_the_three() -> None:
    names: tuple[SystemName, ...] = ("linux", "macos", "windows")
    assert this_system().name in names and ntpath is WINDOWS.flavour
