"""Where sign-ins are stored, and whether there may be one for an address: enough to decide what to import."""

from __future__ import annotations

import os
from typing import Final

from mcp_workbench.engine.portable_os import NONBLOCK
from mcp_workbench.errors import DownstreamError

SIGN_INS_FILE: Final = "sign-ins.json"
# The first bytes of an encrypted file.
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
    """The hash that identifies a server in an encrypted file."""
    import hashlib

    return hashlib.sha256(f"mcp-workbench server\0{server}".encode()).hexdigest()[:32]


def may_hold(url: str) -> bool:
    """Whether there may be a sign-in for this address. Only then is the rest of the package needed."""
    try:
        # Non-blocking, because the path may be a FIFO.
        path = os.path.join(folder(), SIGN_INS_FILE)
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
            content = file.read()
            return url.encode() in content or mark_of(url).encode() in content
    except (OSError, StoreUnusable):
        return False
