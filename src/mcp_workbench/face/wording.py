"""Results that we write ourselves: errors an agent can act upon, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.jsonrpc.messages import ErrorObject, decode_object, encode

# Where a downstream JSON-RPC error is kept whole when it is shown as a result.
ERROR_META: Final = "mcp-workbench/error"
# Where toolboxes that have changed are named in a result.
CHANGED_META: Final = "mcp-workbench/changed"
# What to do about a tool that is withheld.
REVIEW: Final = "the user can review it with `mcp-workbench lock diff` and accept it"
# What has happened to a toolbox: other tools in it, or another configuration with or without it.
Change = Literal["changed", "new", "removed"]
# How many right names an error lists when none is near.
MOST_NAMES: Final = 20


def error_result(text: str, error: ErrorObject | None = None) -> bytes:
    """A tool result that says what went wrong. An agent reads it, and a model can correct itself."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    if error is not None:
        result["_meta"] = {ERROR_META: error}
    return encode(result)


def with_notice(result: bytes, changed: Mapping[str, Change]) -> bytes:
    """A tool result with a word at its end about toolboxes that have changed. The rest stays as it was."""
    try:
        members = decode_object(result)
        content = bytes(members.get("content", b"")).rstrip()
        meta: dict[str, object] = dict(decode_object(members["_meta"])) if "_meta" in members else {}
    except (DecodeError, ValidationError):
        return result
    if content.startswith(b"[") and content.endswith(b"]"):
        block = encode({"type": "text", "text": _about_changes(changed)})
        # Written into the bytes: decoding and encoding a result of megabytes for one line would take longer than the
        # call.
        separator = b"" if content[1:-1].strip() == b"" else b","
        members["content"] = Raw(content[:-1] + separator + block + b"]")
    meta[CHANGED_META] = list(changed)
    members["_meta"] = Raw(encode(meta))
    return encode(members)


def _about_changes(changed: Mapping[str, Change]) -> str:
    said = []
    for how, text in (
        ("changed", "the tools of {} have changed; open_toolbox shows them."),
        ("new", "these toolboxes are new: {}."),
        ("removed", "these toolboxes were removed: {}."),
    ):
        names = [name for name, what in changed.items() if what == how]
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            said.append("Note: " + text.format(", ".join(names[:MOST_NAMES]) + more))
    return "\n".join(said)


def failure_text(error: WorkbenchError, where: str | None = None) -> str:
    """`[toolbox/server/tool] what failed`, then `hint: what to do`."""
    text = error.message if where is None else f"[{where}] {error.message}"
    return text if error.hint is None else f"{text}\nhint: {error.hint}"


def no_such(kind: str, name: str, known: Iterable[str], where: str = "", *, most_others: int = MOST_NAMES) -> str:
    """`toolbox \\`dve\\` does not exist; did you mean \\`dev\\`?` Where none is near, `most_others` are listed."""
    names = list(known)
    from mcp_workbench.nearest import nearest

    near = nearest(name, names)
    shown = name if len(name) <= 100 else name[:100] + "…"
    text = f"{kind} `{shown}` does not exist{where}"
    if near:
        return f"{text}; did you mean {_listed(near, ' or ')}?"
    if not names:
        return f"{text}; there are none"
    if not most_others:
        return text
    more = f" and {len(names) - most_others} more" if len(names) > most_others else ""
    return f"{text}; there are {_listed(names[:most_others], ', ')}{more}"


def rivals_for_address(uri: str, servers: Sequence[str], remedy: str) -> str:
    """Why a resource cannot be read: several servers have the same claim to its address."""
    named = _listed(servers[:MOST_NAMES], " and ")
    return f"resource `{uri[:500]}` is ambiguous: {named} offer this address, and nothing says whose is meant; {remedy}"


def shared_text(rivals: tuple[ServerEntry, ServerEntry], shared: Sequence[str]) -> str:
    """What to tell the user of addresses that two servers list."""
    servers = " and ".join(f"`{entry.toolbox}/{entry.name}`" for entry in rivals)
    others = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
    return f"{servers} both list the address `{shared[0][:200]}`{others}; while both are in view, it cannot be read"


def _listed(names: Sequence[str], separator: str) -> str:
    return separator.join(f"`{name}`" for name in names)
