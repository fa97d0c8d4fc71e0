"""What is created in repositories that a server may write: before it starts, and removed after the last server.

It can only be kept read-only where it exists (`carve_outs`): `.git/commondir`, which says where git finds hooks and
settings, and folders of other programs. Whoever needs it holds a shared lock on it, so that several workbenches can
tell who is the last. One that was killed leaves it to the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import subprocess
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.sandbox.carve_outs import COMMON_FOLDER, COMMON_FOLDER_ITSELF, CREATED_FOLDERS

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.confinement import Companion

_HAS_WORK_TREE: Final = re.compile(rb"^\s*(?:\[core\]\s*)?worktree\s*=", re.IGNORECASE | re.MULTILINE)
_MAX_SETTINGS_BYTES: Final = 1 << 20
# Tells folders of ours from those of the user. An extended attribute leaves a folder empty; where the file system has
# none, it stays.
_CREATED_ATTRIBUTE: Final = "user.mcp-workbench.created"
# Another one may remove it while we take hold of it, which takes it an instant.
_MAX_HOLD_ATTEMPTS: Final = 5
_ATTEMPT_PAUSE: Final = 0.01


def hold_created(paths: Iterable[str], created: Collection[str]) -> CreatedPaths | None:
    """Have those of these paths that are `created` there until the server has ended, and what others have created that
    are gone. Returns what lets go of them; None if there are none."""
    held = {path: descriptor for path in paths if (descriptor := _held(path, path in created)) is not None}
    return CreatedPaths(held) if held else None


def _held(path: str, is_created: bool) -> int | None:
    """A descriptor with a shared lock on what is ours at this path; None if it is the user's, or has to do without."""
    if os.path.basename(path) not in (COMMON_FOLDER, *CREATED_FOLDERS):
        return None
    for _ in range(_MAX_HOLD_ATTEMPTS):
        try:
            if not os.path.lexists(path) and not (is_created and _create(path)):
                return None
            return _locked(path)
        except (BlockingIOError, FileNotFoundError, FileExistsError):
            time.sleep(_ATTEMPT_PAUSE)
        except OSError:
            return None
    return None


def _locked(path: str) -> int | None:
    """Raises `OSError` if another one is removing it."""
    descriptor = _without_waiting(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not _is_at(path, descriptor):
            raise FileNotFoundError
        if _is_ours(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_at(path: str, descriptor: int) -> bool:
    return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))


def _is_ours(path: str, descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    if os.path.basename(path) != COMMON_FOLDER:
        return stat.S_ISDIR(mode) and _CREATED_ATTRIBUTE in os.listxattr(descriptor)
    return stat.S_ISREG(mode) and os.read(descriptor, len(COMMON_FOLDER_ITSELF) + 1) == COMMON_FOLDER_ITSELF


def _create(path: str) -> bool:
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        return False
    if os.path.basename(path) == COMMON_FOLDER:
        return _create_common_folder(path, folder)
    os.mkdir(path)
    with contextlib.suppress(OSError):
        os.setxattr(path, _CREATED_ATTRIBUTE, b"", follow_symlinks=False)
    return True


def _without_waiting(path: str, flags: int) -> int:
    # A server may have put a pipe there, which would wait for somebody who writes.
    return os.open(path, flags | os.O_NONBLOCK)


def _create_common_folder(path: str, folder: str) -> bool:
    import tempfile

    with open(os.path.join(folder, "config"), "rb", opener=_without_waiting) as settings:
        if not stat.S_ISREG(os.fstat(settings.fileno()).st_mode):
            return False
        if _HAS_WORK_TREE.search(settings.read(_MAX_SETTINGS_BYTES)):
            # Git would no longer follow it.
            return False
    # Renamed, because git fails where it finds it empty.
    descriptor, draft = tempfile.mkstemp(dir=folder)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)
        file.write(COMMON_FOLDER_ITSELF)
    os.rename(draft, path)
    return True


class CreatedPaths:
    def __init__(self, held: dict[str, int]) -> None:
        self._held = held
        # What else runs beside the server.
        self._companion: Companion | None = None

    def beside(self, companion: Companion | None) -> CreatedPaths:
        self._companion = companion
        return self

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return None if self._companion is None else self._companion.process

    def begin(self) -> None:
        if self._companion is not None:
            self._companion.begin()

    def abandon(self) -> None:
        if self._companion is not None:
            self._companion.abandon()
        self._let_go()

    async def close(self) -> None:
        if self._companion is not None:
            await self._companion.close()
        self._let_go()

    def _let_go(self) -> None:
        for path, descriptor in self._held.items():
            with contextlib.suppress(OSError):
                # Fails while another one holds it, and removing a folder if something is in it by now.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, descriptor):
                    (os.unlink if os.path.basename(path) == COMMON_FOLDER else os.rmdir)(path)
            os.close(descriptor)
        self._held = {}
