"""MCP Workbench: one MCP server in front of many.

A request passes through the packages in one direction, and imports point the same way:

    client - transport - session - face - router - downstream - transport - server

`docs/design.md` says what each package owns and what it must not know; `tests/test_layering.py` checks the imports.
"""

__version__ = "0.1.0"
