"""MCP's two eras: versions, handshake, discovery, capabilities, `_meta`, and the errors on the wire.

Refuses to know who is behind a connection and how messages travel.
"""
