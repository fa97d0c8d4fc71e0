"""MCP Workbench: one MCP server in front of many.

- `engine`: everything between a client and a server. It serves without any of the other parts.
- `signin`: OAuth towards servers, and secrets. `team`: who is calling, and what they may do.
- `app`: the composition root. It builds the parts for one configuration and owns what runs.
- `sharing`: one workbench for all clients of a person. `setup`: other programs' files. `cli`: commands for people.
- `errors`: the one tree of errors. `__main__`: the command.

`docs/internals/design.md` says what each package owns and what it must not know; `tests/test_layering.py` checks the
imports.
"""

__version__ = "0.1.0"
