"""Programs that only reach for an address (`mcp-remote`): the address itself takes their place. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

WRAPPER: Final = "mcp-remote"
_TRANSPORTS: Final = {"sse-only": "sse", "http-only": "http"}
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
# Members that mean the same for an address.
_KEPT: Final = ("timeout", "startupTimeout", "disabled", "toolFilters")


def unwrapped(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The server that the wrapper reaches, and what is to be said of it; the same entry where there is no wrapper."""
    words = [str(entry.get("command", "")), *map(str, entry.get("args", ()))]
    at = next((index for index, word in enumerate(words) if word.rpartition("@")[0] == WRAPPER or word == WRAPPER), -1)
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
            transport = _TRANSPORTS.get(next(rest, ""))
            if transport:
                found["type"] = transport
        elif word.startswith("--") and word not in ("--allow-http", "--debug", "--silent"):
            remarks.append(f"`{word}` of {WRAPPER} is not carried over")
    if headers:
        found["headers"] = headers
    else:
        remarks.append("may now require a sign-in: `mcp-workbench login`")
    return found | {key: entry[key] for key in _KEPT if key in entry}, remarks


def _filled_in(value: str, env: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: env.get(found[1], found[0]), value)
