"""The MCP registry: the `server.json` of a server, by the server's name.

Owns the two requests of its API that are used, and the words when it cannot be reached. Blocks: for a command.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

import msgspec

from mcp_workbench import __version__
from mcp_workbench.errors import DownstreamError
from mcp_workbench.nearest import nearest

# Of each request, until its last byte. A registry answers in a fraction of a second; somebody waits at a terminal.
REGISTRY_SECONDS: Final = 20.0
# One server.json takes a few kilobytes, a page of them a hundred times that.
LARGEST_ANSWER: Final = 4 * 1024 * 1024
_MOST_NAMES: Final = 50
_INSTEAD: Final = "check the network, or pass a server.json, an address or a command instead"


def fetched(registry: str, name: str) -> bytes:
    """What the registry says of the latest version of a server. Raises `DownstreamError`."""
    path = f"{registry.rstrip('/')}/v0/servers/{urllib.parse.quote(name, safe='')}/versions/latest"
    try:
        return _get(registry, path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise DownstreamError(
                f"the registry `{registry}` answered with status {error.code}", hint=_INSTEAD
            ) from None
    near = nearest(name, _names_like(registry, name), limit=3)
    meant = f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
    raise DownstreamError(f"the registry `{registry}` has no server `{name}`{meant}", hint="check the name")


def _names_like(registry: str, name: str) -> list[str]:
    """To say what was meant; nothing where that cannot be found out."""
    words = urllib.parse.urlencode({"search": name.rpartition("/")[2], "limit": _MOST_NAMES})
    try:
        answer = msgspec.json.decode(_get(registry, f"{registry.rstrip('/')}/v0/servers?{words}"))
        return [str(each.get("server", each)["name"]) for each in answer["servers"]]
    except (urllib.error.HTTPError, DownstreamError, msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        return []


def _get(registry: str, address: str) -> bytes:
    headers = {"Accept": "application/json", "User-Agent": f"mcp-workbench/{__version__}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=REGISTRY_SECONDS
        ) as answer:
            content = _read_all(answer)
    except urllib.error.HTTPError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise DownstreamError(f"the registry `{registry}` cannot be reached: {why}", hint=_INSTEAD) from None
    if len(content) > LARGEST_ANSWER:
        raise DownstreamError(f"the registry `{registry}` answered with more than {LARGEST_ANSWER // 1024**2} MiB")
    return content


def _read_all(answer: http.client.HTTPResponse) -> bytes:
    """The whole body. The timeout of a socket counts from byte to byte, so the end is kept by ourselves."""
    end = time.monotonic() + REGISTRY_SECONDS
    content = bytearray()
    while len(content) <= LARGEST_ANSWER and (piece := answer.read1(64 * 1024)):
        content += piece
        if time.monotonic() > end:
            raise TimeoutError("timed out")
    # `read1` takes a connection that breaks off for the end.
    if answer.length:
        raise http.client.IncompleteRead(bytes(content), answer.length)
    return bytes(content)
