"""The single pass over a configuration: expands and validates values, and collects problems and secrets.

Owns what is collected (`Reader`) and the rules for names. Does not know which keys there are (`model`), nor what their
values may be (`kinds`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mcp_workbench.engine.config.problems import Path, Problem, described, kind_of, quote

if TYPE_CHECKING:
    from mcp_workbench.engine.config.expand import Part

_WITH_REFERENCES = "`args`, `env`, `headers`, `url`, and the secrets of `oauth`, `auth`, `trustedProxy` and `cluster`"

# Names are part of every call and every error text; this is more than anyone needs, and lists stay readable.
MAX_NAME_LENGTH = 200
_SEPARATES = "contains `__`", "a name without `__`, which separates toolbox and server in tool names"
# All expanded text together. Otherwise ten thousand references to one large variable would fill the memory.
_MAX_EXPANDED_LENGTH = 64 * 1024 * 1024
# Unknown keys are reported with the nearest known ones; in a file with thousands of them, a hundred are enough.
_MAX_SUGGESTED_KEYS = 100


class _Spent:
    """What all readers of one file have used of the file's limits."""

    __slots__ = ("characters", "inherited", "suggestions")

    def __init__(self) -> None:
        self.characters = 0
        self.suggestions = 0
        # What servers inherit: nearly all of them the same.
        self.inherited: set[tuple[str, ...]] = set()


class Reader:
    """Reads strings of a decoded configuration, and collects every problem and every secret that it finds."""

    def __init__(self, environ: Mapping[str, str], folder: str = "", spent: _Spent | None = None) -> None:
        self.problems: list[Problem] = []
        self.secrets: set[str] = set()
        # Values that are assembled when a server starts, by their path.
        self.references: dict[Path, tuple[Part, ...]] = {}
        # Whether variables that are not set may come from a file then.
        self.has_env_file = False
        # Whether what is being read may contain references, and variables of an `envFile`.
        self.fetches = False
        self._environ = environ
        self.folder = folder
        self._spent = spent or _Spent()
        # Paths with values from variables; an invalid value there is not the file's fault.
        self._expanded_at: set[Path] = set()

    def for_part(self) -> Reader:
        """Return a reader for one part of the same file, with separate problems and secrets and shared limits."""
        return Reader(self._environ, self.folder, self._spent)

    def problem(
        self,
        path: Path,
        found: str,
        expected: str | None = None,
        *,
        hint: str | None = None,
        suggestions: Iterable[str] = (),
        at_key: bool = False,
    ) -> None:
        self.problems.append(
            Problem(
                steps=path,
                found=found,
                expected=expected,
                hint=hint,
                suggestions=tuple(suggestions),
                at_key=at_key,
                of_environment=not at_key and path in self._expanded_at,
            )
        )

    def wrong(self, value: object, path: Path, expected: str, *, hint: str | None = None, secret: bool = False) -> None:
        """Report that the value at `path` is invalid; of a secret only the kind is shown."""
        self.problem(path, f"found {kind_of(value) if secret else described(value)}", expected, hint=hint)

    def unknown_key(self, path: Path, known: Iterable[str], *, hint: str | None = None) -> None:
        """Report that the key at the end of `path` is unknown, with the nearest known one."""
        names = list(known)
        key = str(path[-1])
        near: list[str] = []
        if hint is None and self._spent.suggestions < _MAX_SUGGESTED_KEYS:
            from mcp_workbench.engine.nearest import nearest

            # Comparing a name with all known ones is the slowest step here.
            self._spent.suggestions += 1
            near = nearest(key, names, 1)
        expected = f"one of {', '.join(map(quote, names))}"
        self.problem(path, f"unknown key {quote(key)}", expected, hint=hint, suggestions=near, at_key=True)

    def expanded(self, text: str, path: Path) -> str | None:
        """Return `text` with its variables filled in, or None if one is missing or malformed."""
        if "${" not in text:
            return text
        from mcp_workbench.engine.config.expand import Surroundings, expand
        from mcp_workbench.engine.config.redact import secrets_in

        expansion = expand(text, Surroundings(self._environ, self.folder, self.has_env_file and self.fetches))
        for fault in expansion.faults:
            problem = Problem(
                steps=path,
                found=fault.found,
                expected=fault.expected,
                hint=fault.hint,
                suggestions=fault.suggestions,
                of_environment=fault.of_environment,
            )
            self.problems.append(problem)
        for name, value in expansion.brought_in:
            self.secrets.update(secrets_in(name, value))
            self._expanded_at.add(path)
        if expansion.faults:
            return None
        self._spent.characters += len(expansion.text)
        if self._spent.characters > _MAX_EXPANDED_LENGTH:
            found = f"found more than {_MAX_EXPANDED_LENGTH:,} characters from variables"
            self.problems.append(Problem(steps=path, found=found))
            return None
        if expansion.parts and not self.fetches:
            written = next(part.written for part in expansion.parts if not isinstance(part, str))
            hint = f"references work in {_WITH_REFERENCES}"
            self.problems.append(Problem(steps=path, found=f"nothing is fetched here: {quote(written)}", hint=hint))
            return None
        if expansion.parts:
            self.references[path] = expansion.parts
        return expansion.text

    def inherits(self, patterns: tuple[str, ...]) -> None:
        """Add the variables that a server inherits: their values are as secret as those of `${VAR}`."""
        if patterns and patterns not in self._spent.inherited:
            from mcp_workbench.engine.config.redact import secrets_inherited

            self._spent.inherited.add(patterns)
            self.secrets.update(secrets_inherited(self._environ, patterns))

    def home(self) -> str:
        """Return the home folder of the user whose environment this is."""
        home = self._environ.get("HOME", "")
        return home if os.path.isabs(home) else os.path.expanduser("~")

    def secrets_around(self) -> list[str]:
        """Return the secrets of variables that are in use without being named in the file."""
        from mcp_workbench.engine.config.redact import secrets_around

        return secrets_around(self._environ)

    def name(self, name: str, path: Path, what: str, *, is_registered: bool) -> bool:
        """Whether a toolbox or server may have this name; reports why not. `is_registered`: it becomes part of the
        names that the face `dynamic` registers."""
        fault = name_fault(name, what) or (registered_name_fault(name, what) if is_registered else None)
        if fault is not None:
            found, expected = fault
            self.problem(path, f"the {what} name {quote(name)} {found}", expected, at_key=True)
        return fault is None


