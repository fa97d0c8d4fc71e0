"""Which tools of a server must be called as tasks, as servers of 2025-11-25 say in their definitions. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.offer import Definitions


class _Execution(Struct, frozen=True):
    taskSupport: str = ""


class _ExecutedTool(Struct):
    execution: _Execution = _Execution()


_decode: Final = Decoder(_ExecutedTool).decode


def requiring_tasks(tools: Definitions) -> frozenset[str]:
    return frozenset(name for name, tool in tools.items() if b'"taskSupport"' in bytes(tool) and _is_required(tool))


def _is_required(tool: bytes) -> bool:
    try:
        return _decode(tool).execution.taskSupport == "required"
    except (DecodeError, ValidationError):
        return False
