"""The MCP registry: fetches the `server.json` of a server by its name, and searches.

Owns the API requests in use, and the errors when the registry cannot be reached. Blocking, for use by a command.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcp_workbench import __version__
from mcp_workbench.engine.blocking_work import aside
from mcp_workbench.engine.nearest import nearest
from mcp_workbench.engine.run import run
from mcp_workbench.errors import DownstreamError

# For each request, until its last byte. A registry answers in a fraction of a second, and a user is waiting.
REGISTRY_TIMEOUT: Final = 20.0
# One server.json takes a few kilobytes, a page of them a hundred times that.
MAX_REGISTRY_ANSWER_BYTES: Final = 4 * 1024 * 1024
_MAX_REGISTRY_NAMES: Final = 50
_INSTEAD: Final = "check the network, or pass a server.json, an address or a command instead"


def fetched(registry: str, name: str) -> bytes:
    """Return what the registry has about the latest version of a server. Raises `DownstreamError`."""
    # The slash of a name (`io.github.me/server`) is data, so it is quoted as well.
    path = f"{registry.rstrip('/')}/v0/servers/{urllib.parse.quote(name, safe='')}/versions/latest"
    content = _get(registry, path)
    if content is not None:
        return content
    near = nearest(name, _names_like(registry, name), limit=3)
    meant = f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
    raise DownstreamError(f"the registry `{registry}` has no server `{name}`{meant}", hint="check the name")


class Candidate(Struct, frozen=True):
    """A server that the registry found. `downloads` is empty where it does not count them."""

    name: str
    description: str
    server: bytes
    downloads: str

    @property
    def publisher(self) -> str:
        """Who published it: the registry checks that the namespace is theirs."""
        return self.name.rpartition("/")[0]


def found(registry: str, words: str) -> list[Candidate]:
    """Return what the registry has for these words, each server once. Raises `DownstreamError`."""
    query = urllib.parse.urlencode({"search": words, "limit": _MAX_REGISTRY_NAMES, "version": "latest"})
    content = _get(registry, f"{registry.rstrip('/')}/v0/servers?{query}") or b'{"servers":[]}'
    try:
        listed = msgspec.json.decode(content)["servers"]
        candidates = [_candidate(each) for each in listed]
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        raise DownstreamError(
            f"the registry `{registry}` answered something else than servers", hint=_INSTEAD
        ) from None
    return [*{each.name: each for each in candidates}.values()][:_MAX_REGISTRY_NAMES]


def _candidate(each: dict[str, Any]) -> Candidate:
    server = each.get("server", each)
    # Registries that count them do so beside the description, under a name of their own.
    counted = [about.get("downloads") for about in (each.get("_meta") or {}).values() if isinstance(about, dict)]
    counts = [count for count in counted if isinstance(count, int)]
    downloads = f"{counts[0]:,}" if counts else ""
    return Candidate(str(server["name"]), str(server.get("description", "")), msgspec.json.encode(server), downloads)


def _names_like(registry: str, name: str) -> list[str]:
    """Return similar names to suggest; nothing if they cannot be found out."""
    words = urllib.parse.urlencode({"search": name.rpartition("/")[2], "limit": _MAX_REGISTRY_NAMES})
    try:
        answer = msgspec.json.decode(_get(registry, f"{registry.rstrip('/')}/v0/servers?{words}") or b"")
        return [str(each.get("server", each)["name"]) for each in answer["servers"]]
    except (DownstreamError, msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        return []


def _get(registry: str, address: str) -> bytes | None:
    """Return the response; None if it does not exist. Raises `DownstreamError`."""

    async def within_time() -> tuple[int, bytes]:
        # A socket's timeout restarts with each byte; a registry that drips would block the command for hours.
        async with asyncio.timeout(REGISTRY_TIMEOUT):
            return await aside(lambda: _read(address))

    try:
        status, content = run(within_time())
    except OSError as error:
        why = str(error) or "timed out"
        raise DownstreamError(f"the registry `{registry}` cannot be reached: {why}", hint=_INSTEAD) from None
    if status == 404:
        return None
    if status != 200:
        raise DownstreamError(f"the registry `{registry}` answered with status {status}", hint=_INSTEAD)
    if len(content) > MAX_REGISTRY_ANSWER_BYTES:
        raise DownstreamError(
            f"the registry `{registry}` answered with more than {MAX_REGISTRY_ANSWER_BYTES // 1024**2} MiB"
        )
    return content


def _read(address: str) -> tuple[int, bytes]:
    """Return status and body. Raises a new `OSError`, because the library's keep their socket open."""
    headers = {"Accept": "application/json", "User-Agent": f"mcp-workbench/{__version__}"}
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=REGISTRY_TIMEOUT) as answer:
            content: bytes = answer.read(MAX_REGISTRY_ANSWER_BYTES + 1)
            # With `read(n)`, a connection that breaks off looks like a normal end.
            if not answer.length or len(content) > MAX_REGISTRY_ANSWER_BYTES:
                return 200, content
            why = f"it broke off {answer.length:,} bytes before the end"
    except urllib.error.HTTPError as error:
        # The error is a response with an open connection.
        error.close()
        return error.code, b""
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    raise OSError(why)
