"""Build dist/mcp-workbench-VERSION.mcpb, the bundle that Claude Desktop installs by a double click.

`.venv/bin/python scripts/build_bundle.py [FILE]`. The bundle holds our sources and names our dependencies; Claude
Desktop brings Python and installs them (server type `uv`). Compiled dependencies could not be included for every system
at once. The same sources make the same bytes.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from mcp_workbench import __version__

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
LAUNCHER = ROOT / "scripts" / "bundle_launcher.py"
ENTRY_POINT = "src/main.py"
# The earliest date that a zip archive can hold: the bundle does not depend on when it was built.
DATE = (1980, 1, 1, 0, 0, 0)
FIRST_STEPS = {
    "toolboxes": {
        "desk": {
            "description": "Notes and the clock, to try things out. To use your own servers, choose a configuration in "
            "Settings, Extensions, MCP Workbench",
            "mcpServers": {
                "notes": {"command": "mcp-workbench", "args": ["demo", "notes", "--with-samples"]},
                "clock": {"command": "mcp-workbench", "args": ["demo", "clock"]},
            },
        }
    }
}
ABOUT = """\
Put all your MCP servers behind one extension. Claude sees two tools, opens the toolbox that it needs, and uses what is
inside; servers start when they are needed and stop when they are idle.

Choose a configuration in the settings of the extension: a `workbench-config.json`, or a file with `mcpServers` as other
clients write it. Without one, the workbench uses the file in your settings folder, or else a toolbox with two small
servers to try it out.
"""


def project() -> dict[str, Any]:
    """What pyproject.toml says of us."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def manifest() -> dict[str, Any]:
    """manifest.json, as the MCPB specification has it."""
    about = project()
    return {
        "manifest_version": "0.4",
        "name": about["name"],
        "display_name": "MCP Workbench",
        "version": __version__,
        "description": _sentence(about["description"]),
        "long_description": ABOUT,
        "author": {"name": about["authors"][0]["name"]},
        "license": about["license"],
        "keywords": about["keywords"],
        "server": {
            "type": "uv",
            "entry_point": ENTRY_POINT,
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", ENTRY_POINT],
                "env": {"WORKBENCH_BUNDLE_CONFIG": "${user_config.configuration}"},
            },
        },
        "tools": [
            {"name": "open_toolbox", "description": "Show what is in a toolbox"},
            {"name": "use_tool", "description": "Use a tool of a toolbox"},
        ],
        # A plain file of servers is shown as it is.
        "tools_generated": True,
        "user_config": {
            "configuration": {
                "type": "file",
                "title": "Configuration",
                "description": "A workbench-config.json, or a file with mcpServers as other clients write it",
                "required": False,
                "default": "",
            }
        },
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": about["requires-python"]}},
    }


def _sentence(description: str) -> str:
    """Without what precedes it on PyPI."""
    text = description.rpartition(": ")[2]
    return text[:1].upper() + text[1:]


def contents() -> dict[str, bytes]:
    """Every file of the bundle."""
    about = project()
    listed = "".join(f"    {json.dumps(each)},\n" for each in about["dependencies"])
    requirements = (
        f'[project]\nname = "mcp-workbench-bundle"\nversion = "{__version__}"\n'
        f'requires-python = "{about["requires-python"]}"\ndependencies = [\n{listed}]\n'
    )
    files = {
        "manifest.json": (json.dumps(manifest(), indent=2) + "\n").encode(),
        "pyproject.toml": requirements.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        ENTRY_POINT: LAUNCHER.read_bytes(),
        "src/first-steps.json": (json.dumps(FIRST_STEPS, indent=2) + "\n").encode(),
    }
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[f"src/mcp_workbench/{path.relative_to(PACKAGE).as_posix()}"] = path.read_bytes()
    return files


def build(target: Path) -> None:
    """Write the bundle."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in contents().items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            bundle.writestr(entry, content)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / f"mcp-workbench-{__version__}.mcpb"
    build(path)
    print(path)
