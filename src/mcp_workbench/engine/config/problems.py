"""What is wrong with a configuration: one value for each problem, and one error that carries all of them.

Owns the format of a problem: file, line, column, `$.path`, what was found, what was expected, what to do. Does not know
how problems are found. Values of `env` and `headers` never get in here: only their kind is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mcp_workbench.errors import ConfigError

Path = tuple[str | int, ...]

# Clients nest 6 levels at most, and this is many times that; whoever reads a configuration may recurse.
MAX_CONFIG_NESTING = 200
# A generated file can be wrong in a million places; no one reads past this, and the error text stays bounded.
_MAX_RENDERED_PROBLEMS = 200
_MAX_PROBLEMS_IN_LINE = 3
_MAX_QUOTE_LENGTH = 60
_MAX_PATH_STEPS = 16


class Problem(Struct, frozen=True, kw_only=True):
    """A single problem. `steps` is None if it is about the whole file; lines and columns count from 1."""

    steps: Path | None = ()
    found: str
    expected: str | None = None
    hint: str | None = None
    suggestions: tuple[str, ...] = ()
    # Whether the key is at fault rather than its value.
    at_key: bool = False
    # Whether the file is right but the environment is not: a variable is not set, or its value does not fit.
    of_environment: bool = False
    line: int | None = None
    column: int | None = None

    @property
    def path_in_file(self) -> str:
        return "" if self.steps is None else render_path(self.steps)

    def render(self, file: str, before_hint: str = "\n  hint: ") -> str:
        """Return `file:line:column: $.path: found …, expected …`, and the hint on a separate line."""
        where = file if self.line is None else f"{file}:{self.line}:{self.column}"
        parts = [where, self.path_in_file, self.found] if self.steps is not None else [where, self.found]
        text = ": ".join(parts)
        # A suggestion is more helpful than a list of everything that is possible.
        if self.suggestions:
            text += f"; did you mean {' or '.join(quote(name) for name in self.suggestions)}?"
        elif self.expected:
            text += f", expected {self.expected}"
        return f"{text}{before_hint}{self.hint}" if self.hint else text


class ConfigProblems(ConfigError):
    """Everything that is wrong with a file. `str(error)` has a block for each problem, in the order of the file.

    If there are several, a line before them gives their number.
    """

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = list(problems)
        # For several problems, readers want to know the number before reading them.
        number = [f"{path}: {len(self.problems):,} problems"] if len(self.problems) > 1 else []
        super().__init__("\n".join([*number, *self._blocks(0)]))

    def _blocks(self, first: int) -> list[str]:
        blocks = [problem.render(self.path) for problem in self.problems[first:_MAX_RENDERED_PROBLEMS]]
        if len(self.problems) > _MAX_RENDERED_PROBLEMS:
            blocks.append(f"{self.path}: and {len(self.problems) - _MAX_RENDERED_PROBLEMS:,} more problems")
        return blocks

    @property
    def first_line(self) -> str:
        """The first problem with what to do about it, and how many follow: for readers who may see a single line, as
        in the log of a client."""
        more = len(self.problems) - 1
        return self.problems[0].render(self.path, "; ") + (f" (the first of {more + 1:,} problems)" if more else "")

    @property
    def text_by_importance(self) -> str:
        """`first_line`, and below it the other problems."""
        return "\n".join([self.first_line, *self._blocks(1)])

    @property
    def first_hint(self) -> str | None:
        """The hint of the first problem that has one, for callers that show it separately from the text."""
        return next((problem.hint for problem in self.problems if problem.hint), None)


def in_one_line(problems: Sequence[Problem]) -> str:
    """Summarise problems and their places, for readers who do not have the file at hand."""
    parts = [f"{problem.found}, at {problem.path_in_file}" for problem in problems[:_MAX_PROBLEMS_IN_LINE]]
    if len(problems) > len(parts):
        parts.append(f"and {len(problems) - len(parts):,} more")
    return "; ".join(parts)


def render_path(steps: Path) -> str:
    """Return `$.toolboxes.dev.mcpServers["my server"].args[0]`: dots where a name allows them, else brackets."""
    text = "$"
    for step in steps[:_MAX_PATH_STEPS]:
        if isinstance(step, int):
            text += f"[{step}]"
        # As people write paths: `$.a.my-server` rather than `$.a["my-server"]`.
        elif step.replace("-", "_").isidentifier():
            text += f".{shortened(step)}"
        else:
            text += f'["{shortened(step)}"]'
    return f"{text}…" if len(steps) > _MAX_PATH_STEPS else text


def quote(value: str) -> str:
    """Return the text in backticks, short enough to read and without characters that would garble a terminal."""
    return f"`{shortened(value)}`"


def shortened(value: str) -> str:
    if len(value) > _MAX_QUOTE_LENGTH:
        value = value[: _MAX_QUOTE_LENGTH - 1] + "…"
    if value.isprintable():
        return value
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in value)


def kind_of(value: object) -> str:
    """Return the type of a JSON value in words, without the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "an object" if value else "an empty object"
        case _:
            return "something else"


def _reads_as_another_kind(text: str) -> bool:
    return text in ("true", "false", "null") or text.removeprefix("-").replace(".", "", 1).isdecimal()


def described(value: object) -> str:
    """Return the type of a value and, if it is short and plain, the value itself."""
    match value:
        case None | "" | list() | dict():
            return kind_of(value)
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            # A number in quotes looks like the number that it should, or should not, have been.
            return f"the string {quote(value)}" if _reads_as_another_kind(value) else quote(value)
        case _:
            return f"{kind_of(value)} {quote(str(value))}"
