"""What a tool returned, as a plain value: for lists of calls, and for programs. Pure.

Structured content, else text that is JSON, else text; without the object that servers put around a text or a list.
Images and other blocks without text become links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw

from mcp_workbench.engine.economy.result_pieces import reading
from mcp_workbench.engine.face.kept_results import block_links, is_error, selected_from
from mcp_workbench.engine.jsonrpc.messages import ErrorObject, decode_object, encode, read_error

# Room for the links of one result, in bytes.
_LINKS_ROOM: Final = 4096
UNEXPLAINED: Final = "the tool reported an error without saying which"


class CallFailed(Exception):
    """A call ended in an error, or a tool says that it failed. The message is what an agent would read."""


def value_of(
    kind: str, payload: bytes, where: str, keep: Callable[[bytes], str], select: str = "", *, is_declared: bool = False
) -> object:
    """The value of a call that has ended. `keep`: keeps a result and returns its URI. `is_declared`: as signatures say
    it. Raises `CallFailed`."""
    if kind == "error":
        error: ErrorObject = read_error(payload)
        raise CallFailed(error.message)
    read = reading(payload)
    if is_error(payload):
        text = read.text or UNEXPLAINED
        # What a face refuses has reached no server.
        raise CallFailed(text if text.startswith("[") or not where else f"[{where}] {text}")
    if select:
        try:
            return selected_from(read, select)
        except ValueError as problem:
            raise CallFailed(f"{problem}; the tool was called") from None
    value = read.declared if is_declared else read.value if read.is_json else read.text
    if not read.others:
        return value
    content = decode_object(payload).get("content", Raw(b"[]"))
    links = block_links(keep(payload), content, _LINKS_ROOM)
    return [value, *links] if value else links


def listed(values: list[bytes]) -> bytes:
    """The result of a list of calls: one array, as text."""
    return encode({"content": [{"type": "text", "text": (b"[" + b",".join(values) + b"]").decode()}]})
