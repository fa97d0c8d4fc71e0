"""`${VAR}`, `${VAR:-default}` and references such as `${file:path}` in the strings of a configuration.

Owns the grammar and a single pass over a string. A variable's value is never expanded again, so there are no cycles;
only a default and the inside of a reference, which the user wrote into the file, may contain variables. `$` has no
other meaning here, and `$$` none at all: a literal `${X}` is written `${DOLLAR:-$}{X}`. A reference is recognised but
resolved only when the server is started (`secrets`). Does not know which values are expanded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from mcp_workbench.engine.config.problems import quote

# The system refuses arguments and variables beyond 128 KiB; eight times that is a mistake, not a value.
MAX_LENGTH = 1024 * 1024
_MAX_NESTED_DEFAULTS = 8

_REFERENCE_START = re.compile(r"\$\{(?P<prefix>[A-Za-z]+:(?!-))?(?P<name>[A-Za-z_][A-Za-z0-9_]*)?(?P<end>\}|:-)?")
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
_REFERENCE_KINDS = {
    "file:": "`${file:path}`",
    "keyring:": "`${keyring:service/name}`",
    "cmd:": "`${cmd:program argument …}`",
}
_HAS_REFERENCE = re.compile(r"\$\{(?:file|keyring|cmd):")


class Reference(Struct, frozen=True, kw_only=True):
    """A value stored elsewhere, which is fetched when a server starts and never before."""

    # "variable": one that is not set, and may be in the server's `envFile`.
    kind: str
    # As in the file, for use in messages.
    written: str
    # A path; `service/name`; a program and its arguments; the name of a variable.
    words: tuple[str, ...]
    # The base of relative paths, and the folder in which the program runs.
    folder: str = ""
    # For a variable only; None: the server cannot be started without it.
    default: tuple[Part, ...] | None = None


Part = str | Reference


def text_of(parts: Iterable[Part]) -> str:
    """Return the text for display, with references as written."""
    return "".join(part if isinstance(part, str) else part.written for part in parts)


class Fault(Struct, frozen=True):
    """Why a string could not be expanded: found, expected and hint as in a `Problem`."""

    found: str
    expected: str | None = None
    hint: str | None = None
    suggestions: tuple[str, ...] = ()
    # The file is right but the environment lacks something: with it, the same text may expand.
    of_environment: bool = False


class Surroundings(Struct, frozen=True):
    """The context of an expansion."""

    environ: Mapping[str, str]
    # The base of relative paths in references.
    folder: str = ""
    # Variables that are not set may still come from a file when the server is started.
    has_env_file: bool = False


class Expansion(Struct):
    """The expanded text, the values that variables brought in, and what went wrong."""

    text: str = ""
    # The same in pieces, if it contains references; else empty.
    parts: tuple[Part, ...] = ()
    brought_in: list[tuple[str, str]] = []
    faults: list[Fault] = []


def expand(text: str, environ: Mapping[str, str] | Surroundings) -> Expansion:
    """Replace every variable in `text`; `brought_in` holds `(variable, value)` pairs, without defaults."""
    expansion = Expansion()
    if "${" not in text:
        expansion.text = text
        return expansion
    around = environ if isinstance(environ, Surroundings) else Surroundings(environ)
    parts: list[Part] = []
    _scan(text, 0, around, parts, expansion, depth=0)
    if sum(len(part) for part in parts if isinstance(part, str)) > MAX_LENGTH:
        expansion.faults.append(Fault(f"found a value that is longer than {MAX_LENGTH:,} characters once expanded"))
        return expansion
    expansion.text = text_of(parts)
    if any(isinstance(part, Reference) for part in parts):
        expansion.parts = tuple(filter(None, parts))
    return expansion


def _scan(
    text: str, position: int, around: Surroundings, parts: list[Part], expansion: Expansion, *, depth: int
) -> int:
    """Copy `text` from `position` into `parts`, up to its end or, inside a default, up to the closing brace."""
    while True:
        opening = text.find("${", position)
        # At the top level a brace is an ordinary character: JSON in an argument has many.
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
        position = _variable(text, opening, around, parts, expansion, depth=depth)
        if position < 0:
            return -1


def _variable(
    text: str, opening: int, around: Surroundings, parts: list[Part], expansion: Expansion, *, depth: int
) -> int:
    """Replace the variable that starts at `opening`. Returns the position after it, or -1 if the rest makes no
    sense."""
    match = _REFERENCE_START.match(text, opening)
    assert match is not None
    prefix, name, end = match["prefix"], match["name"], match["end"]
    if prefix in _REFERENCE_KINDS:
        return _reference(text, opening, prefix, around, parts, expansion)
    # `${env:NAME}` is how VS Code and others write it.
    if prefix not in (None, "env:") or not name or not end:
        return _malformed(text, opening, prefix, expansion)
    value = around.environ.get(name)
    if end == "}":
        if value is None and around.has_env_file:
            parts.append(Reference(kind="variable", written=f"${{{name}}}", words=(name,)))
        elif value is None:
            expansion.faults.append(_missing(name, around.environ))
        else:
            expansion.brought_in.append((name, value))
            parts.append(value)
        return match.end()
    if depth == _MAX_NESTED_DEFAULTS:
        expansion.faults.append(Fault(f"found more than {_MAX_NESTED_DEFAULTS} nested defaults"))
        return -1
    # As in a shell: an empty variable gets its default too, and what an unused default refers to need not exist.
    default: list[Part] = []
    inner = Expansion()
    after = _scan(text, match.end(), around, default, inner, depth=depth + 1)
    if after < 0:
        expansion.faults.extend(inner.faults or [Fault("found `${` without its `}`", _GRAMMAR)])
    elif value:
        expansion.brought_in.append((name, value))
        parts.append(value)
    else:
        expansion.faults.extend(inner.faults)
        expansion.brought_in.extend(inner.brought_in)
        if around.has_env_file:
            written = text[opening:after]
            parts.append(
                Reference(kind="variable", written=written, words=(name,), default=tuple(filter(None, default)))
            )
        else:
            parts.extend(default)
    return after


def _reference(
    text: str, opening: int, prefix: str, around: Surroundings, parts: list[Part], expansion: Expansion
) -> int:
    """Keep the reference that starts at `opening`, with the variables in it filled in."""
    closing = _closing(text, opening + 2)
    if closing < 0:
        expansion.faults.append(Fault("found `${` without its `}`", _REFERENCE_KINDS[prefix], _LITERAL_HINT))
        return -1
    written = text[opening : closing + 1]
    body = text[opening + 2 + len(prefix) : closing].strip()
    # Otherwise the value of one reference would decide what another fetches: a file could name a program to run.
    if _HAS_REFERENCE.search(body):
        expansion.faults.append(Fault(f"found a reference inside of {quote(written)}", _REFERENCE_KINDS[prefix]))
        return closing + 1
    words: list[str] = []
    for word in _words(prefix, body):
        # After splitting, so that a value with a space stays one word. An `.env` file has no influence on what is
        # fetched.
        inner = expand(word, Surroundings(around.environ, around.folder))
        expansion.faults.extend(inner.faults)
        expansion.brought_in.extend(inner.brought_in)
        words.append(inner.text)
    if not words or not words[0].strip() or (prefix == "keyring:" and words[0].endswith("/")):
        expansion.faults.append(Fault(f"found {quote(written)}", _REFERENCE_KINDS[prefix]))
        return closing + 1
    if prefix != "keyring:" and words[0].startswith("~/"):
        # No shell has expanded it, and people write paths in their home folder.
        words[0] = (around.environ.get("HOME") or os.path.expanduser("~")) + words[0][1:]
    kind = prefix[:-1]
    folder = "" if kind == "keyring" else around.folder
    parts.append(Reference(kind=kind, written=written, words=tuple(words), folder=folder))
    return closing + 1


def _words(prefix: str, body: str) -> list[str]:
    if prefix != "cmd:":
        return [body]
    import shlex

    try:
        return shlex.split(body)
    except ValueError:
        # An unmatched quote.
        return []


def _closing(text: str, position: int) -> int:
    """Return the position of the brace that closes the one before `position`; those in between must be balanced."""
    depth = 1
    while depth:
        closing = text.find("}", position)
        if closing < 0:
            return -1
        # A `${cmd:…}` may contain braces, as in `jq '{a}'`.
        depth += text.count("{", position, closing) - 1
        position = closing + 1
    return position - 1


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
    from mcp_workbench.engine.config.redact import is_secret_name
    from mcp_workbench.engine.nearest import nearest

    instead = f"give a default: `${{{name}:-…}}`"
    if is_secret_name(name):
        instead = f"store it with `mcp-workbench secret set {name}` and write `${{keyring:{name}}}`"
    hint = f"set `{name}` before the workbench starts, or {instead}"
    return Fault(found, suggestions=tuple(nearest(name, environ, 2)), hint=hint, of_environment=True)


_LITERAL_HINT = "to have a literal `${` write `${DOLLAR:-$}{`"
