"""Which package a command starts, as far as its arguments say."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.team.lock.packages import package_of

CASES = {
    "npx -y @modelcontextprotocol/server-filesystem@1.2.3 /tmp": "npm:@modelcontextprotocol/server-filesystem@1.2.3",
    "/usr/bin/npx --yes server-x": "npm:server-x",
    "npx -p @a/b@2 -c run": "npm:@a/b@2",
    "npx --package=@a/b@2 run": "npm:@a/b@2",
    "npx.cmd -y x@1": "npm:x@1",
    "npm exec -- x@1": "npm:x@1",
    "bunx x@1": "npm:x@1",
    "uvx mcp-server-time==1.2": "pypi:mcp-server-time==1.2",
    "uvx mcp-server-time@1.2 --x": "pypi:mcp-server-time==1.2",
    "uvx --python 3.12 --from mcp-x[all]==2 run": "pypi:mcp-x[all]==2",
    "uv tool run mcp-x@1": "pypi:mcp-x==1",
    "pipx run mcp-x==1": "pypi:mcp-x==1",
    "docker run -i --rm -e TOKEN ghcr.io/github/x@sha256:abc": "docker:ghcr.io/github/x@sha256:abc",
    "docker ps": "",
    "npx -y": "",
    "uvx": "",
    "python server.py": "",
    "npx -y x@${VERSION}": "",
}


@pytest.mark.parametrize("line", CASES)
def test_the_package_is_found(line: str) -> None:
    command, *args = line.split()
    assert package_of(ServerConfig(name="s", command=command, args=tuple(args))) == CASES[line]


def test_an_address_has_none() -> None:
    assert package_of(ServerConfig(name="s", url="https://example.com/mcp", transport="http")) == ""
