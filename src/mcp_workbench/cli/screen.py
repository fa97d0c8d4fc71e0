"""Output for people: coloured and wrapped on a terminal, plain and unwrapped in a pipe.

Owns the look. Imports `rich` for a terminal only. Does not know what is shown: it gets text with the names of a few
styles. Text from servers is never interpreted as markup, and control characters in it are escaped, in a pipe too,
because the next program often shows it. Only `text` and `json`, which are data, pass them unchanged to a pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TextIO

from mcp_workbench.engine.printable import indented, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Style = Literal["plain", "strong", "name", "dim", "good", "bad", "warn", "code"]
Part = str | tuple[str, Style]

_RICH_STYLES: Final[dict[Style, str]] = {
    "plain": "",
    "strong": "bold",
    "name": "bold cyan",
    "dim": "dim",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "code": "green",
}
_BETWEEN_COLUMNS: Final = 2
_NARROWEST_COLUMN: Final = 10


class Screen:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()

    @cached_property
    def console(self) -> Console:
        """The terminal, for what only a terminal can show."""
        from rich.console import Console

        # Text from servers and users may look like markup (`[red]`), an emoji code (`:key:`) or a number to highlight.
        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def line(self, *parts: Part, indent: int = 0, wrap: bool = True, is_whole: bool = False) -> None:
        """Print a line or paragraph. Continuation lines are indented, unless it is a whole output (`is_whole`). On a
        terminal it is wrapped within its indentation, unless it is meant to be copied."""
        if not self.is_terminal:
            margin = " " * indent
            text = visible("".join(part if isinstance(part, str) else part[0] for part in parts))
            text = text if indent or is_whole else indented(text)
            self._stream.write("".join(f"{margin}{one}".rstrip(" ") + "\n" for one in text.split("\n")))
            return
        from rich.padding import Padding

        shown = _assembled(parts) if indent or is_whole else _indented(_assembled(parts))
        if not wrap:
            for one in shown.split("\n"):
                # A command copied from the screen must not contain line breaks.
                self.console.print(" " * indent, one, sep="", soft_wrap=True)
            return
        self.console.print(Padding(shown, (0, 0, 0, indent), expand=False) if indent else shown)

    def blank(self) -> None:
        self._stream.write("\n")

    def section(self, title: str, about: str = "") -> None:
        """Begin a part of a longer output: a blank line, a heading, and what it is about."""
        self.blank()
        self.line((title, "strong"), f"  {about}" if about else "")

    def fits(self, header: Sequence[str], rows: Sequence[Sequence[Part]], *, indent: int = 0) -> bool:
        """Whether a table fits on this screen without breaking a line; always true in a pipe."""
        if not self.is_terminal:
            return True
        widths = [max(map(len, column)) for column in zip(*_texts(header, rows), strict=True)]
        return indent + sum(widths) + _BETWEEN_COLUMNS * (len(widths) - 1) <= self.console.width

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[Part]],
        *,
        indent: int = 0,
        right: Collection[int] = (),
        details: Sequence[Sequence[str]] = (),
    ) -> None:
        """Print rows under a header; the columns in `right` are numbers: right-aligned and never broken. `details` has
        for each row the lines to print below it, indented."""
        if self.is_terminal:
            self._rich_table(header, rows, indent, right, details)
            return
        cells = _texts([title.upper() for title in header], rows)
        if not any(header):
            # A table without titles needs no heading, not even an empty line.
            del cells[0]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        first = len(cells) - len(rows)
        for number, row in enumerate(cells):
            padded = [
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self._stream.write((" " * indent + (" " * _BETWEEN_COLUMNS).join(padded)).rstrip() + "\n")
            if details and number >= first:
                self._details(details[number - first], indent)

    def _rich_table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[Part]],
        indent: int,
        right: Collection[int],
        details: Sequence[Sequence[str]],
    ) -> None:
        from rich.padding import Padding

        shown = rich_table(header, rows, right)
        if not any(details):
            self.console.print(Padding(shown, (0, 0, 0, indent), expand=False))
            return
        widths = self._widths(header, rows, indent, right)
        for number, row in enumerate(rows):
            # One table for each row, with a heading for the first: a table cannot have lines across its columns.
            one = rich_table(header if number == 0 else [""] * len(header), [row], right, widths)
            self.console.print(Padding(one, (0, 0, 0, indent), expand=False))
            self._details(details[number], indent)

    def _widths(
        self, header: Sequence[str], rows: Sequence[Sequence[Part]], indent: int, right: Collection[int]
    ) -> list[int]:
        """The widths of all columns; what does not fit is taken from the widest one that may be broken."""
        from rich.cells import cell_len

        widths = [max(map(cell_len, column)) for column in zip(*_texts(header, rows), strict=True)]
        excess = indent + sum(widths) + _BETWEEN_COLUMNS * (len(widths) - 1) - self.console.width
        widest = max((column for column in range(len(widths)) if column not in right), key=widths.__getitem__)
        widths[widest] = max(_NARROWEST_COLUMN, widths[widest] - max(0, excess))
        return widths

    def _details(self, lines: Sequence[str], indent: int) -> None:
        for line in lines:
            self.line(one_line(line), indent=indent + _BETWEEN_COLUMNS)

    def json(self, value: object) -> None:
        """Print a value as indented JSON: the same bytes on a terminal and in a pipe."""
        from msgspec.json import format

        from mcp_workbench.engine.jsonrpc.messages import encode

        # Not through `rich`: `| jq` and a terminal must get the same, and JSON needs no colours.
        self._stream.write(format(encode(value), indent=2).decode() + "\n")

    def text(self, text: str) -> None:
        """Print text unchanged, ending in a line break; on a terminal, control characters are escaped."""
        # A tool's text can contain escape sequences: to a terminal they are commands, to `> file` they are data.
        shown = visible(text) if self.is_terminal else text
        self._stream.write(shown if shown.endswith("\n") else shown + "\n")

    def clipped(self, text: str) -> None:
        """Print text whose long lines matter by their beginnings: on a terminal they end at its edge."""
        width = self.console.width if self.is_terminal else None
        lines = visible(text).splitlines()
        self.text("\n".join(one if width is None or len(one) <= width else one[: width - 1] + "…" for one in lines))

    def flush(self) -> None:
        """Flush before something else writes to the same terminal."""
        self._stream.flush()


def rich_table(
    header: Sequence[str], rows: Sequence[Sequence[Part]], right: Collection[int] = (), widths: Sequence[int] = ()
) -> RenderableType:
    """Return the same table for a terminal, also for a live display. `widths` of the columns, where they are given."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN_COLUMNS, 0, 0), header_style="dim")
    table.show_header = any(header)
    for column, title in enumerate(header):
        is_number = column in right
        # A folded number would look like two.
        justify: Literal["left", "right"] = "right" if is_number else "left"
        width = widths[column] if widths else None
        table.add_column(title, justify=justify, overflow="fold", no_wrap=is_number, width=width)
    for row in rows:
        table.add_row(*(_assembled([cell], one_line) for cell in row))
    return table


def _texts(header: Sequence[str], rows: Sequence[Sequence[Part]]) -> list[list[str]]:
    shown = [[one_line(cell if isinstance(cell, str) else cell[0]) for cell in row] for row in rows]
    return [list(header), *shown]


def _assembled(parts: Sequence[Part], shown: Callable[[str], str] = visible) -> Text:
    from rich.text import Text

    pairs = [(part, "") if isinstance(part, str) else (part[0], _RICH_STYLES[part[1]]) for part in parts]
    return Text.assemble(*((shown(text), style) for text, style in pairs))


def _indented(shown: Text) -> Text:
    """As `printable.indented`, for styled text."""
    from rich.text import Text

    first, *rest = shown.split("\n", allow_blank=True)
    margin = Text("  " if any(line.plain[:1] not in ("", " ", "\t") for line in rest) else "")
    return Text("\n").join([first, *(margin + line if line else line for line in rest)])


def stdout() -> Screen:
    return Screen(sys.stdout)


def stderr() -> Screen:
    return Screen(sys.stderr)
