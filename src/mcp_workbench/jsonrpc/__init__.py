"""JSON-RPC 2.0 as bytes: framing, envelopes, ids, pending requests. Sans-I/O, and not aware of MCP.

Payloads (`params`, `result`, `error`) stay opaque `msgspec.Raw` slices of the line they came in, so that what passes
through comes out byte for byte as it went in.
"""
