"""The arguments of a call in the audit: nothing, the types of the values, or the values without secrets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from mcp_workbench.engine.config.redact import MASK, is_secret_name, without_keys
from mcp_workbench.engine.printable import in_unicode

if TYPE_CHECKING:
    from mcp_workbench.engine.config.redact import Redactor

Arguments = Literal["none", "shape", "redacted"]
# Larger params are not kept for writing; the line has their size.
MAX_AUDITED_ARGUMENT_BYTES: Final = 8 * 1024
# Limits on what is written of nested and long values, which nobody would read.
DEEPEST: Final = 8
MAX_AUDITED_VALUE_LENGTH: Final = 256
MAX_AUDITED_ITEMS: Final = 32


# Written for arguments that cannot be read, so that a line without arguments always means that there were none.
UNREADABLE_ARGUMENTS: Final = "unreadable"
# Longer integers are written as strings, because many JSON parsers cannot represent them.
_MAX_INTEGER_DIGITS: Final = 18


class _Members(tuple[tuple[str, object], ...]):
    """An object as it was sent, including duplicate members: a server may use a different one than we do."""


class _Numeral(str):
    """A number that is too large to represent."""


def described_arguments(body: bytes, how: Arguments, redactor: Redactor) -> object:
    """`body`: the params, as JSON without the closing brace. Returns None if there are no arguments."""
    try:
        # Not msgspec, which keeps only the last of duplicate members and rejects large numbers. This runs in the
        # writer's thread, and the body is small.
        params = _decode(body.decode() + "}")
    except (ValueError, RecursionError):
        return UNREADABLE_ARGUMENTS
    if not isinstance(params, _Members):
        return UNREADABLE_ARGUMENTS
    describe = _shape if how == "shape" else _redacted
    described = [describe(value, redactor, 0) for name, value in params if name == "arguments" and value is not None]
    return described if len(described) > 1 else described[0] if described else None


def _decode(text: str) -> object:
    return json.loads(
        text, object_pairs_hook=_Members, parse_int=_integer, parse_float=_fraction, parse_constant=_Numeral
    )


def _integer(digits: str) -> int | _Numeral:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else _Numeral(digits)


def _fraction(digits: str) -> float | _Numeral:
    value = float(digits)
    return value if math.isfinite(value) else _Numeral(digits)


def _described(
    members: _Members, redactor: Redactor, depth: int, describe: Callable[[object, Redactor, int], object]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in members[:MAX_AUDITED_ITEMS]:
        name = _name(key, redactor)
        while name in found:
            name += " (again)"
        # A value whose name suggests a secret is treated as one.
        is_secret = describe is _redacted and is_secret_name(key)
        found[name] = MASK if is_secret else describe(value, redactor, depth + 1)
    if len(members) > MAX_AUDITED_ITEMS:
        found["…"] = f"{len(members) - MAX_AUDITED_ITEMS} more"
    return found


def _shape(value: object, redactor: Redactor, depth: int) -> object:
    if isinstance(value, _Members):
        return "object" if depth >= DEEPEST else _described(value, redactor, depth, _shape)
    if isinstance(value, list):
        kinds = {str(_shape(each, redactor, DEEPEST)) for each in value[:MAX_AUDITED_ITEMS]}
        return f"{len(value)} of {', '.join(sorted(kinds))}" if kinds else "0"
    if isinstance(value, str) and not isinstance(value, _Numeral):
        return f"string of {len(value)}"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"


def _name(key: str, redactor: Redactor) -> str:
    # Redacted before it is truncated, because half a secret would not be recognised.
    return in_unicode(without_keys(redactor.text(key))[:MAX_AUDITED_VALUE_LENGTH])


def _redacted(value: object, redactor: Redactor, depth: int) -> object:
    if isinstance(value, _Members):
        return "…" if depth >= DEEPEST else _described(value, redactor, depth, _redacted)
    if isinstance(value, list):
        if depth >= DEEPEST:
            return ["…"]
        shown = [_redacted(each, redactor, depth + 1) for each in value[:MAX_AUDITED_ITEMS]]
        return [*shown, f"… {len(value) - MAX_AUDITED_ITEMS} more"] if len(value) > MAX_AUDITED_ITEMS else shown
    if isinstance(value, str):
        # Known secrets, and anything that looks like one, because agents pass on secrets that they find.
        text = in_unicode(without_keys(redactor.text(value)))
        return text if len(text) <= MAX_AUDITED_VALUE_LENGTH else text[:MAX_AUDITED_VALUE_LENGTH] + "…"
    return value