def name_fault(name: str, what: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of a `what` (toolbox or server) and what would be right, or None."""
    if not name.strip():
        return "is empty", "at least one character"
    if what == "toolbox" and "__" in name:
        return _SEPARATES
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name):,} characters", f"at most {MAX_NAME_LENGTH}"
    # Nearly every name: the rest is about others.
    if name.isascii() and name.isprintable() and name == name.strip():
        return None
    if has_white_space(name[0] + name[-1]):
        return "starts or ends with white space", "a name without it"
    if has_control(name):
        return "contains a control character", "printable characters only"
    return None


def registered_name_fault(name: str, what: str) -> tuple[str, str] | None:
    """Return why a name cannot be part of `{toolbox}__{server}_{tool}`, or None. With these rules no name of one
    toolbox is ever that of another, so that names do not depend on what else is opened, or when."""
    if "__" in name:
        return _SEPARATES
    if what == "toolbox" and name.endswith("_"):
        return "ends with `_`", "another last character, because `__` follows it in the names of the face `dynamic`"
    if what == "server" and name.startswith("_"):
        return "starts with `_`", "another first character, because `__` precedes it in the names of the face `dynamic`"
    return None


def has_white_space(text: str) -> bool:
    """Whether the text contains white space. U+FEFF is among it, as in JavaScript and JSON Schema, for which this file
    is checked too."""
    return "\ufeff" in text or "".join(text.split()) != text


def has_control(text: str) -> bool:
    """Whether the text contains a control character. The first test is a shortcut for printable text, which is nearly
    all."""
    return not text.isprintable() and any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in text)
