"""`${VAR}` and `${VAR:-default}` in the strings of a configuration.

Owns the grammar and one pass over a string. What a variable brings in is never looked at again, so there are no
cycles; only a default, which the user wrote into the file, may hold variables itself. `$` has no other meaning here,
and `$$` none at all: a literal `${X}` is written `${DOLLAR:-$}{X}`. Refuses to know which values are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from mcp_workbench.config.problems import quote

# The system itself refuses arguments and variables beyond 128 KiB; eight times that is a mistake, not a value.
MAX_LENGTH = 1024 * 1024
_MAX_DEPTH = 8

_OPENING = re.compile(r"\$\{(?P<prefix>[A-Za-z]+:(?!-))?(?P<name>[A-Za-z_][A-Za-z0-9_]*)?(?P<end>\}|:-)?")
# Editors fill these in for the files that they read; here there is no editor and no open folder.
_EDITOR_NAMES = frozenset(
    {
        "workspaceFolder",
        "workspaceFolderBasename",
        "workspaceRoot",
        "userHome",
        "pathSeparator",
        "file",
        "extensionPath",
    }
)
_GRAMMAR = "`${VAR}` or `${VAR:-default}`"


class Fault(Struct, frozen=True):
    """Why a string could not be expanded: found, expected and hint as in a `Problem`."""

    found: str
    expected: str | None = None
    hint: str | None = None
    suggestions: tuple[str, ...] = ()
    # The file is right and the environment lacks something: set elsewhere, the same text may expand.
    of_environment: bool = False


class Expansion(Struct):
    """The text with its variables filled in, the values that came in by them, and what went wrong."""

    text: str = ""
    brought_in: list[tuple[str, str]] = []
    faults: list[Fault] = []


def expand(text: str, environ: Mapping[str, str]) -> Expansion:
    """`text` with every variable replaced; `brought_in` are `(variable, value)`, defaults not among them."""
    expansion = Expansion()
    if "${" not in text:
        expansion.text = text
        return expansion
    parts: list[str] = []
    _scan(text, 0, environ, parts, expansion, depth=0)
    if sum(map(len, parts)) > MAX_LENGTH:
        expansion.faults.append(Fault(f"found a value that is longer than {MAX_LENGTH:,} characters once expanded"))
        return expansion
    expansion.text = "".join(parts)
    return expansion


def _scan(
    text: str, position: int, environ: Mapping[str, str], parts: list[str], expansion: Expansion, *, depth: int
) -> int:
    """Copies `text` from `position` into `parts`, up to its end or, inside a default, up to the closing brace."""
    while True:
        opening = text.find("${", position)
        closing = text.find("}", position) if depth else -1
        if depth and (opening < 0 or 0 <= closing < opening):
            if closing < 0:
                return -1
            parts.append(text[position:closing])
            return closing + 1
        if opening < 0:
            parts.append(text[position:])
            return len(text)
        parts.append(text[position:opening])
        position = _variable(text, opening, environ, parts, expansion, depth=depth)
        if position < 0:
            return -1


def _variable(
    text: str, opening: int, environ: Mapping[str, str], parts: list[str], expansion: Expansion, *, depth: int
) -> int:
    """Replaces the variable that starts at `opening`; the position after it, or -1 when the rest makes no sense."""
    match = _OPENING.match(text, opening)
    assert match is not None
    prefix, name, end = match["prefix"], match["name"], match["end"]
    if prefix not in (None, "env:") or not name or not end:
        return _malformed(text, opening, prefix, expansion)
    value = environ.get(name)
    if end == "}":
        if value is None:
            expansion.faults.append(_missing(name, environ))
        else:
            expansion.brought_in.append((name, value))
            parts.append(value)
        return match.end()
    if depth == _MAX_DEPTH:
        expansion.faults.append(Fault(f"found more than {_MAX_DEPTH} nested defaults"))
        return -1
    # As in a shell: an empty variable takes its default too, and what an unused default refers to need not exist.
    default: list[str] = []
    inner = Expansion()
    after = _scan(text, match.end(), environ, default, inner, depth=depth + 1)
    if after < 0:
        expansion.faults.extend(inner.faults or [Fault("found `${` without its `}`", _GRAMMAR)])
    elif value:
        expansion.brought_in.append((name, value))
        parts.append(value)
    else:
        expansion.faults.extend(inner.faults)
        expansion.brought_in.extend(inner.brought_in)
        parts.extend(default)
    return after


def _malformed(text: str, opening: int, prefix: str | None, expansion: Expansion) -> int:
    closing = text.find("}", opening)
    if closing < 0:
        expansion.faults.append(Fault("found `${` without its `}`", _GRAMMAR, _LITERAL_HINT))
        return -1
    shown = quote(text[opening : closing + 1])
    if prefix in ("input:", "command:", "config:"):
        hint = "an editor asks for or looks up this value; use a variable such as `${MY_TOKEN}` and set it"
    else:
        hint = _LITERAL_HINT
    expansion.faults.append(Fault(f"found {shown}", _GRAMMAR, hint))
    return closing + 1


def _missing(name: str, environ: Mapping[str, str]) -> Fault:
    found = f"the variable {quote(name)} is not set"
    if name in _EDITOR_NAMES:
        hint = f"an editor fills in `${{{name}}}`, the workbench cannot; write the path itself"
        return Fault(found, None, hint, of_environment=True)
    from mcp_workbench.nearest import nearest

    return Fault(
        found,
        suggestions=tuple(nearest(name, environ, 2)),
        hint=f"set it before the start, or give a default: `${{{name}:-…}}`",
        of_environment=True,
    )


_LITERAL_HINT = "to have a literal `${` write `${DOLLAR:-$}{`"
