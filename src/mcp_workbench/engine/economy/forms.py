"""The forms in which a tool can be shown, from everything a caller needs down to its name.

Owns how a tool looks in each form and what each form leaves out. Knows nothing about budgets or the choice of tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice

import msgspec

from mcp_workbench.engine.economy.lean_schema import lean
from mcp_workbench.engine.economy.prose import clip, first_sentence, one_line
from mcp_workbench.engine.economy.shared_arguments import shared
from mcp_workbench.engine.economy.signature import argument_names, arguments, bare_arguments, returned, signature
from mcp_workbench.engine.economy.tool import Parts, Tool, output_schema, parts

CLIPPED_TEXT = 300
_SHORT_SENTENCE = 100
# In structured content, beside a whole definition.
_MAX_SIGNATURE_LENGTH = 300
# The signature of a tool whose arguments are left out.
_UNKNOWN_ARGUMENTS = "(…)"
# Members of a shown tool that are ours.
_OWN_MEMBERS = frozenset(("toolbox_name", "source_server", "name", "signature"))
# What a caller needs of a definition.
_INPUT = frozenset(("title", "description", "inputSchema", "annotations"))
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# How many tools of a server are sampled to find what they share: tools of one server are similar.
_SAMPLED = 50


class Form(StrEnum):
    """Longest first. The values are used in results and for the `detail` argument."""

    FULL = "full"
    INPUT = "input"
    LEAN = "lean"
    TEXT = "text"
    CLIPPED = "clipped"
    SENTENCE = "sentence"
    ARGUMENTS = "arguments"
    NAMES = "names"

    @property
    def is_json(self) -> bool:
        return self in (Form.FULL, Form.INPUT, Form.LEAN)


_WITH_ARGUMENTS = (Form.TEXT, Form.CLIPPED, Form.SENTENCE, Form.ARGUMENTS)

# The description of each form in results. Kept short, because it is sent every time.
DESCRIBED = {
    Form.FULL: "full definitions",
    Form.INPUT: "definitions with input schemas",
    Form.LEAN: "definitions with lean schemas",
    Form.TEXT: "signatures with full descriptions",
    Form.CLIPPED: "signatures with clipped descriptions",
    Form.SENTENCE: "signatures with first sentences",
    Form.ARGUMENTS: "names with arguments, types left out",
    Form.NAMES: "names with a sentence, arguments left out",
}


class Shown(msgspec.Struct, frozen=True):
    """One tool in some form: a JSON object for `full`, `input` and `lean`, lines of text for the others.

    `complete`: whether it shows enough to call the tool, which is every argument with its type. `signature` (without
    the name) and `description` are what a line of text consists of."""

    tool: Tool
    form: Form
    text: str
    complete: bool
    signature: str = _UNKNOWN_ARGUMENTS
    description: str = ""

    def structured(self, **more: object) -> bytes:
        """The same for programs, whatever the form: where the tool comes from, its name and its signature."""
        if not self.form.is_json:
            described = {"description": self.description} if self.description else {}
            names = {"name": self.tool.name, "signature": self.signature}
            return msgspec.json.encode({**_place(self.tool), **names, **described, **more})
        written = signature("", parts(self.tool.definition).schema(), most=_MAX_SIGNATURE_LENGTH).text
        written += returned(output_schema(self.tool.definition)) if self.tool.shows_result else ""
        # The text begins with the place.
        return b'{"signature":' + msgspec.json.encode(written) + b"," + self.text.encode()[1:]


def show(tool: Tool, form: Form, *, label: str | None = None, common: Sequence[str] = ()) -> Shown:
    """`tool` in `form`; arguments in `common` are shown elsewhere. Lines begin with `label`, or else the name."""
    if form in (Form.FULL, Form.INPUT):
        return Shown(tool, form, _as_sent(tool, form), True)
    known = parts(tool.definition)
    if form is Form.LEAN:
        return Shown(tool, form, _lean(tool, known), True)
    label = tool.name if label is None else label
    written, text, complete = _line(label, known, form, common)
    if tool.shows_result and form not in (Form.NAMES, Form.ARGUMENTS):
        written += returned(output_schema(tool.definition))
    shown = written.removeprefix(label) or _UNKNOWN_ARGUMENTS
    return Shown(tool, form, f"{written} - {text}" if text else written, complete, shown, text)


def common_arguments(tools: Iterable[Tool], form: Form) -> tuple[str, ...]:
    """The arguments worth showing once for these tools of one server in `form`, determined from a sample."""
    if form not in _WITH_ARGUMENTS:
        return ()
    schemas = (parts(tool.definition).schema() for tool in islice(tools, _SAMPLED))
    return shared([bare_arguments(each) if form is Form.ARGUMENTS else arguments(each).written for each in schemas])


def _place(tool: Tool) -> dict[str, object]:
    return {"toolbox_name": tool.toolbox, "source_server": tool.server}


def is_input_alone(tool: Tool) -> bool:
    """Whether the server sent nothing that `input` leaves out."""
    return _INPUT.issuperset(_sent(tool))


def _as_sent(tool: Tool, form: Form) -> str:
    """What the server sent, in its own bytes. Where the tool comes from is not for the server to say."""
    sent = _sent(tool)
    if form is Form.INPUT:
        sent = {name: value for name, value in sent.items() if name in _INPUT}
    return msgspec.json.encode({**_place(tool), "name": tool.name, **sent}).decode(errors="replace")


def _sent(tool: Tool) -> dict[str, msgspec.Raw]:
    """The members of the definition that are the server's to choose."""
    try:
        sent = _decode_members(tool.definition)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return {name: value for name, value in sent.items() if name not in _OWN_MEMBERS}


def _lean(tool: Tool, known: Parts) -> str:
    definition: dict[str, object] = {**_place(tool), "name": tool.name}
    if known.description:
        definition["description"] = known.description.strip()
    definition["inputSchema"] = lean(known.schema())
    return msgspec.json.encode(definition).decode()


def _line(label: str, known: Parts, form: Form, common: Sequence[str]) -> tuple[str, str, bool]:
    """The signature, what is said beside it, and whether the signature is complete."""
    # Some servers have titles only.
    description = known.description or known.title
    match form:
        case Form.NAMES:
            return label, clip(first_sentence(description), _SHORT_SENTENCE), False
        case Form.ARGUMENTS:
            return argument_names(label, known.schema(), common=common).text, "", False
        case Form.SENTENCE:
            text = first_sentence(description)
        case Form.CLIPPED:
            text = clip(one_line(description), CLIPPED_TEXT)
        case _:
            text = one_line(description)
    written, complete = signature(label, known.schema(), common=common)
    return written, text, complete
