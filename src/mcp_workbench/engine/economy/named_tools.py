"""The definitions of tools requested by name, within a budget.

Owns what happens if they do not fit: all are shown in a leaner form, else as many as fit, and the others are named so
that they can be requested again. Only a tool that exceeds the budget by itself is shown without its schema.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mcp_workbench.engine.economy.budget_ladder import structured_size
from mcp_workbench.engine.economy.forms import DESCRIBED, Form, Shown, show
from mcp_workbench.engine.economy.prose import cut
from mcp_workbench.engine.economy.tool import Tool


class Named(msgspec.Struct, frozen=True):
    """The tools shown, as JSON objects unless a tool is too large, and those left out."""

    shown: tuple[Shown, ...]
    left_out: tuple[Tool, ...]
    note: str


def named(tools: Sequence[Tool], *, most: int | None, form: Form | None = None) -> Named:
    """The definitions of `tools`, in order, in at most `most` bytes together; full unless `form` is given."""
    forms = (Form.FULL, Form.INPUT, Form.LEAN) if form is None else (form,)
    for each in forms:
        shown = [_show(tool, each) for tool in tools]
        if most is None or _size(shown) <= most:
            return _noted(forms[0], shown, ())
    assert most is not None
    kept: list[Shown] = []
    for tool in tools:
        left = most - _size(kept)
        fitting = next((made for each in forms if _size([made := _show(tool, each)]) <= left), None)
        # The first is always shown in some form: an answer without any would be asked for again.
        if fitting is None and not kept:
            fitting = _squeezed(tool, left)
        if fitting is None:
            break
        kept.append(fitting)
    return _noted(forms[0], kept, tools[len(kept) :])


def _show(tool: Tool, form: Form) -> Shown:
    # The tools may belong to several servers, so each line starts with the whole path.
    return show(tool, form, label=tool.path)


def _size(shown: Sequence[Shown]) -> int:
    return max(sum(len(each.text.encode()) + 1 for each in shown), structured_size(shown))


def _squeezed(tool: Tool, room: int) -> Shown:
    shorter = (_show(tool, form) for form in list(Form)[1:])
    last = Shown(tool, Form.NAMES, cut(tool.path, room - 1), False)
    return next((made for made in shorter if _size([made]) <= room), last)


def _noted(asked: Form, shown: Sequence[Shown], left_out: Sequence[Tool]) -> Named:
    said = []
    forms = {each.form for each in shown}
    if forms - {asked}:
        said.append(f"Over the budget, so shown as {' and '.join(DESCRIBED[each] for each in Form if each in forms)}.")
        said.append("`budget: null` lifts it.")
    if left_out:
        said.append("Some did not fit: ask for them separately.")
    return Named(tuple(shown), tuple(left_out), " ".join(said))
