"""Servers that are known to keep a person's state."""

from __future__ import annotations

import re

import pytest

from mcp_workbench.engine.catalog.stateful import find, keeps_state, known
from mcp_workbench.engine.config.model import ServerConfig


def server(line: str, **settings: dict[str, str]) -> ServerConfig:
    command, *args = line.split()
    return ServerConfig(name="server", command=command, args=tuple(args), **settings)  # type: ignore[arg-type]


@pytest.mark.requirement("sharing.state")
@pytest.mark.parametrize(
    "line",
    [
        "npx -y @modelcontextprotocol/server-sequential-thinking",
        "npx @cyanheads/git-mcp-server@2.3.0",
        "npx -y xcodebuildmcp@latest mcp",
        "uvx code-index-mcp",
        "uvx --python 3.12 mcp-server-tree-sitter==0.5.1",
        "uvx chroma-mcp",
        "uvx chroma-mcp --client-type ephemeral",
        "npx -y @playwright/mcp@latest --headless",
        "docker run -i --rm mcr.microsoft.com/playwright/mcp",
        "npx chrome-devtools-mcp@latest",
        "docker run -i mcp/puppeteer:latest",
        "uvx browser-use[cli] --mcp",
        "npx -y @mobilenext/mobile-mcp@latest",
        "/usr/local/bin/mcp-ssh --allowed-hosts x",
        "npx -y @softeria/ms-365-mcp-server",
        "node /opt/x/node_modules/@playwright/mcp/cli.js --headless",
        "node ./node_modules/chrome-devtools-mcp/build/index.js",
    ],
)
def test_packages_are_recognised(line: str) -> None:
    assert keeps_state(server(line), ())


@pytest.mark.parametrize(
    "line",
    [
        "uvx mcp-server-time",
        "npx -y @modelcontextprotocol/server-filesystem /home/me/mcp-ssh",
        "uvx chroma-mcp --client-type persistent --data-dir /data",
        "uvx mcp-server-git --repository ./code-index-mcp",
        "python -m server --name=xcodebuildmcp",
    ],
)
def test_others_are_not(line: str) -> None:
    assert not keeps_state(server(line), ())


def test_a_variable_can_say_that_nothing_is_kept() -> None:
    assert not keeps_state(server("uvx chroma-mcp", env={"CHROMA_CLIENT_TYPE": "http"}), ())


@pytest.mark.parametrize("row", [row for row in known() if row.tools], ids=lambda row: row.packages[0])
def test_known_server_behind_a_wrapper_is_recognised_by_its_tools(row: object) -> None:
    found = next(each for each in known() if each is row)
    wrapper = server("sh start.sh")
    assert find(wrapper, {"other", *found.tools}) is not None
    assert not keeps_state(wrapper, set(found.tools[1:]) | {"other"}) or len(found.tools) == 1


def test_every_row_says_why_and_where_it_was_seen() -> None:
    for row in known():
        assert row.packages and row.why and row.source
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)
