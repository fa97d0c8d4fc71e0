"""The tables of errors follow the program and keep the explanations."""

from __future__ import annotations

from scripts.error_docs import documented, with_tables

FOUND = {"a `…` is gone": "mcp_workbench/engine/a.py:1", "b | c <…>": "mcp_workbench/cli/b.py:7"}
BEFORE = """# Errors

| text | what it means |
|---|---|
| a `…` is gone | It was there. |
| an old one | Nothing says this any more. |

Between the tables.

| text | what it means |
|---|---|
| made of parts | It is. |
| b \\| c \\<…\\> | Something else. |

The end.
"""


def test_a_text_that_is_gone_loses_its_row_and_nothing_else_changes() -> None:
    after = with_tables(BEFORE, FOUND, ("made of parts",))
    assert after == BEFORE.replace("| an old one | Nothing says this any more. |\n", "")
    assert with_tables(after, FOUND, ("made of parts",)) == after


def test_a_new_text_gets_a_row_beside_others_of_its_module_or_the_nearest() -> None:
    new = {"in the same <place>": "mcp_workbench/cli/b.py:9", "nearby": "mcp_workbench/engine/other.py:3"}
    after = with_tables(BEFORE, FOUND | new, ("made of parts",))
    assert after.index("| nearby | ? |") < after.index("Between the tables.")
    assert after.index("| in the same \\<place\\> | ? |") > after.index("Something else.")
    assert documented(after) == ["a `…` is gone", "nearby", "made of parts", *list(FOUND)[1:], "in the same <place>"]
