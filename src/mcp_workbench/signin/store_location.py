"""Where sign-ins are kept, and whether there is one for an address: all that is asked before anything is imported."""

from __future__ import annotations

import os
from typing import Final

from mcp_workbench.errors import DownstreamError

FILE_NAME: Final = "sign-ins.json"


class StoreUnusable(DownstreamError):
    """Tokens can be neither read nor written."""


def folder() -> str:
    """A folder in the user's data folder."""
    from platformdirs import user_data_dir

    data = user_data_dir("mcp-workbench", appauthor=False)
    if not os.path.isabs(data):
        raise StoreUnusable("there is no folder to keep sign-ins in", hint="set `HOME`")
    return os.path.join(data, "sign-ins")


def may_hold(url: str) -> bool:
    """Whether somebody may have signed in to this address before. Only then is the rest of the package needed."""
    try:
        with open(os.path.join(folder(), FILE_NAME), "rb") as file:
            return url.encode() in file.read()
    except (OSError, StoreUnusable):
        return False
