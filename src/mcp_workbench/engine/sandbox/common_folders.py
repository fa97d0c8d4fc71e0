"""`.git/commondir` in repositories that a server may write: created before it starts, removed after the last one.

It says where git finds hooks and settings, and can only be kept read-only where it exists (`carve_outs`). Whoever needs
it holds a shared lock on it, so that several workbenches can tell who is the last. One that was killed leaves it to the
next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mcp_workbench.engine.sandbox.carve_outs import COMMON_FOLDER, COMMON_FOLDER_ITSELF

if TYPE_CHECKING:
    from mcp_workbench.engine.transport.confinement import Companion

_HAS_WORK_TREE: Final = re.compile(rb"^\s*(?:\[core\]\s*)?worktree\s*=", re.IGNORECASE | re.MULTILINE)
_MAX_SETTINGS_BYTES: Final = 1 << 20
# Another one may remove it while we take hold of it.
_MAX_HOLD_ATTEMPTS: Final = 3


def hold_common_folders(paths: Iterable[str], companion: Companion | None) -> Companion | None:
    """Have the files of this name among these paths there until the server has ended. Returns what lets go of them,
    with what else runs beside the server."""
    held = {path: descriptor for path in paths if (descriptor := _held(path)) is not None}
    return CommonFolders(held, companion) if held else companion


def _held(path: str) -> int | None:
    """A descriptor with a shared lock on the file of ours at this path; None if it is none, or has to do without."""
    if os.path.basename(path) != COMMON_FOLDER:
        return None
    for _ in range(_MAX_HOLD_ATTEMPTS):
        with contextlib.suppress(OSError):
            if not os.path.lexists(path):
                _create(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_ours = os.read(descriptor, len(COMMON_FOLDER_ITSELF) + 1) == COMMON_FOLDER_ITSELF
                if is_ours and os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return descriptor
            except OSError:
                pass
            os.close(descriptor)
    return None


def _create(path: str) -> None:
    import tempfile

    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        return
    with open(os.path.join(folder, "config"), "rb") as settings:
        if _HAS_WORK_TREE.search(settings.read(_MAX_SETTINGS_BYTES)):
            # Git would no longer follow it.
            return
    # Renamed, because git fails where it finds it empty.
    descriptor, draft = tempfile.mkstemp(dir=folder)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)
        file.write(COMMON_FOLDER_ITSELF)
    os.rename(draft, path)


class CommonFolders:
    def __init__(self, held: dict[str, int], companion: Companion | None) -> None:
        self._held = held
        self._companion = companion

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
                # Fails while another one holds it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            os.close(descriptor)
        self._held = {}
