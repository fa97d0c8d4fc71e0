"""Programs that only connect to an address (`mcp-remote`) are replaced by the address. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcp_workbench.setup.clients.foreign_text import Piece, Verbatim, joined, pieces_of

WRAPPER: Final = "mcp-remote"
_WRAPPER_TRANSPORTS: Final = {"sse-only": "sse", "http-only": "http"}
_WHOLE_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
# Members that mean the same for an address.
_KEPT_MEMBERS: Final = ("timeout", "startupTimeout", "disabled", "toolFilters")


def unwrapped(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the server that the wrapper connects to, and remarks on it; the same entry if there is no wrapper."""
    words = [str(entry.get("command", "")), *map(str, entry.get("args", ()))]
    at = next((index for index, word in enumerate(words) if word.rpartition("@")[0] == WRAPPER or word == WRAPPER), -1)
    # Options may come before the address.
    address = next((word for word in words[at + 1 :] if word.startswith(("http://", "https://"))), None)
    if at < 0 or address is None:
        return dict(entry), []
    found: dict[str, Any] = {"url": address}
    headers: dict[str, str] = {}
    remarks = []
    rest = iter(words[at + 1 :])
    for word in rest:
        if word == "--header":
            name, _, value = next(rest, "").partition(":")
            headers[name.strip()] = _filled_in(value.strip(), entry.get("env", {}))
        elif word == "--transport":
            transport = _WRAPPER_TRANSPORTS.get(next(rest, ""))
            if transport:
                found["type"] = transport
        elif word.startswith("--") and word not in ("--allow-http", "--debug", "--silent"):
            remarks.append(f"`{word}` of {WRAPPER} is not carried over")
    if headers:
        found["headers"] = headers
    else:
        remarks.append("may now require a sign-in: `mcp-workbench auth login`")
    return found | {key: entry[key] for key in _KEPT_MEMBERS if key in entry}, remarks


def _filled_in(value: str, env: Mapping[str, str]) -> str:
    """Fill in the variables of the program. Both texts are in our file already, and neither may complete a reference of
    the other."""
    pieces: list[Piece] = []
    for piece in pieces_of(value):
        variable = _WHOLE_VARIABLE.fullmatch(piece.text) if isinstance(piece, Verbatim) else None
        pieces += pieces_of(env[variable[1]]) if variable and variable[1] in env else [piece]
    return joined(pieces)
