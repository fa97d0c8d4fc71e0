"""The tables of commands and options in the documentation are made from their declarations."""

from __future__ import annotations

import pytest

from mcp_workbench.cli.flags import HELP_FLAG
from mcp_workbench.cli.usage import COMMANDS
from scripts.cli_docs import MORE, OPTIONS, with_tables
from scripts.write_reference_docs import COMMANDS as DOCUMENT


@pytest.mark.requirement("project.documentation")
def test_tables_match_the_declarations() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert document == with_tables(document), "run python -m scripts.write_reference_docs"
    assert "| `--tls-key FILE` | HTTP: the key of the certificate (PEM, without a passphrase) |" in document


def test_every_command_has_one_table_of_options() -> None:
    tables = [found[1] for found in OPTIONS.finditer(DOCUMENT.read_text("utf-8"))]
    assert sorted(tables) == sorted(COMMANDS)


def test_every_manual_addition_belongs_to_an_option() -> None:
    options = {f"{name}.{flag.name}" for name, command in COMMANDS.items() for flag in (*command.flags, HELP_FLAG)}
    assert MORE.keys() <= options


def test_a_table_that_is_out_of_date_is_replaced() -> None:
    before = "Text.\n\n<!-- options of down -->\n\n| option |\n|---|\n| `--old` |\n\nMore.\n"
    assert with_tables(before) == (
        "Text.\n\n<!-- options of down -->\n\n"
        "| option | what it is |\n|---|---|\n| `--help` | show this help |\n\nMore.\n"
    )
