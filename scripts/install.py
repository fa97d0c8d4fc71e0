"""Install the project into the environment whose Python runs this: exact versions, checked hashes, nothing else.

`constraints.txt` lists everything that the program needs and the backend that builds it, `constraints-dev.txt` what
tests and linters need besides. pip installs them in hash-checking mode, so a file that is not listed is refused. The
project itself comes last, editable, without build isolation, because an isolated build fetches its backend unchecked.

Standard library only: this is the first thing that runs on a bare machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Package indexes have short outages, and pip's own retries do not cover a connection that breaks in a download.
ATTEMPTS = 3
PAUSE_SECONDS = 5


def pip(*arguments: str) -> int:
    # Twice quiet: errors are shown, warnings about the machine's pip configuration are not.
    quiet = ("-qq", "--disable-pip-version-check", "--no-input")
    return subprocess.call([sys.executable, "-m", "pip", "install", *quiet, "--no-deps", *arguments], cwd=ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Install MCP Workbench and its pinned dependencies.")
    parser.add_argument("--dev", action="store_true", help="the tools for tests, linting and type checks too")
    options = parser.parse_args()

    if sys.prefix == sys.base_prefix:
        print("Not in a virtual environment; run this through `make`.", file=sys.stderr)
        return 1
    files = ["constraints.txt", "constraints-dev.txt"] if options.dev else ["constraints.txt"]
    print(f"Installing {' and '.join(files)} into {sys.prefix} …", file=sys.stderr, flush=True)
    listed = [argument for file in files for argument in ("--requirement", file)]

    for attempt in range(1, ATTEMPTS + 1):
        status = pip("--require-hashes", "--only-binary", ":all:", *listed)
        if status == 0:
            return pip("--no-build-isolation", "--editable", ".")
        if attempt < ATTEMPTS:
            print(f"pip failed; trying again in {PAUSE_SECONDS} s …", file=sys.stderr, flush=True)
            time.sleep(PAUSE_SECONDS)
    print("\nhint: is a package index reachable from here? `pip config list` shows which one is used.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
