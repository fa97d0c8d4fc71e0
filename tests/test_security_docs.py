"""SECURITY.md names tests for what it claims: they exist, under that name, in that file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "path"), sorted(set(NAMED)))
def test_a_test_that_is_named_exists(name: str, path: str) -> None:
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), path


def test_every_risk_and_vulnerability_names_a_test_or_says_that_there_is_none() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tables = text.partition("## The OWASP MCP Top 10")[2].partition("## What is not defended")[0]
    rows = [
        line for line in tables.splitlines() if line.startswith("| ") and not line.startswith(("| risk", "| published"))
    ]
    assert len(rows) > 20
    risks = re.findall(r"^\| (MCP\d\d) ", tables, re.MULTILINE)
    assert risks == [f"MCP{number:02d}" for number in range(1, 11)]
    assert [row for row in rows if "](tests/" not in row.split(" | ")[-1] and "none" not in row.split(" | ")[-1]] == []
