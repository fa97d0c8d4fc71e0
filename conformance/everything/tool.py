"""What a tool of the everything-server is, and what a call of it has at hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.types import ContentBlock

from conformance.everything.asking import Conversation


class ToolFailed(Exception):
    """The tool has an error for the model to read."""


@dataclass(frozen=True)
class Call:
    """One call."""

    context: ServerRequestContext[Any, Any]
    arguments: Mapping[str, Any]
    conversation: Conversation


def _no_arguments() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True)
class EverythingTool:
    """One tool; a text that it returns becomes one block of content."""

    name: str
    description: str
    run: Callable[[Call], Awaitable[str | list[ContentBlock]]]
    schema: dict[str, Any] = field(default_factory=_no_arguments)
