"""Which programs a client's `PATH` leads to.

Clients put folders of their own into `PATH`, Codex one with a random name for each session. For servers it makes no
difference how the text reads, but which program is started, and which interpreters and package runners that finds.
Owns what is compared instead of the text. Looking up reads the disk, so it is done in a thread, before servers are
compared.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Final

# What servers start by name: interpreters, package runners, containers, shells.
RUNTIMES: Final = (
    *("node", "npm", "npx", "bun", "bunx", "deno", "python", "python3", "uv", "uvx", "pipx", "ruby", "java", "dotnet"),
    *("go", "cargo", "docker", "podman", "git", "sh", "bash"),
)


class ProgramPaths:
    """The programs of one client, as far as they have been looked up."""

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        # An empty part is the current folder, which is the client's.
        parts = environ.get("PATH", os.defpath).split(os.pathsep)
        self._path = os.pathsep.join(os.path.join(folder, part) for part in parts)
        self._found: dict[str, str | None] = {}
        self._runtimes: tuple[str | None, ...] | None = None

    def look_up(self, commands: Iterable[str | None]) -> None:
        """Look up these programs, and what servers start by name. May block."""
        if self._runtimes is None:
            self._runtimes = tuple(map(self._find, RUNTIMES))
        for command in commands:
            if command is not None and command not in self._found:
                self._found[command] = self._find(command)

    def of(self, command: str) -> tuple[str | None, ...] | None:
        """Return what a server with this command depends on; None if that has not been looked up."""
        if self._runtimes is None or command not in self._found:
            return None
        return (self._found[command], *self._runtimes)

    def _find(self, program: str) -> str | None:
        if os.sep in program:
            # Never searched for.
            return program
        found = shutil.which(program, path=self._path)
        if found is None:
            return None
        # `/bin` may be a link to `/usr/bin`. The program itself may not be followed: that of a virtual environment is a
        # link to another one, and behaves differently.
        folder, name = os.path.split(found)
        return os.path.join(os.path.realpath(folder), name)
