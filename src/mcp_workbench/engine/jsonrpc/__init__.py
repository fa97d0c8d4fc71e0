"""JSON-RPC 2.0 as bytes. Sans-I/O, and not aware of MCP.

- `framing`: splits bytes into lines, with a limit on their length; `messages`: envelopes, errors, ids;
  `large_messages`: reading messages of several megabytes in pieces.
- `pending`: requests that are waiting for a response, their deadlines, and matching responses to them.

Payloads (`params`, `result`, `error`) stay opaque `msgspec.Raw` slices of their line, so that they are forwarded
byte for byte.
"""
