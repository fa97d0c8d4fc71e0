"""Which package a command starts, as far as its arguments say."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.team.lock.packages import about_unpinned, is_pinned, package_of

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


def test_the_image_of_a_sandbox_is_the_package_of_its_server() -> None:
    sandbox = SandboxConfig(image="ghcr.io/x@sha256:abc")
    assert (
        package_of(ServerConfig(name="s", command="npx", args=("x",), sandbox=sandbox)) == "docker:ghcr.io/x@sha256:abc"
    )


@pytest.mark.parametrize(
    ("package", "is_the_same"),
    [
        ("npm:x@1.2.3", True),
        ("npm:@a/b@1.2.3-rc.1", True),
        ("npm:x", False),
        ("npm:@a/b", False),
        ("npm:x@latest", False),
        ("npm:x@^1.2.3", False),
        ("pypi:x==1.2", True),
        ("pypi:x[all]==1.2.post1", True),
        ("pypi:x==1.*", False),
        ("pypi:x>=1.2", False),
        ("pypi:x==latest", False),
        ("docker:x:1", False),
        ("docker:x@sha256:abc", True),
    ],
)
def test_only_an_exact_version_or_a_digest_is_pinned(package: str, is_the_same: bool) -> None:
    assert is_pinned(package) == is_the_same


def test_servers_that_may_be_another_version_tomorrow_are_named() -> None:
    loose = ServerConfig(name="a", command="npx", args=("-y", "x"))
    exact = ServerConfig(name="b", command="uvx", args=("y@1.0",))
    said = about_unpinned([("box/a", loose), ("box/b", exact), ("box/c", ServerConfig(name="c", command="cat"))])
    assert said is not None and "box/a (`npm:x`)" in said and "box/b" not in said
    assert about_unpinned([("box/b", exact)]) is None
