"""MCP clients as data: where their configuration is, how it is written, and how it is read and edited.

`clients.toml` has a row for each client, which `table` reads; `client_paths` knows where files are on each system,
`documents` reads and edits the content of a file as bytes, `dialects` translates a server between a client's format and
ours, `identity` decides when two entries are the same server, `remote_wrappers` and `literal_secrets` improve entries,
`toolbox_proposals` groups them. `server_json` reads a server's description from the MCP registry, `package_rules` says
what such a description may make run, `foreign_text` writes other people's text into our file. `behaviour.json` and
`behaviour` describe how clients behave once they are connected. Everything is a function of values: `cli` reads and
writes the files.
"""
