"""The one pass over a configuration: expands, judges, and gathers problems and secrets as it goes.

Owns what is gathered on the way (`Reader`) and the rules for names. Refuses to know which keys there are: that is
`keys`, and what a value of a key may be is `kinds`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mcp_workbench.config.problems import Path, Problem, described, kind_of, quote

if TYPE_CHECKING:
    from mcp_workbench.config.model import Part

_WITH_REFERENCES = "`args`, `env`, `headers`, `url`, and the secrets of `oauth`, `auth` and `trustedProxy`"

# Names travel in every call and every error text; nobody needs more, and lists stay readable.
LONGEST_NAME = 200
# All expanded text together. Ten thousand references to one large variable would otherwise fill the memory.
_MOST_EXPANDED = 64 * 1024 * 1024
# Unknown keys are answered with the nearest known ones; in a file with thousands of them the first hundred will do.
_MOST_SUGGESTED = 100


class _Spent:
    """What all readers of one file have used up of what a file may cost."""

    __slots__ = ("characters", "suggestions")

    def __init__(self) -> None:
        self.characters = 0
        self.suggestions = 0


class Reader:
    """Reads strings out of a decoded configuration; remembers every problem and every secret that it finds."""

    def __init__(self, environ: Mapping[str, str], folder: str = "", spent: _Spent | None = None) -> None:
        self.problems: list[Problem] = []
        self.secrets: set[str] = set()
        # What is put together when a server starts, by where it stands.
        self.references: dict[Path, tuple[Part, ...]] = {}
        # Whether variables that are not set may come from a file then.
        self.has_env_file = False
        self._fetches = False
        self._environ = environ
        self.folder = folder
        self._spent = spent or _Spent()
        # Where variables brought something in; what does not fit there is not the fault of the file.
        self._expanded_at: set[Path] = set()

    def for_part(self) -> Reader:
        """A reader for one part of the same file, with problems and secrets of its own and the limits in common."""
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
        """The value at `path` is not what belongs there; of a secret only the kind is shown."""
        self.problem(path, f"found {kind_of(value) if secret else described(value)}", expected, hint=hint)

    def unknown_key(self, path: Path, known: Iterable[str], *, hint: str | None = None) -> None:
        """The key at the end of `path` means nothing there; tells the nearest of those that do."""
        names = list(known)
        key = str(path[-1])
        near: list[str] = []
        if hint is None and self._spent.suggestions < _MOST_SUGGESTED:
            from mcp_workbench.nearest import nearest

            # Comparing a name with all known ones takes longest of all here.
            self._spent.suggestions += 1
            near = nearest(key, names, 1)
        expected = f"one of {', '.join(map(quote, names))}"
        self.problem(path, f"unknown key {quote(key)}", expected, hint=hint, suggestions=near, at_key=True)

    def expanded(self, text: str, path: Path) -> str | None:
        """`text` with its variables filled in, or None when one is missing or malformed."""
        if "${" not in text:
            return text
        from mcp_workbench.config.expand import Surroundings, expand
        from mcp_workbench.config.redact import secrets_in

        expansion = expand(text, Surroundings(self._environ, self.folder, self.has_env_file and self._fetches))
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
        if self._spent.characters > _MOST_EXPANDED:
            found = f"found more than {_MOST_EXPANDED:,} characters from variables"
            self.problems.append(Problem(steps=path, found=found))
            return None
        if expansion.parts and not self._fetches:
            written = next(part.written for part in expansion.parts if not isinstance(part, str))
            hint = f"references work in {_WITH_REFERENCES}"
            self.problems.append(Problem(steps=path, found=f"nothing is fetched here: {quote(written)}", hint=hint))
            return None
        if expansion.parts:
            self.references[path] = expansion.parts
        return expansion.text

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        """What is read meanwhile may hold references, and variables of an `envFile`."""
        before, self._fetches = self._fetches, True
        try:
            yield
        finally:
            self._fetches = before

    def inherits(self, patterns: Sequence[str]) -> None:
        """A server inherits these of the variables: what they hold is as secret as what `${VAR}` brings in."""
        if patterns:
            from mcp_workbench.config.redact import secrets_inherited

            self.secrets.update(secrets_inherited(self._environ, patterns))

    def home(self) -> str:
        """The folder of the user whose environment this is."""
        home = self._environ.get("HOME", "")
        return home if os.path.isabs(home) else os.path.expanduser("~")

    def secrets_around(self) -> list[str]:
        """Those of variables that are in use without being named in the file."""
        from mcp_workbench.config.redact import secrets_around

        return secrets_around(self._environ)

    def name(self, name: str, path: Path, what: str) -> bool:
        """Whether a toolbox, server or tool may be called that."""
        fault = name_fault(name)
        if fault is not None:
            found, expected = fault
            self.problem(path, f"the {what} name {quote(name)} {found}", expected, at_key=True)
        return fault is None


def name_fault(name: str) -> tuple[str, str] | None:
    """What is wrong with a toolbox or server name and what would be right, or None."""
    if not name.strip():
        return "is empty", "at least one character"
    if "__" in name:
        # `{toolbox}__{server}_{tool}` is how tools are registered by the face `dynamic`.
        return "contains `__`", "a name without `__`, which separates toolbox and server in tool names"
    if len(name) > LONGEST_NAME:
        return f"has {len(name):,} characters", f"at most {LONGEST_NAME}"
    if name != name.strip():
        return "starts or ends with white space", "a name without it"
    if has_control(name):
        return "contains a control character", "printable characters only"
    return None


def has_control(text: str) -> bool:
    """Whether the text holds a control character; printable text, which is nearly all, is found out at once."""
    return not text.isprintable() and any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in text)
