"""The golden files: for each client and generation a sample, what is read from it, and what `install` makes of it.

`python -m tests.setup.clients.golden_files` writes the results again, to be looked at in a diff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from mcp_workbench.setup.clients.dialects import own_entry, translated
from mcp_workbench.setup.clients.documents import servers_in, with_server
from mcp_workbench.setup.clients.table import ClientFile, clients

FOLDER = Path(__file__).parent / "golden"
COMMAND = ["/opt/bin/mcp-workbench", "serve", "--config", "/home/ada/.config/mcp-workbench/workbench-config.json"]
# Samples of other files than the first for the user: client, and which of its files.
OTHERS = {
    "claude-code-project": ("claude-code", 1),
    "vscode-settings": ("vscode", 1),
    "devin-windsurf": ("devin", 1),
    "kilo-storage": ("kilo", 1),
    "opencode-v1": ("opencode", 0),
    "opencode-v2": ("opencode", 0),
}


class Golden(NamedTuple):
    """One sample."""

    name: str
    file: ClientFile
    before: Path

    @property
    def after(self) -> Path:
        return self.before.with_name("after" + self.before.suffix)

    @property
    def read(self) -> Path:
        return self.before.with_name("read.json")


def golden_files() -> list[Golden]:
    found = []
    for folder in sorted(FOLDER.iterdir()):
        client, index = OTHERS.get(folder.name, (folder.name.removesuffix("-user"), 0))
        (before,) = folder.glob("before.*")
        found.append(Golden(folder.name, clients()[client].file[index], before))
    return found


def read(golden: Golden) -> dict[str, Any]:
    """What `init` takes over, and what it says."""
    written = servers_in(golden.before.read_bytes(), golden.file, golden.before.name)
    found = {name: translated(entry, golden.file.dialect) for name, entry in written.items()}
    return {name: {"entry": one.entry, "remarks": one.remarks} for name, one in found.items()}


def installed(golden: Golden) -> bytes:
    """What `install` writes."""
    entry = own_entry(golden.file.dialect, "workbench", COMMAND, {})
    return with_server(golden.before.read_bytes(), golden.file, "workbench", entry, golden.before.name)


if __name__ == "__main__":
    for each in golden_files():
        each.read.write_text(json.dumps(read(each), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        each.after.write_bytes(installed(each))
