"""MCP Workbench: one MCP server that stands in front of many.

A request walks through the rooms in one direction, and imports point the same way:

    client - transport - session - face - router - downstream - transport - server

`docs/design.md` says what each room owns and what it refuses to know; `tests/test_layering.py` checks it.
"""

__version__ = "0.1.0"
