"""Everything between a client and a server. Serves without any other part of the program.

A request passes through the packages in one direction, and imports point the same way:

    client ─ transport ─ session ─ router ─ downstream ─ transport ─ server
                                     │
                                   face ─ catalog, economy

- `transport`: how messages travel, `jsonrpc`: the messages, `protocol`: MCP's two eras.
- `session`: one client. `face`: what it sees, a decision without I/O (`faces` is the table of all). `router`: carries
  decisions out, through the `steps` around every request, to a connection of `downstream`.
- `catalog`: what servers offer and under which name; `economy`: the same in few tokens.
- `sandbox`: what a server's process may touch.
- `config`: what the user wrote; `observe`: logs, figures of calls and the status socket.
- Used by all of them: `nearest` names for a wrong one, `printable` text, `portable_os` for what Windows lacks,
  `own_files` that are written whole, `json_schema` and `slices` of large JSON, `blocking_work` in threads,
  `file_watch`, `run` (the event loop), `process_context` (where sockets lie), `socket_peers`, `nesting` of messages,
  `lasting_state` (what other instances find), and `version`.
"""
