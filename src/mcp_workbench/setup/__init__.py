"""Other programs' files: finds the servers of MCP clients, and adds the workbench to them so that it can be undone.

- `clients`: the clients as data, their files as values. `file_replacement` replaces files so that nothing is lost,
  `client_commands` runs clients' own commands.
- `mcp_registry` looks servers up, `server_preview` says what one would start, `check_references` whether everything
  that it refers to exists; `service` is the unit that starts the shared workbench at boot.

Does not know who runs it: it returns values, and commands print them.
"""
