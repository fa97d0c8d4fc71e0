"""What tools cost an agent, in tokens: as a flat list, in every form, and opened within a budget.

Owns the counting. Refuses to know where tools come from and how the numbers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mcp_workbench.economy.forms import Form, show
from mcp_workbench.economy.ladder import listing, tokens
from mcp_workbench.economy.tool import Tool


class Cost(msgspec.Struct, frozen=True):
    """Tokens of some tools: `flat` is their definitions as a client's list of tools has them."""

    tools: int
    flat: int
    forms: dict[str, int]


class Opened(msgspec.Struct, frozen=True):
    """What opening a toolbox costs: the form that fits, and how many tools the first page has."""

    form: str
    tokens: int
    shown: int


def cost(tools: Sequence[Tool]) -> Cost:
    """What these tools cost in each form."""
    return Cost(
        tools=len(tools),
        flat=sum(tokens(_minified(tool.definition)) for tool in tools),
        forms={form.value: sum(tokens(show(tool, form).text) for tool in tools) for form in Form},
    )


def opened(tools: Sequence[Tool], budget: int | None) -> Opened:
    """What it costs to open them as one toolbox."""
    made = listing(tools, budget=budget)
    return Opened(made.form.value, made.tokens, len(made.shown))


def _minified(definition: bytes) -> str:
    try:
        return msgspec.json.format(definition, indent=-1).decode(errors="replace")
    except msgspec.DecodeError:
        return definition.decode(errors="replace")
