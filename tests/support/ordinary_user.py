"""Work that has to be done as an ordinary user: root may do what others may not, and tests often run as root."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534
MAX_SECONDS = 90
_PR_SET_DUMPABLE = 4


def as_ordinary_user(work: Callable[[], Any]) -> Any:
    """Do this in a process of its own, as an ordinary user. Returns what it returns, which is sent as JSON. It can
    import nothing new: what root has installed may be unreadable then."""
    return in_own_process(work, _become_ordinary)


def _become_ordinary() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        # The kernel hides the memory of a process that was root.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def in_own_process(work: Callable[[], Any], prepare: Callable[[], None]) -> Any:
    """Do this in a process of its own, after it has been prepared. Returns what it returns, which is sent as JSON."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receiving)
        status = 1
        try:
            # Ends it, and with it what waits for it.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MAX_SECONDS)
            prepare()
            with os.fdopen(sending, "w") as file:
                json.dump(work(), file)
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    os.close(sending)
    with os.fdopen(receiving) as file:
        said = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "see stderr"
    return json.loads(said)


@contextmanager
def folder_of_ordinary_user(within: str = "/tmp") -> Iterator[Path]:
    """A folder that belongs to that user, with a short path."""
    with tempfile.TemporaryDirectory(dir=within) as path:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        yield Path(path)
