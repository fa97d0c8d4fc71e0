"""How large the parts of a request may be that are decoded here: names, URIs, and what only a workbench reads. Pure.

To decode megabytes takes the time of everybody. Payloads that are passed on, such as a tool's arguments, are not
decoded and only limited by `maxMessageBytes`.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.engine.jsonrpc.messages import LARGE_REQUEST, LargeObject

# The longest URI that browsers and proxies generally accept.
MAX_NAME_BYTES: Final = 8 * 1024
# The most that a member may have which is neither a name nor a payload.
MAX_OWN_BYTES: Final = 64 * 1024
# Stamps and states are of others, who may put in what they like; we look for a few members.
MAX_META_BYTES: Final = 1024 * 1024
# Smaller requests are not looked at.
assert LARGE_REQUEST <= MAX_NAME_BYTES

_LIMITS: Final = {
    **dict.fromkeys(("name", "uri", "taskId", "cursor", "level", "ref"), MAX_NAME_BYTES),
    **dict.fromkeys(("notifications", "clientInfo", "protocolVersion"), MAX_OWN_BYTES),
    **dict.fromkeys(("_meta", "capabilities", "requestState"), MAX_META_BYTES),
}


def why_too_large(method: str, params: LargeObject) -> str | None:
    """Why a large request is refused, or None."""
    if len(method) > MAX_NAME_BYTES:
        return _text("method", len(method), MAX_NAME_BYTES)
    for name in params.keys() & _LIMITS.keys():
        size = params.size_of(name)
        if size > _LIMITS[name]:
            return _text(name, size, _LIMITS[name])
    return None


def _text(name: str, size: int, limit: int) -> str:
    return f"`{name}` has {size} bytes, more than the {limit} that are allowed"
