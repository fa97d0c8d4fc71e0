"""The demo servers as the official SDK's client sees them: it starts them and judges every message by its own types."""

from __future__ import annotations

import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters

# "legacy" shakes hands; "auto" probes with `server/discover`, which finds the modern era.
ERAS = ("legacy", "auto")
VERSION_OF = {"legacy": "2025-11-25", "auto": "2026-07-28"}


def command(server: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"mcp_workbench.cli.demo.{server}", *map(str, arguments)]


def connect(server: str, *arguments: object, era: str, **options: Any) -> Client:
    program, *rest = command(server, *arguments)
    # The SDK passes on only a few variables, and the package may be found through PYTHONPATH.
    parameters = StdioServerParameters(command=program, args=rest, env=dict(os.environ))
    return Client(parameters, mode=era, read_timeout_seconds=20, **options)
