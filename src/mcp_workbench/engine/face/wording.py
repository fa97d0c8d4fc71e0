"""Results that we write ourselves: errors that an agent can act on, in a uniform style."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import DecodeError, Raw, ValidationError

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc.messages import ErrorObject, decode_object, encode
from mcp_workbench.errors import WorkbenchError

# The member with the complete JSON-RPC error of a server that is shown as a result.
ERROR_META: Final = "mcp-workbench/error"
# The member of a result that names changed toolboxes.
CHANGED_META: Final = "mcp-workbench/changed"
# The member of a result that names a server which was stopped for idleness and started again.
RESTARTED_META: Final = "mcp-workbench/restarted"
# What to do about a tool that is withheld.
REVIEW: Final = "the user can review it with `mcp-workbench team lock diff` and accept it"
# Its tools have changed, or the configuration has added or removed it.
Change = Literal["changed", "new", "removed"]
# How many valid names an error lists if none is similar.
MAX_LISTED_NAMES: Final = 20
_EMPTY_LIST: Final = re.compile(rb"\[\s*\]")


def error_result(text: str, error: ErrorObject | None = None) -> bytes:
    """A tool result that says what went wrong, so that the model can correct itself."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    if error is not None:
        result["_meta"] = {ERROR_META: error}
    return encode(result)


def with_notice(result: Raw, changed: Mapping[str, Change]) -> Raw:
    """Append a note about changed toolboxes to a tool result, leaving the rest unchanged."""
    return _with_line(result, _about_changes(changed), CHANGED_META, list(changed))


def with_restart(result: Raw, entry: ServerEntry) -> Raw:
    """Append to a tool result that its server was stopped while its client had it open."""
    text = (
        f"Note: {entry.label} was stopped after {entry.config.idle_timeout or 0:g} s without a call (`idleTimeout` in "
        "the configuration) and has been started again: what it kept in memory is gone."
    )
    return _with_line(result, text, RESTARTED_META, entry.label)


def _with_line(result: Raw, text: str, key: str, value: object) -> Raw:
    """Append a line to a tool result, and a member to its `_meta`."""
    try:
        members = decode_object(result)
        meta: dict[str, object] = dict(decode_object(members.pop("_meta"))) if "_meta" in members else {}
    except (DecodeError, ValidationError):
        return result
    meta[key] = value
    parts: list[bytes | memoryview] = [b"{"]
    # Written between the bytes: a result may have a hundred megabytes, and is copied once.
    for name, member in members.items():
        written = memoryview(member)
        parts += (encode(name), b":")
        if name == "content" and bytes(written[:1]) == b"[":
            separator = b"" if _EMPTY_LIST.fullmatch(written) else b","
            parts += (written[:-1], separator, encode({"type": "text", "text": text}), b"],")
        else:
            parts += (written, b",")
    return Raw(b"".join((*parts, b'"_meta":', encode(meta), b"}")))


def _about_changes(changed: Mapping[str, Change]) -> str:
    said = []
    for how, text in (
        ("changed", "the tools of {} have changed; open_toolbox shows them."),
        ("new", "these toolboxes are new: {}."),
        ("removed", "these toolboxes were removed: {}."),
    ):
        names = [name for name, what in changed.items() if what == how]
        if names:
            more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
            said.append("Note: " + text.format(", ".join(names[:MAX_LISTED_NAMES]) + more))
    return "\n".join(said)


def failure_text(error: WorkbenchError, where: str | None = None) -> str:
    """`[toolbox/server/tool] what failed`, then `hint: what to do`."""
    text = error.message if where is None else f"[{where}] {error.message}"
    return text if error.hint is None else f"{text}\nhint: {error.hint}"


def no_such(kind: str, name: str, known: Iterable[str], where: str = "", *, most_others: int = MAX_LISTED_NAMES) -> str:
    """`toolbox \\`dve\\` does not exist; did you mean \\`dev\\`?` If none is similar, `most_others` are listed."""
    names = list(known)
    from mcp_workbench.engine.nearest import nearest

    near = nearest(name, names)
    shown = name if len(name) <= 100 else name[:100] + "…"
    text = f"{kind} `{shown}` does not exist{where}"
    if near:
        return f"{text}; did you mean {_listed(near, ' or ')}?"
    if not names:
        return f"{text}; none are available"
    if not most_others:
        return text
    more = f" and {len(names) - most_others} more" if len(names) > most_others else ""
    return f"{text}; available: {_listed(names[:most_others], ', ')}{more}"


def rivals_for_address(uri: str, servers: Sequence[str], remedy: str) -> str:
    """The error for a resource that several servers have equal claims to."""
    named = _listed(servers[:MAX_LISTED_NAMES], " and ")
    return f"resource `{uri[:500]}` is ambiguous: {named} offer this address, and nothing says whose is meant; {remedy}"


def shared_text(rivals: tuple[ServerEntry, ServerEntry], shared: Sequence[str]) -> str:
    """The message for the user about addresses that two servers list."""
    servers = " and ".join(f"`{entry.toolbox}/{entry.name}`" for entry in rivals)
    others = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
    return f"{servers} both list the address `{shared[0][:200]}`{others}; it cannot be read while both are visible"


def _listed(names: Sequence[str], separator: str) -> str:
    return separator.join(f"`{name}`" for name in names)
