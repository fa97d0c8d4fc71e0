"""What tools cost an agent, in tokens: as a flat list, and in every form.

Owns the counting. Knows nothing about where tools come from or how the numbers are displayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mcp_workbench.engine.economy.forms import Form, show
from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.economy.tool import Tool


class Cost(msgspec.Struct, frozen=True):
    """The tokens of some tools. `flat` is for their definitions in a client's list of tools."""

    tools: int
    flat: int
    forms: dict[str, int]


def cost(tools: Sequence[Tool]) -> Cost:
    """What these tools cost in each form."""
    return Cost(
        tools=len(tools),
        flat=flat_cost(tools),
        forms={form.value: sum(tokens(show(tool, form).text) for tool in tools) for form in Form},
    )


def flat_cost(tools: Sequence[Tool]) -> int:
    """What their definitions cost in a client's list of tools."""
    return sum(definition_tokens(tool.definition) for tool in tools)


def definition_tokens(definition: bytes | msgspec.Raw) -> int:
    """What a definition costs in a client's list, without the white space that its server may have put into it. Whoever
    tells people what definitions cost asks this, so that the figures agree."""
    try:
        minified = msgspec.json.format(definition, indent=-1)
    except msgspec.DecodeError:
        minified = bytes(definition)
    return tokens(minified.decode(errors="replace"))
