"""Published servers, installed once through their package managers and kept for the next run.

Owns the versions and where they lie. Where a package manager or the network is missing, tests are skipped with that
as their reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

NODE_PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
PYTHON_PACKAGES = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
INSTALL_TIMEOUT = 240


def _kept_folder(kind: str, packages: tuple[str, ...]) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    versions = "-".join(sorted({package.rpartition("@")[2].rpartition("=")[2] for package in packages}))
    return Path(cache) / "mcp-workbench-tests" / f"{kind}-{versions}"


def _install(folder: Path, command: list[str]) -> None:
    """Run once for a folder; a folder without its mark is what an interrupted installation left."""
    mark = folder / "installed"
    if mark.exists():
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, cwd=folder)
    except subprocess.TimeoutExpired:
        pytest.skip(f"`{' '.join(command[:3])}` took longer than {INSTALL_TIMEOUT} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        pytest.skip(f"`{' '.join(command[:3])}` failed (offline?): {lines[-1][:200]}")
    mark.touch()


@pytest.fixture(scope="session")
def node_servers() -> Path:
    """A folder in which `npx --no --prefix FOLDER mcp-server-…` starts a server."""
    if shutil.which("npm") is None or shutil.which("npx") is None:
        pytest.skip("needs Node with npm and npx")
    folder = _kept_folder("node", NODE_PACKAGES)
    folder.mkdir(parents=True, exist_ok=True)
    _install(folder, ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *NODE_PACKAGES])
    return folder


@pytest.fixture(scope="session")
def python_servers() -> Path:
    """The folder of the programs of a virtual environment."""
    folder = _kept_folder(f"python{sys.version_info[0]}.{sys.version_info[1]}", PYTHON_PACKAGES)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        _install(folder, [str(programs / "python"), "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES])
    return programs
