"""Published servers, by version. Where a package manager or the network is missing, tests are skipped with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.packages import Unavailable, node_packages, python_packages

NODE_PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
PYTHON_PACKAGES = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")


@pytest.fixture(scope="session")
def node_servers() -> Path:
    """A folder in which `npx --no --prefix FOLDER mcp-server-…` starts a server."""
    if shutil.which("npx") is None:
        pytest.skip("needs Node with npm and npx")
    try:
        return node_packages(NODE_PACKAGES)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def python_servers() -> Path:
    """The folder of the programs of a virtual environment."""
    try:
        return python_packages(PYTHON_PACKAGES)
    except Unavailable as reason:
        pytest.skip(str(reason))
