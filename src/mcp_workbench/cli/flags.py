"""A small parser for command lines: for the options of `serve`, `argparse` takes at least 6 ms, this takes 0.01 ms.

Owns what an option is, how a command line is parsed, and how help is laid out. Knows no command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final


class UsageError(Exception):
    """The command line is invalid. `hint` says what to do instead."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Flag:
    """An option. `value` is the placeholder for its value; None for a switch."""

    __slots__ = ("help", "name", "optional_value", "repeats", "short", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
        help: str,
        *,
        optional_value: bool = False,
        repeats: bool = False,
        short: str = "",
    ) -> None:
        self.name = name
        self.value = value
        self.help = help
        self.optional_value = optional_value
        self.repeats = repeats
        # A single letter with the same meaning.
        self.short = short


HELP_FLAG: Final = Flag("help", None, "show this help", short="h")
_USAGE_LABEL: Final = "Usage: "


class Parsed:
    """A parsed command line."""

    def __init__(self, flags: Sequence[Flag]) -> None:
        self._flags = {flag.name: flag for flag in (*flags, HELP_FLAG)}
        self._values: dict[str, list[str | None]] = {}
        self.positionals: list[str] = []
        # How many positionals came before `--`; None if there was none.
        self.before_dashes: int | None = None

    @property
    def wants_help(self) -> bool:
        return self.has("help")

    def has(self, name: str) -> bool:
        return name in self._values

    def is_bare(self, name: str) -> bool:
        """Whether the option was given without its optional value."""
        return self._values.get(name, ["-"])[-1] is None

    def value(self, name: str) -> str | None:
        """Return the value of the option; None if it was not given."""
        return self._values.get(name, [None])[-1]

    def values(self, name: str) -> list[str]:
        """Return all values of a repeatable option."""
        return [value for value in self._values.get(name, []) if value is not None]

    def positional(self, index: int) -> str | None:
        """Return a positional argument; None if there is none."""
        return self.positionals[index] if index < len(self.positionals) else None

    def add(self, flag: Flag, value: str | None) -> None:
        if flag.name in self._values and not flag.repeats:
            raise UsageError(f"--{flag.name} was given twice")
        self._values.setdefault(flag.name, []).append(value)

    def find(self, name: str) -> Flag:
        found = self._flags.get(name)
        if found is None:
            from mcp_workbench.engine.nearest import nearest

            near = nearest(name, self._flags)
            raise UsageError(f"unknown option `--{name}`" + (f"; did you mean `--{near[0]}`?" if near else ""))
        return found


