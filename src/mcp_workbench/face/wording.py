"""Results that we write ourselves: errors an agent can act upon, in one form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mcp_workbench.errors import WorkbenchError
from mcp_workbench.jsonrpc.messages import ErrorObject, encode
from mcp_workbench.nearest import nearest

# Where a downstream JSON-RPC error is kept whole when it is shown as a result.
ERROR_META: Final = "mcp-workbench/error"
# How many right names an error lists when none is near.
MOST_NAMES: Final = 20


def error_result(text: str, error: ErrorObject | None = None) -> bytes:
    """A tool result that says what went wrong. An agent reads it, and a model can correct itself."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    if error is not None:
        result["_meta"] = {ERROR_META: error}
    return encode(result)


def failure_text(error: WorkbenchError, where: str | None = None) -> str:
    """`[toolbox/server/tool] what failed`, then `hint: what to do`."""
    text = error.message if where is None else f"[{where}] {error.message}"
    return text if error.hint is None else f"{text}\nhint: {error.hint}"


def no_such(kind: str, name: str, known: Iterable[str], where: str = "") -> str:
    """`toolbox \\`dve\\` does not exist; did you mean \\`dev\\`?`"""
    names = list(known)
    near = nearest(name, names)
    shown = name if len(name) <= 100 else name[:100] + "…"
    text = f"{kind} `{shown}` does not exist{where}"
    if near:
        return f"{text}; did you mean {_listed(near, ' or ')}?"
    if not names:
        return f"{text}; there are none"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{text}; there are {_listed(names[:MOST_NAMES], ', ')}{more}"


def _listed(names: list[str], separator: str) -> str:
    return separator.join(f"`{name}`" for name in names)
