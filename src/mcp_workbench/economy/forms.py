"""The forms in which a tool can be shown, from everything a caller needs down to its name.

Owns how a tool looks in each form and what each form leaves out. Knows nothing about budgets or the choice of tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice

import msgspec

from mcp_workbench.economy.lean_schema import lean
from mcp_workbench.economy.prose import clip, first_sentence, one_line
from mcp_workbench.economy.shared_arguments import shared
from mcp_workbench.economy.signature import argument_names, arguments, bare_arguments, signature
from mcp_workbench.economy.tool import Parts, Tool, parts

CLIPPED_TEXT = 300
_SHORT_SENTENCE = 100
_NO_ANNOTATIONS = (b"", b"{}", b"null")
# How many tools of a server are sampled to find what they share: tools of one server are similar.
_SAMPLED = 50


class Form(StrEnum):
    """Longest first. The values are used in results and for the `detail` argument."""

    FULL = "full"
    LEAN = "lean"
    TEXT = "text"
    CLIPPED = "clipped"
    SENTENCE = "sentence"
    ARGUMENTS = "arguments"
    NAMES = "names"

    @property
    def is_json(self) -> bool:
        return self in (Form.FULL, Form.LEAN)


_WITH_ARGUMENTS = (Form.TEXT, Form.CLIPPED, Form.SENTENCE, Form.ARGUMENTS)

# The description of each form in results. Kept short, because it is sent every time.
DESCRIBED = {
    Form.FULL: "full definitions",
    Form.LEAN: "definitions with lean schemas",
    Form.TEXT: "signatures with full descriptions",
    Form.CLIPPED: "signatures with clipped descriptions",
    Form.SENTENCE: "signatures with first sentences",
    Form.ARGUMENTS: "names with arguments, types left out",
    Form.NAMES: "names with a sentence, arguments left out",
}


class Shown(msgspec.Struct, frozen=True):
    """One tool in some form: a JSON object for `full` and `lean`, lines of text for the others.

    `complete`: whether it shows enough to call the tool, which is every argument with its type."""

    tool: Tool
    form: Form
    text: str
    complete: bool


def show(tool: Tool, form: Form, *, extras: bool = False, common: Sequence[str] = ()) -> Shown:
    """`tool` in `form`; arguments in `common` are shown elsewhere. With `extras`, a full definition is everything that
    the server sent, including `outputSchema`; without, only what a caller needs."""
    if extras and form is Form.FULL:
        return Shown(tool, form, _as_written(tool), True)
    known = parts(tool.definition)
    if form.is_json:
        return Shown(tool, form, _definition(tool, known, form), True)
    line, complete = _line(tool, known, form, common)
    return Shown(tool, form, line, complete)


def common_arguments(tools: Iterable[Tool], form: Form) -> tuple[str, ...]:
    """The arguments worth showing once for these tools of one server in `form`, determined from a sample."""
    if form not in _WITH_ARGUMENTS:
        return ()
    schemas = (parts(tool.definition).schema() for tool in islice(tools, _SAMPLED))
    return shared([bare_arguments(each) if form is Form.ARGUMENTS else arguments(each).written for each in schemas])


def _place(tool: Tool) -> dict[str, object]:
    return {"toolbox_name": tool.toolbox, "source_server": tool.server}


def _as_written(tool: Tool) -> str:
    place = msgspec.json.encode(_place(tool))
    # The server's own bytes, with two members in front: decoding could reorder or lose something.
    members = tool.definition.strip()[1:-1].strip()
    return (place[:-1] + (b"," + members if members else b"") + b"}").decode(errors="replace")


def _definition(tool: Tool, known: Parts, form: Form) -> str:
    definition: dict[str, object] = {**_place(tool), "name": tool.name}
    if known.title and form is Form.FULL:
        definition["title"] = known.title
    if known.description:
        definition["description"] = known.description if form is Form.FULL else known.description.strip()
    definition["inputSchema"] = known.input_schema if form is Form.FULL else lean(known.schema())
    if form is Form.FULL and bytes(known.annotations) not in _NO_ANNOTATIONS:
        definition["annotations"] = known.annotations
    return msgspec.json.encode(definition).decode()


def _line(tool: Tool, known: Parts, form: Form, common: Sequence[str]) -> tuple[str, bool]:
    # Some servers have titles only.
    description = known.description or known.title
    match form:
        case Form.NAMES:
            return _joined(tool.name, clip(first_sentence(description), _SHORT_SENTENCE)), False
        case Form.ARGUMENTS:
            return argument_names(tool.name, known.schema(), common=common).text, False
        case Form.SENTENCE:
            text = first_sentence(description)
        case Form.CLIPPED:
            text = clip(one_line(description), CLIPPED_TEXT)
        case _:
            text = one_line(description)
    written, complete = signature(tool.name, known.schema(), common=common)
    return _joined(written, text), complete


def _joined(head: str, text: str) -> str:
    return f"{head} - {text}" if text else head
