"""Published programs for tests: installed once through their package managers, by version, and kept for the next run.

They lie in the user's cache, outside the sources, and no file records where they were downloaded from. Owns how that is
done; which packages and versions is said where they are used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INSTALL_TIMEOUT = 240
# Looked up before any test points the variable at a folder of its own, where everything would be installed again.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp-workbench-tests"


class Unavailable(Exception):
    """They cannot be had here. Says why."""


def node_packages(packages: Sequence[str]) -> Path:
    """A folder with these in its `node_modules`. Raises `Unavailable`."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise Unavailable("needs Node with npm")
    folder = _kept_folder("node", packages)
    folder.mkdir(parents=True, exist_ok=True)
    flags = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--prefix", str(folder))
    with _alone(folder):
        _install(folder, ["npm", "install", *flags, *packages])
    return folder


def python_packages(packages: Sequence[str]) -> Path:
    """The folder of the programs of a virtual environment with these in it. Raises `Unavailable`."""
    folder = _kept_folder(f"python{sys.version_info[0]}.{sys.version_info[1]}", packages)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    with _alone(folder):
        if not (folder / "installed").exists():
            venv.create(folder, with_pip=True, clear=True)
            _install(folder, [str(programs / "python"), "-m", "pip", "install", "--quiet", *packages])
    return programs


def _kept_folder(kind: str, packages: Sequence[str]) -> Path:
    versions = "-".join(sorted({package.rpartition("@")[2].rpartition("=")[2] for package in packages}))
    # Others have the same versions.
    which = hashlib.sha256("\n".join(sorted(packages)).encode()).hexdigest()[:8]
    return CACHE / f"{kind}-{versions}-{which}"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes of the tests from installing the same: one would clear what another has just installed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, command: list[str]) -> None:
    """Run once for a folder; a folder without its mark is what an interrupted installation left."""
    mark = folder / "installed"
    if mark.exists():
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, cwd=folder)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"`{' '.join(command[:3])}` took longer than {INSTALL_TIMEOUT} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(f"`{' '.join(command[:3])}` failed (offline?): {lines[-1][:200]}")
    mark.touch()
