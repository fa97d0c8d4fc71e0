"""When two entries of different files mean the same server. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def identity(entry: Mapping[str, Any]) -> str:
    """What a server is, whatever it is called: its program and arguments, or its address."""
    if entry.get("command"):
        return json.dumps([entry["command"], *entry.get("args", [])])
    return str(entry.get("url", "")).rstrip("/")
