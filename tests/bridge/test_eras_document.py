"""`docs/reference/eras.md` says what is mapped; the tests here say that it is so. Each keeps the other honest."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parent.parent / "docs" / "reference" / "eras.md"


def section(title: str) -> str:
    return DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[list[str]]:
    """The rows of the first table in a text, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def rows() -> list[str]:
    return [row[0].strip("`") for row in table(section("What is mapped"))]


@cache
def named() -> dict[str, set[str]]:
    """The rows that tests name, each with the files that do."""
    found: dict[str, set[str]] = {}
    for path in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.bridge":
                for argument in node.args:
                    found.setdefault(ast.literal_eval(argument), set()).add(path.name)
    return found


def test_every_row_is_shown_by_a_test() -> None:
    assert set(rows()) - set(named()) == set()


def test_every_test_names_rows_that_exist() -> None:
    assert {row: files for row, files in named().items() if row not in rows()} == {}


def test_rows_are_complete_and_unique() -> None:
    assert len(rows()) == len(set(rows()))
    for row in table(section("What is mapped")):
        assert len(row) == 3 and all(row), row


def limits() -> list[list[str]]:
    return table(section("Limits"))


@pytest.mark.parametrize("limit", limits(), ids=[row[2].strip("`") for row in limits()])
def test_the_limits_are_those_of_the_code(limit: list[str]) -> None:
    module, _, name = limit[2].strip("`").rpartition(".")
    (value,) = re.findall(r"\d+", limit[1])
    assert getattr(importlib.import_module(f"mcp_workbench.{module}"), name) == float(value)


def test_every_test_file_of_the_bridge_names_its_rows() -> None:
    naming = {name for files in named().values() for name in files}
    silent = {path.name for path in FOLDER.glob("test_*.py")} - naming
    assert silent == {Path(__file__).name}