class Command:
    """A command: how it is called, and its help. `run` in the module of the same name carries it out."""

    __slots__ = ("about", "actions", "flags", "is_runner", "name", "names", "summary", "takes", "usage")

    def __init__(
        self,
        usage: str,
        summary: str,
        about: str,
        flags: Sequence[Flag],
        *,
        actions: Sequence[str] = (),
        names: Sequence[str] = (),
        takes: int | None = None,
        is_runner: bool = False,
    ) -> None:
        self.name = usage.split()[0].strip("[]")
        self.usage = usage
        self.summary = summary
        self.about = about
        self.flags = tuple(flags)
        # The possible values of the first positional, if it is an action.
        self.actions = tuple(actions)
        # Required positionals by name, and how many there may be; None for any number.
        self.names = tuple(names)
        self.takes = takes
        # Everything after the first positional belongs to the program that it names.
        self.is_runner = is_runner

    def help(self, spelled: str, actions: Sequence[tuple[str, str]] = ()) -> str:
        """Return its help. `spelled` is how people write it, `actions` are other commands that belong to it."""
        from mcp_workbench.cli.wrapping import folded, paragraphs, width_of

        width = width_of(sys.stdout)
        usage = self.usage.replace(f"\n{self.name} ", f"\n{spelled} ").replace(self.name, spelled, 1)
        usage = folded(f"mcp-workbench {usage}", width and width - len(_USAGE_LABEL))
        # A usage of several lines is aligned with itself, not with the word "Usage".
        usage = usage.replace("\n", "\n" + " " * len(_USAGE_LABEL))
        about = paragraphs(self.about.strip(), width)
        more = f"Actions:\n{columns_text(actions)}\n\n" if actions else ""
        return f"{_USAGE_LABEL}{usage}\n\n{about}\n\n{more}{options_text([*self.flags, HELP_FLAG])}"

    def parse(self, arguments: Sequence[str]) -> Parsed:
        """Read the command's arguments. Raises `UsageError`."""
        try:
            parsed = parse(arguments, self.flags, positionals=self.takes, is_runner=self.is_runner)
        except UsageError as error:
            # The most common mistake with `add`: the options of the program come where ours are expected. With an
            # address there is no program.
            has_program = "-- COMMAND" in self.usage and not any(each == "--" or "://" in each for each in arguments)
            if error.hint is None and has_program:
                after = f"a program and its options go after --; mcp-workbench {self.name} --help explains the command"
                raise UsageError(str(error), hint=after) from None
            raise
        if parsed.wants_help:
            return parsed
        action = parsed.positional(0)
        if self.actions and action is not None and action not in self.actions:
            from mcp_workbench.engine.nearest import nearest

            near = nearest(action, self.actions, 1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise UsageError(f"unknown action `{action}`{meant}", hint=f"mcp-workbench {self.usage}")
        missing = self.names[len(parsed.positionals) :]
        if missing:
            raise missing_arguments(missing, self.usage)
        return parsed


def missing_arguments(names: Sequence[str], usage: str) -> UsageError:
    *others, last = names
    listed = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return UsageError(f"{listed} missing", hint=f"mcp-workbench {usage}")


def named_value(text: str, flag: str, separators: str = "=") -> tuple[str, str]:
    """Split into name and value at the first separator. Raises `UsageError`, which quotes nothing: if the separator is
    missing or misplaced, any part of the text may be secret."""
    at = min((text.find(each) for each in separators if each in text), default=-1)
    name = text[: max(at, 0)].strip()
    if not name or any(letter.isspace() for letter in name):
        raise UsageError(f"{flag} takes NAME=VALUE")
    return name, text[at + 1 :].strip() if separators != "=" else text[at + 1 :]


def options_text(flags: Sequence[Flag]) -> str:
    """Return the options with their descriptions, aligned."""
    rows = [(f"--{flag.name}{' ' + flag.value if flag.value else ''}", flag.help) for flag in flags]
    return f"Options:\n{columns_text(rows)}"


def columns_text(rows: Sequence[tuple[str, str]], column: int = 0) -> str:
    """Return words with their descriptions next to them, wrapped on a terminal. Descriptions start at `column`."""
    from mcp_workbench.cli.wrapping import beside, width_of

    column, width = column or max(len(left) for left, _ in rows) + 2, width_of(sys.stdout)
    return "\n".join(beside(left, right, column, width) for left, right in rows)


def parse(
    arguments: Sequence[str], flags: Sequence[Flag], *, positionals: int | None, is_runner: bool = False
) -> Parsed:
    """Parse `--name value`, `--name=value`, `--switch` and positionals. Raises `UsageError`."""
    parsed = Parsed(flags)
    rest = list(arguments)
    shorts = {f"-{flag.short}": f"--{flag.name}" for flag in (*flags, HELP_FLAG) if flag.short}
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            # Its position matters to `add` and `call`: what follows is the command of another program.
            parsed.before_dashes = len(parsed.positionals)
            parsed.positionals += rest
            break
        if argument in shorts:
            argument = shorts[argument]
        if not argument.startswith("--"):
            # `-` conventionally means stdin, and `-5` may be an argument of a tool.
            if argument.startswith("-") and len(argument) > 1 and not argument[1].isdigit():
                raise UsageError(f"unknown option `{argument}`")
            parsed.positionals.append(argument)
            if is_runner:
                parsed.positionals += rest
                break
            continue
        name, equals, inline = argument[2:].partition("=")
        flag = parsed.find(name)
        if flag.value is None:
            if equals:
                raise UsageError(f"--{name} takes no value")
            parsed.add(flag, None)
        elif equals:
            parsed.add(flag, inline)
        # A value may begin with a dash (`--json -`), except an optional value: then the next word is another option.
        elif rest and not (flag.optional_value and rest[0].startswith("-")):
            parsed.add(flag, rest.pop(0))
        elif flag.optional_value:
            parsed.add(flag, None)
        else:
            raise UsageError(f"--{name} needs a value: {flag.value}")
    if positionals is not None and len(parsed.positionals) > positionals:
        raise UsageError(f"unexpected argument `{parsed.positionals[positionals]}`")
    return parsed
