"""MCP Workbench: one MCP server in front of many.

A request passes through the packages in one direction, and imports point the same way:

                                 face
                                   | decides
    client - transport - session - router - downstream - transport - server

`gateway` wires them together on a `runtime`, `serving` serves clients, `entry_point` is the command; `front` and
`shared` are the workbench that several clients share. `config`, `catalog`, `economy`, `protocol`, `jsonrpc` and
`signin` are what those packages know, `observe` and `cli` what people see.

`docs/internals/design.md` says what each package owns and what it must not know; `tests/test_layering.py` checks the
imports.
"""

__version__ = "0.1.0"
