"""What the audit says of the arguments of a call: nothing, the kinds of their values, or the values without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcp_workbench.config.redact import MASK, is_secret_name, without_keys

if TYPE_CHECKING:
    from mcp_workbench.config.redact import Redactor

Arguments = Literal["none", "shape", "redacted"]
# Larger params are not kept until they are written; their size is in the line.
LARGEST_ARGUMENTS: Final = 8 * 1024
# Nobody reads further down.
DEEPEST: Final = 8
LONGEST_VALUE: Final = 256
MOST_ITEMS: Final = 32


class _Params(Struct):
    arguments: Raw = Raw(b"null")


_read_params: Final = Decoder(_Params).decode


def described_arguments(body: bytes, how: Arguments, redactor: Redactor) -> object:
    """`body`: the params, as JSON without the closing brace. None where there are no arguments."""
    try:
        arguments = decode(_read_params(body + b"}").arguments)
    except (DecodeError, ValidationError, RecursionError):
        return None
    if arguments is None:
        return None
    return _shape(arguments, redactor, 0) if how == "shape" else _redacted(arguments, redactor, 0)


def _shape(value: object, redactor: Redactor, depth: int) -> object:
    if isinstance(value, dict):
        if depth >= DEEPEST:
            return "object"
        return {
            _name(key, redactor): _shape(each, redactor, depth + 1) for key, each in list(value.items())[:MOST_ITEMS]
        }
    if isinstance(value, list):
        kinds = {str(_shape(each, redactor, DEEPEST)) for each in value[:MOST_ITEMS]}
        return f"{len(value)} of {', '.join(sorted(kinds))}" if kinds else "0"
    if isinstance(value, str):
        return f"string of {len(value)}"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"


def _name(key: str, redactor: Redactor) -> str:
    # First hidden, then cut: half a secret would not be recognised.
    return without_keys(redactor.text(key))[:LONGEST_VALUE]


def _redacted(value: object, redactor: Redactor, depth: int) -> object:
    if isinstance(value, dict):
        if depth >= DEEPEST:
            return "…"
        # What is called a password is one, whoever made it up.
        return {
            _name(key, redactor): MASK if is_secret_name(key) else _redacted(each, redactor, depth + 1)
            for key, each in list(value.items())[:MOST_ITEMS]
        }
    if isinstance(value, list):
        return ["…"] if depth >= DEEPEST else [_redacted(each, redactor, depth + 1) for each in value[:MOST_ITEMS]]
    if isinstance(value, str):
        # Known secrets, and what looks like one: an agent passes on what it has found somewhere.
        text = without_keys(redactor.text(value))
        return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
    return value
