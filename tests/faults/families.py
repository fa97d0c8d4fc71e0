"""Processes that a server leaves behind: in its group, below a wrapper, and as daemons that want to stay.

Owns how they are started. They write their ids into files, because nobody else knows them all.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

SLEEP = ["sleep", "600"]
# How long a family may take to be complete.
PATIENCE = 45.0
KINDS = ("child", "wrapped", "stubborn", "daemon")


def start_family(folder: str) -> dict[str, int]:
    """Start one of each kind; their process ids."""
    path = Path(folder)
    path.mkdir(exist_ok=True)
    # A plain child in our group.
    child = os.posix_spawnp(SLEEP[0], SLEEP, os.environ)
    (path / "child").write_text(str(child))
    # A grandchild below a shell that waits for it, as behind `npx`.
    wrapper = [
        "sh",
        "-c",
        f'sleep 600 & echo $! > "{path}/wrapped.new"; mv "{path}/wrapped.new" "{path}/wrapped"; wait',
    ]
    os.posix_spawnp(wrapper[0], wrapper, os.environ)
    # One that ignores every polite signal.
    stubborn = ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 600; done"]
    (path / "stubborn").write_text(str(os.posix_spawnp(stubborn[0], stubborn, os.environ)))
    start_daemon(path / "daemon")
    return {kind: _read_id(path / kind) for kind in KINDS}


def start_daemon_elsewhere(path: str) -> int:
    """A daemon with an environment of its own; its process id."""
    start_daemon(Path(path), {"PATH": os.environ["PATH"]})
    return _read_id(Path(path))


def _read_id(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    return int(path.read_text())


def start_daemon(path: Path, environment: dict[str, str] | None = None) -> None:
    """A process that forked twice, has a session of its own, holds none of our pipes and ignores TERM."""
    if (intermediate := os.fork()) != 0:
        os.waitpid(intermediate, 0)
        return
    os.setsid()
    # Before the fork: whoever reads the process id may send a signal at once.
    for ignored in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    if (daemon := os.fork()) != 0:
        draft = path.with_suffix(".new")
        draft.write_text(str(daemon))
        os.replace(draft, path)
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.execvpe(SLEEP[0], SLEEP, os.environ if environment is None else environment)
