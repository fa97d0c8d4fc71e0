"""What Claude Desktop starts from the bundle (`make bundle`): the workbench, for somebody who never sees a terminal.

Chooses the configuration: the one that was picked in the settings of the extension, else the user's own, else a first
one with the servers that are included. Makes `PATH` what it is in a terminal, as far as that can be guessed: a desktop
gives its programs a short one, on which `npx` and `uvx` are not found.
"""

from __future__ import annotations

import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHOSEN = "WORKBENCH_BUNDLE_CONFIG"
FIRST_STEPS = os.path.join(HERE, "first-steps.json")
# Where package managers put programs; the newest Node of `nvm` last, so that a chosen one wins.
USUAL_FOLDERS = (
    "~/.local/bin",
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "~/.volta/bin",
    "~/.bun/bin",
    "~/.deno/bin",
    "~/.cargo/bin",
    "~/.nvm/versions/node/*/bin",
)


def configuration() -> str:
    """The file that is served."""
    from mcp_workbench.engine.config.choose import own_file

    chosen = os.environ.pop(CHOSEN, "")
    # Where nothing was picked, the placeholder may be left as it was.
    if chosen and not chosen.startswith("${"):
        return chosen
    return own_file() or FIRST_STEPS


def usual_path(path: str) -> str:
    """`PATH` with the folders that are there and not in it yet."""
    known = [folder for folder in path.split(os.pathsep) if folder]
    for pattern in USUAL_FOLDERS:
        for folder in sorted(glob.glob(os.path.expanduser(pattern)), reverse=True):
            known += [folder] if folder not in known else []
    return os.pathsep.join(known)


def main() -> int:
    """Serve the client that started us."""
    from mcp_workbench.__main__ import main as run

    os.environ["PATH"] = usual_path(os.environ.get("PATH", os.defpath))
    # For the included servers, which are processes of their own.
    os.environ["PYTHONPATH"] = HERE
    return run(["serve", "--config", configuration()])


if __name__ == "__main__":
    sys.exit(main())
