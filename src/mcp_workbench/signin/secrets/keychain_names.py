"""Records which keychain entries we created, because keychains cannot list them: only names, never values.

Each name has its own file, so that concurrent writers lose nothing. Best effort: an entry works without its record.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Final

from msgspec import MsgspecError
from msgspec.json import decode, encode

# A record is a quoted name; anything larger is not ours.
MAX_KEYCHAIN_RECORD_BYTES: Final = 4096


def folder() -> str | None:
    """The folder of the records; None if the user has no home."""
    from platformdirs import user_data_dir

    data = user_data_dir("mcp-workbench", appauthor=False)
    return os.path.join(data, "keychain-entries") if os.path.isabs(data) else None


def remember(name: str) -> None:
    path = _path(name)
    if path is None:
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(encode(name))


def forget(name: str) -> None:
    path = _path(name)
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def names() -> list[str]:
    """All recorded names, sorted."""
    where = folder()
    found = []
    with contextlib.suppress(OSError):
        for file in os.listdir(where) if where is not None else ():
            with contextlib.suppress(OSError, MsgspecError), open(os.path.join(where or "", file), "rb") as record:
                found.append(decode(record.read(MAX_KEYCHAIN_RECORD_BYTES), type=str))
    return sorted(found)


def _path(name: str) -> str | None:
    where = folder()
    return None if where is None else os.path.join(where, f"{hashlib.sha256(name.encode()).hexdigest()}.json")
