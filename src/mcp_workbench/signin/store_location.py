"""Where sign-ins are kept, and whether there is one for an address: all that is asked before anything is imported."""

from __future__ import annotations

import os
from typing import Final

from mcp_workbench.errors import DownstreamError

FILE_NAME: Final = "sign-ins.json"
# What a file begins with that is encrypted.
SEALED_HEAD: Final = b'{"sealed":'


class StoreUnusable(DownstreamError):
    """Tokens can be neither read nor written."""


def folder() -> str:
    """A folder in the user's data folder."""
    from platformdirs import user_data_dir

    data = user_data_dir("mcp-workbench", appauthor=False)
    if not os.path.isabs(data):
        raise StoreUnusable("there is no folder to store sign-ins in", hint="set `HOME`")
    return os.path.join(data, "sign-ins")


def mark_of(server: str) -> str:
    """What stands for a server in a file that is encrypted."""
    import hashlib

    return hashlib.sha256(f"mcp-workbench server\0{server}".encode()).hexdigest()[:32]


def may_hold(url: str) -> bool:
    """Whether somebody may have signed in to this address before. Only then is the rest of the package needed."""
    try:
        # Without waiting: what lies there may be no file.
        path = os.path.join(folder(), FILE_NAME)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read()
            return url.encode() in content or mark_of(url).encode() in content
    except (OSError, StoreUnusable):
        return False
