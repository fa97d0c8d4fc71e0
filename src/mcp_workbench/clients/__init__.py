"""MCP clients as data: where their configuration lies, how it is written, and the reading and editing of it.

`clients.toml` has a row for each client, `table` makes values of it, `client_paths` knows where files lie on each
system, `documents` reads and edits the content of a file as bytes, `dialects` translates one server between a client's
way of writing and ours, `identity` says when two entries mean the same server, `remote_wrappers` and `literal_secrets`
make better entries of them, `toolbox_proposals` groups them. `server_json` reads what the MCP registry says about a
server, `foreign_text` is how text of others is written into our file. `behaviour.json` and `behaviour` say how clients
behave once they are connected.
Everything is a function of values: who reads and writes files is `cli`.
"""
