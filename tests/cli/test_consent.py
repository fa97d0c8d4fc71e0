"""Questions are read by people, at terminals of any width."""

from __future__ import annotations

import io

import pytest

from mcp_workbench.cli import consent


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_question_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = _Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("sys.stdin", io.StringIO("2\n"))
    assert consent.ask("`memory` differs in MEMORY_FILE_PATH. Keep which? [1, 2]") == "2"
    assert shown.getvalue() == "`memory` differs in MEMORY_FILE_PATH.\nKeep which? [1, 2] "
