"""What it costs to open each of many real servers as a toolbox of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from bench.context.data import Count, Listed
from mcp_workbench.economy.forms import Form, show
from mcp_workbench.economy.ladder import DEFAULT_BUDGET, listing, render


class Opened(NamedTuple):
    """Tokens for opening a toolbox (mean, median, most; `counted` by the tokenizer), and how often in which form."""

    toolboxes: int
    mean: float
    median: float
    most: int
    counted: float
    over: int
    forms: dict[str, int]
    flat: float


def open_each(catalogue: Sequence[Listed], count: Count) -> Opened:
    toolboxes: dict[str, list[Listed]] = {}
    for listed in catalogue:
        toolboxes.setdefault(listed.server, []).append(listed)
    costs, counted, forms = [], [], Counter[str]()
    for name, tools in toolboxes.items():
        made = listing([listed.tool(name) for listed in tools])
        costs.append(made.tokens)
        counted.append(count(render(made)))
        forms[f"{made.form}, in pages" if made.cursor else made.form.value] += 1
    return Opened(
        toolboxes=len(toolboxes),
        mean=fmean(costs),
        median=median(costs),
        most=max(costs),
        counted=fmean(counted),
        over=sum(cost > DEFAULT_BUDGET for cost in costs),
        forms=dict(forms.most_common()),
        flat=sum(len(listed.tool().definition) for listed in catalogue) / 4,
    )


def per_tool(catalogue: Sequence[Listed], count: Count) -> dict[str, float]:
    """The mean tokens of one tool in each form."""
    tools = [listed.tool() for listed in catalogue]
    return {form.value: fmean(count(show(tool, form).text) for tool in tools) for form in Form}


def complete_share(catalogue: Sequence[Listed]) -> float:
    """Per cent of tools whose signature says everything about types."""
    return 100 * fmean(show(listed.tool(), Form.SENTENCE).complete for listed in catalogue)
