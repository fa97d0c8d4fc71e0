"""Reading Python source for tests about it, without going through more of it than they need."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from pathlib import Path


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, outer ones first, as `ast.walk` has them: imports, classes and functions are all among them.

    Most of a tree are expressions. To pass them over makes a walk through the whole package several times as fast."""
    waiting = deque(tree.body)
    while waiting:
        statement = waiting.popleft()
        yield statement
        for field in ("body", "orelse", "finalbody"):
            waiting.extend(getattr(statement, field, ()))
        for field in ("handlers", "cases"):
            for branch in getattr(statement, field, ()):
                waiting.extend(branch.body)


def statements_of(path: Path) -> Iterator[ast.stmt]:
    return statements(ast.parse(path.read_text(encoding="utf-8")))
