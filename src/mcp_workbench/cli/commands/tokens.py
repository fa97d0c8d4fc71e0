"""`mcp-workbench list --tokens`: show what tools cost an agent, as a flat list and with the workbench."""

from __future__ import annotations

from typing import Final

from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, Screen, Style, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.shared_engine import engine_that_knows, reported
from mcp_workbench.cli.token_report import ABOUT_FLAT, ABOUT_FULL, COLUMNS, Report, Row, as_json, measure, rows, summary

# The most important columns, if there is no room for all.
_NARROW_HEADER: Final = ["", "tools", "flat list", "full", "opened"]


def run(parsed: Parsed) -> int:
    config = configuration(parsed, parsed.positional(0))
    redactor = log_for(parsed, config)
    engine, failures = engine_that_knows(parsed, config, redactor)
    report = measure(config, engine)
    screen = stdout()
    if parsed.has("json"):
        screen.json(as_json(report))
    else:
        show(screen, report)
        screen.flush()
    return reported(failures, redactor)


def show(screen: Screen, report: Report) -> None:
    """Show the table, and a summary."""
    header, cells = ["", *COLUMNS], [_cells(row) for row in rows(report)]
    if not screen.fits(header, cells):
        # A wider terminal, or a pipe, shows the other columns too.
        kept = [header.index(title) for title in _NARROW_HEADER]
        header, cells = _NARROW_HEADER, [[row[column] for column in kept] for row in cells]
    screen.table(header, cells, right=range(1, len(header) - 1))
    screen.blank()
    for line in [*summary(report), ABOUT_FLAT, ABOUT_FULL]:
        screen.line(line)


def _cells(row: Row) -> list[Part]:
    name: Part = (row.name, "name") if row.is_toolbox else f"  {row.name}"
    opened = f"{row.opened.tokens:,} {row.opened.form}" if row.opened else ""
    if row.numbers is None:
        return [name, ("?", "dim"), *[""] * (len(COLUMNS) - 2), opened]
    style: Style = "strong" if row.is_toolbox else "plain"
    return [name, *((f"{number:,}", style) for number in row.numbers), opened]
