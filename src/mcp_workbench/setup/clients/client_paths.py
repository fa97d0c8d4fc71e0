"""Where files of clients are on Linux, macOS and Windows: the rules of the table, filled in for one system.

Pure: the system is a value, so each can be tested on any other. Does not check whether a file exists.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Final, Literal

from msgspec import Struct

from mcp_workbench.setup.clients.table import ClientFile

SystemName = Literal["linux", "macos", "windows"]
# The innermost first: a default may contain a variable.
_PATH_VARIABLE: Final = re.compile(r"\$\{([A-Z_]+)(?::-([^${}]*))?\}")


class System(Struct, frozen=True):
    """What paths depend on. `folder` is the project."""

    name: SystemName
    home: str
    environ: Mapping[str, str]
    folder: str

    @property
    def flavour(self) -> ModuleType:
        return ntpath if self.name == "windows" else posixpath


def this_system() -> System:
    """Return the machine that we run on."""
    names: dict[str, SystemName] = {"darwin": "macos", "win32": "windows"}
    home = os.path.expanduser("~")
    return System(names.get(sys.platform, "linux"), home, os.environ, os.getcwd())


def patterns(file: ClientFile, system: System) -> list[str]:
    """Return absolute paths of the file, the preferred one first. A `*` in a path matches any name."""
    rules = file.all or getattr(file, system.name)
    return [_filled_in(rule, system) for rule in rules]


def _filled_in(rule: str, system: System) -> str:
    while True:
        # A variable that is set but empty counts as unset, as the XDG specification requires.
        filled = _PATH_VARIABLE.sub(lambda found: system.environ.get(found[1]) or found[2] or "", rule)
        if filled == rule:
            break
        rule = filled
    flavour = system.flavour
    if rule == "~" or rule.startswith("~/"):
        rule = flavour.join(system.home, rule[2:])
    path: str = flavour.normpath(flavour.join(system.folder, rule))
    return path
