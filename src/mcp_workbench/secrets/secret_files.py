"""Files that hold a secret: read as a whole, within bounds, never waited for.

Owns what such a file may be. Refuses to know what is in it.
"""

from __future__ import annotations

import os
import stat
from typing import Final

# No program takes a longer argument or variable than 128 KiB, and keys and certificates are a few.
MOST_SECRET_BYTES: Final = 128 * 1024
# Where container runtimes put secrets: everybody in the container can read them there, on purpose.
_MOUNTED: Final = ("/run/secrets/", "/var/run/secrets/")


class Unreadable(Exception):
    """Why a file is not read; `str(error)` goes on from its name."""


def read(path: str) -> tuple[str, bool]:
    """What is in the file, and whether other users can read it. Raises `Unreadable`."""
    try:
        # Without waiting: a pipe without a writer would block for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("is a pipe or a device, expected a file")
            content = file.read(MOST_SECRET_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable("does not exist") from None
    except IsADirectoryError:
        raise Unreadable("is a folder, expected a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Unreadable(f"cannot be read: {reason or error}") from None
    if len(content) > MOST_SECRET_BYTES:
        raise Unreadable(f"is larger than {MOST_SECRET_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8 text") from None
    return text, bool(found.st_mode & stat.S_IROTH) and not os.path.realpath(path).startswith(_MOUNTED)
