"""Other programs' files: finds the servers of MCP clients, and adds the workbench to them so that it can be undone.

- `clients`: the clients as data, their files as values. `client_files` finds these files on this machine,
  `client_changes` makes changes to them and takes them back, through `file_replacement`, which loses nothing, or with
  clients' own commands (`client_commands`); `install_plan` decides what is changed, `edit_preview` shows it;
  `connecting` is the same as text to copy, `folder_trust` says where a client starts no servers.
- `own_configuration` edits ours, `secret_store` stores the secrets found in entries, `import_record`
  remembers what clients had, `mcp_registry` looks servers up, `package_sources` pins packages,
  `server_preview` says what one would start, `check_references` whether everything that it refers to exists.
- `doctor_checks` and `doctor_clients` find what is wrong, as values of `diagnosis`; `service` is the unit that starts
  the shared workbench at boot.

Does not know who runs it: it returns values, and commands print them.
"""
