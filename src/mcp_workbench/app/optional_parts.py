"""Parts of the program that may be absent: the engine serves without them, and so does whoever embeds only that."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Literal


@cache
def has_part(name: Literal["signin", "team"]) -> bool:
    """Whether this part is installed. Imports nothing of it."""
    try:
        return find_spec(f"mcp_workbench.{name}") is not None
    except ModuleNotFoundError:
        return False
