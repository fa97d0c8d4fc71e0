"""The MCP registry: fetches the `server.json` of a server by its name, and searches.

Owns the API requests in use, the same answers recorded in a file or a folder, and the errors when there are none.
Blocking, for use by a command.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
# The largest page that registries give.
_PAGE_SIZE: Final = 100
# More than people read; they are told to search with more words.
MAX_REGISTRY_CANDIDATES: Final = 200
# Registries may give smaller pages than they are asked for, or the same cursor again and again.
_MAX_REGISTRY_PAGES: Final = 10
# The stable version first; older mirrors have the other alone.
_API_VERSIONS: Final = ("v0.1", "v0")
_OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
_PUBLISHERS: Final = "io.modelcontextprotocol.registry/publisher-provided"
_WITHOUT_REGISTRY: Final = "check the network, or pass a server.json, an address or a command instead"


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


def fetched(registry: str, name: str) -> bytes:
    """Return what the registry has about the latest version of a server. Raises `DownstreamError`."""
    recorded = _recorded(registry)
    if recorded is None:
        # The slash of a name (`io.github.me/server`) is data, so it is quoted as well.
        content = _get(registry, f"servers/{urllib.parse.quote(name, safe='')}/versions/latest")
    else:
        with _answering(registry):
            same = _latest(recorded, lambda server: server["name"] == name)
            same = [each for each in same if _status(each) != "deleted"]
        content = msgspec.json.encode(same[0]) if same else None
    if content is not None:
        return content
    near = nearest(name, _names_like(registry, name), limit=3)
    meant = f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
    raise DownstreamError(f"the registry `{registry}` has no server `{name}`{meant}", hint="check the name")


def found(registry: str, words: str) -> tuple[list[Candidate], bool]:
    """Return what the registry has for these words, each server once, and whether it has more. Raises
    `DownstreamError`."""
    recorded = _recorded(registry)
    listed, has_more = _listed(registry, words) if recorded is None else (recorded, False)
    with _answering(registry):
        if recorded is not None:
            listed = _latest(recorded, lambda server: _has_words(server, words))
        candidates = [_candidate(each) for each in listed if _status(each) != "deleted"]
    unique = [*{each.name: each for each in candidates}.values()]
    return unique[:MAX_REGISTRY_CANDIDATES], has_more or len(unique) > MAX_REGISTRY_CANDIDATES


def _has_words(server: dict[str, Any], words: str) -> bool:
    text = f"{server['name']} {server.get('title', '')} {server.get('description', '')}".lower()
    return all(word in text for word in words.lower().split())


def _listed(registry: str, words: str) -> tuple[list[Any], bool]:
    """Return the answers of all pages, and whether there are more of them than were asked for."""
    query = {"search": words, "limit": str(_PAGE_SIZE), "version": "latest"}
    listed: list[Any] = []
    for _ in range(_MAX_REGISTRY_PAGES):
        content = _get(registry, f"servers?{urllib.parse.urlencode(query)}")
        page, cursor = _page(registry, content or b'{"servers":[]}')
        listed += page
        if not cursor or cursor == query.get("cursor"):
            return listed, False
        if len(listed) >= MAX_REGISTRY_CANDIDATES:
            return listed, True
        query["cursor"] = cursor
    return listed, True


def _page(registry: str, content: bytes) -> tuple[list[Any], str]:
    with _answering(registry):
        answer: Any = msgspec.json.decode(content)
        about = answer.get("metadata") or {}
        # The second is the name that it had in the autumn of 2025.
        return [*answer["servers"]], str(about.get("nextCursor") or about.get("next_cursor") or "")


@contextmanager
def _answering(registry: str) -> Iterator[None]:
    """Raises `DownstreamError` if an answer turns out to be something else."""
    try:
        yield
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError, AttributeError):
        raise DownstreamError(
            f"the registry `{registry}` did not answer with servers", hint=_WITHOUT_REGISTRY
        ) from None


def _official(each: dict[str, Any]) -> dict[str, Any]:
    about = (each.get("_meta") or {}).get(_OFFICIAL)
    return about if isinstance(about, dict) else {}


def _status(each: Any) -> str:
    return str(_official(each).get("status") or each.get("server", each).get("status") or "active")


def _candidate(each: dict[str, Any]) -> Candidate:
    server, status = each.get("server", each), _status(each)
    # The official registry counts none; `download_count` is the name that its guide proposes to others. What
    # publishers say of themselves does not count.
    said = {**(server.get("_meta") or {}), **(each.get("_meta") or {})}
    registries = [about for key, about in said.items() if key != _PUBLISHERS and isinstance(about, dict)]
    counts = [count for about in registries if type(count := about.get("download_count")) is int]
    description = str(server.get("description", ""))
    if status != "active":
        why = str(_official(each).get("statusMessage") or "")
        description = f"{': '.join(filter(None, (status, why)))}; {description}"
    downloads = f"{max(counts):,}" if counts else ""
    return Candidate(str(server["name"]), description, msgspec.json.encode(server), downloads)


def _names_like(registry: str, name: str) -> list[str]:
    """Return similar names to suggest; nothing if they cannot be found out."""
    try:
        recorded = _recorded(registry)
        listed = _listed(registry, name.rpartition("/")[2])[0] if recorded is None else recorded
        with _answering(registry):
            return [str(each.get("server", each)["name"]) for each in listed]
    except DownstreamError:
        return []


def _recorded(registry: str) -> list[Any] | None:
    """Return every answer that is recorded in a file, or in the files of a folder: pages of the API, or descriptions
    one by one; None if the registry is an address. Raises `DownstreamError`."""
    if registry.startswith(("http://", "https://")):
        return None
    listed: list[Any] = []
    try:
        is_folder = os.path.isdir(registry)
        names = sorted(name for name in os.listdir(registry) if name.endswith(".json")) if is_folder else [""]
        for path in [os.path.join(registry, name) if name else registry for name in names]:
            with open(path, "rb") as file, _answering(registry):
                content = file.read()
                described = msgspec.json.decode(content)
                listed += _page(registry, content)[0] if "servers" in described else [described]
    except OSError as error:
        why = error.strerror or str(error)
        raise DownstreamError(f"the registry `{registry}` cannot be read: {why}", hint=_WITHOUT_REGISTRY) from None
    return listed


def _latest(listed: Iterable[Any], wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """Return the latest version of each server that is wanted: the one marked so, or else the last."""
    found: dict[str, Any] = {}
    for each in listed:
        server = each.get("server", each)
        if wanted(server) and not _official(found.get(server["name"], {})).get("isLatest"):
            found[server["name"]] = each
    return [*found.values()]


def _get(registry: str, what: str) -> bytes | None:
    """Return the response; None if it does not exist. Raises `DownstreamError`."""
    # People copy the address with the version of the API.
    base = registry.rstrip("/")
    versions = [version for version in _API_VERSIONS if base.endswith(f"/{version}")]
    roots = [base] if versions else [f"{base}/{version}" for version in _API_VERSIONS]
    answers = (_answer(registry, f"{root}/{what}") for root in roots)
    return next((answer for answer in answers if answer is not None), None)


def _answer(registry: str, address: str) -> bytes | None:
    async def within_time() -> tuple[int, bytes]:
        # A socket's timeout restarts with each byte; a registry that drips would block the command for hours.
        async with asyncio.timeout(REGISTRY_TIMEOUT):
            return await aside(lambda: _read(address))

    try:
        status, content = run(within_time())
    except OSError as error:
        why = str(error) or "timed out"
        raise DownstreamError(f"the registry `{registry}` cannot be reached: {why}", hint=_WITHOUT_REGISTRY) from None
    if status == 404:
        return None
    if status != 200:
        raise DownstreamError(f"the registry `{registry}` answered with status {status}", hint=_WITHOUT_REGISTRY)
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
