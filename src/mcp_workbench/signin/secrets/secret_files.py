"""Reads files that hold a secret, with a size limit and without blocking.

Owns what such a file may be. Knows nothing about its content.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from mcp_workbench.engine.portable_os import NONBLOCK

# Linux limits arguments and variables to 128 KiB each; keys and certificates are a few KiB.
MAX_SECRET_BYTES: Final = 128 * 1024
# Container runtimes mount secrets here, deliberately readable by every user in the container.
_MOUNTED: Final = ("/run/secrets/", "/var/run/secrets/")


class Unreadable(Exception):
    """Why a file is not read; `str(error)` continues a sentence that begins with its name."""


def read(path: str) -> tuple[str, bool]:
    """The content of the file, and whether other users can read it. Raises `Unreadable`."""
    try:
        # Non-blocking, because opening a FIFO without a writer would block for ever.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("is a pipe or a device, expected a file")
            content = file.read(MAX_SECRET_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable("does not exist") from None
    except IsADirectoryError:
        raise Unreadable("is a folder, expected a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Unreadable(f"cannot be read: {reason or error}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise Unreadable(f"is larger than {MAX_SECRET_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8 text") from None
    return text, bool(found.st_mode & stat.S_IROTH) and not os.path.realpath(path).startswith(_MOUNTED)
