"""JSON-RPC 2.0 as bytes. Sans-I/O, and not aware of MCP.

- `framing`: lines out of bytes, and what is too long; `messages`: envelopes, errors, ids;
  `large_messages`: reading one of megabytes in pieces.
- `pending`: requests that wait for an answer, their deadlines, and the matching of answers to them.

Payloads (`params`, `result`, `error`) stay opaque `msgspec.Raw` slices of the line they came in, so that what passes
through comes out byte for byte as it went in.
"""
