"""Messages in parts, as a link is given them."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_workbench.engine.jsonrpc.messages import Part


def joined(parts: Sequence[Part]) -> bytes:
    """The whole message. Parts have a length: links to descriptors count bytes, and a `Raw` cannot be counted."""
    message = b"".join(parts)
    assert sum(map(len, parts)) == len(message)
    return message
