"""Lists everything that a server offers, page by page.

Pages are followed to the end, within limits: a repeated cursor, or a list that is endless or larger than any agent
could use, is an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcp_workbench.engine.catalog.offer import CAPABILITY, KINDS, Collected, Definitions, Offer, about_oversized
from mcp_workbench.engine.config.model import DEFAULT_MAX_DEFINITION_BYTES
from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.engine.slices import SLICE_BYTES, sliced
from mcp_workbench.engine.transport.link import Link, UrlLink
from mcp_workbench.errors import DownstreamError, WorkbenchError

log = logging.getLogger(__name__)

MOST_PAGES: Final = 1000
MOST_ITEMS: Final = 50_000
# The total size of the definitions of one list, equal to the limit of a manifest.
MOST_LIST_BYTES: Final = 64 * 1024 * 1024
# The longest instructions of a server that are kept; clients show two to four thousand characters.
MOST_INSTRUCTIONS: Final = 16 * 1024
# How many items are processed at a time, which takes a few milliseconds.
MOST_AT_ONCE: Final = 1000

METHODS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}


class Lister(Protocol):
    """What listing needs of a connection."""

    async def ask_as_era(self, method: str, members: bytes = b"") -> Raw:
        """Send a request and wait for its result."""


_decode_items: Final = Decoder(list[Raw]).decode
_decode_cursor: Final = Decoder(str | None).decode
_decode_number: Final = Decoder(float).decode


async def list_offer(
    label: str,
    lister: Lister,
    profile: ServerProfile,
    before: Offer | None,
    largest: int = DEFAULT_MAX_DEFINITION_BYTES,
) -> Offer:
    """List everything that the server offers, fetching the lists concurrently.

    A server that cannot list its tools fails. One that cannot list anything else is still useful: its other lists stay
    as they were, and the reason is logged. Definitions larger than `largest` are left out.
    """
    declared = decode_object(profile.capabilities)
    kinds = [kind for kind in KINDS if CAPABILITY[kind] in declared]
    answers = await asyncio.gather(*(_all_pages(lister, kind, largest) for kind in kinds), return_exceptions=True)
    lists: dict[str, Definitions] = {}
    ttls: dict[str, int] = {}
    oversized: dict[str, dict[str, int]] = {}
    dropped = 0
    left_out: list[str] = []
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, WorkbenchError) and kind != "tools":
            lists[kind] = _instead(label, kind, answer, before)
        elif isinstance(answer, BaseException):
            try:
                raise answer
            finally:
                # Its traceback refers to this frame and the pages it has read: a reference cycle that would keep them
                # in memory until the next garbage collection.
                del answer, answers
        else:
            found, ttl = answer
            lists[kind] = found.definitions
            dropped += found.dropped
            left_out += found.left_out
            if found.oversized:
                oversized[kind] = found.oversized
            if ttl is not None:
                ttls[kind] = ttl
    if dropped:
        log.warning("[%s] left out %d entries with a missing, invalid or repeated name", label, dropped)
    for reason in left_out:
        log.warning("[%s] %s", label, reason)
    for kind, sizes in oversized.items():
        log.warning("[%s] %s", label, about_oversized(kind, sizes))
    if profile.instructions is not None and len(profile.instructions) > MOST_INSTRUCTIONS:
        profile = replace(profile, instructions=profile.instructions[:MOST_INSTRUCTIONS])
    return Offer(profile, lists, dropped, ttls, tuple(left_out), oversized)


async def offered_over_http(label: str, offer: Offer, link: Link | None) -> Offer:
    """The offer of a server at an address: only what can be used over HTTP, and the transport that it uses."""
    is_sse = isinstance(link, UrlLink) and link.is_sse
    return replace(await usable_over_http(label, offer), transport="sse" if is_sse else "http")


async def usable_over_http(label: str, offer: Offer) -> Offer:
    """The offer without tools whose `x-mcp-header` annotations are invalid: over HTTP, these must be rejected."""
    tools = offer.lists.get("tools", {})
    annotated = [name for name, definition in tools.items() if b'"x-mcp-header"' in bytes(definition)]
    if not annotated:
        return offer
    from mcp_workbench.engine.transport.http.header_parameters import InvalidAnnotation, read_annotations

    usable = dict(tools)
    read = 0
    for name in annotated:
        read += len(bytes(tools[name]))
        if read > SLICE_BYTES:
            read = 0
            await asyncio.sleep(0)
        try:
            read_annotations(decode(tools[name]).get("inputSchema"))
        except InvalidAnnotation as error:
            log.warning("[%s] tool `%s` is left out: %s", label, name, error)
            del usable[name]
    return replace(offer, lists={**offer.lists, "tools": usable}, dropped=offer.dropped + len(tools) - len(usable))


def _instead(label: str, kind: str, error: WorkbenchError, before: Offer | None) -> Definitions:
    # Many servers with resources but without templates do not implement the method at all.
    if not (isinstance(error, RemoteError) and error.code == METHOD_NOT_FOUND):
        log.warning("[%s] %s cannot be listed: %s", label, kind, error.message)
    return {} if before is None else before.lists.get(kind, {})


async def _all_pages(lister: Lister, kind: str, largest: int) -> tuple[Collected, int | None]:
    """The items of all pages, and the shortest `ttlMs` of any page."""
    method = METHODS[kind]
    found = Collected(kind, largest)
    ttls: list[int] = []
    count = 0
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MOST_PAGES):
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)
        try:
            answer = await lister.ask_as_era(method, members)
            # A large page was read in pieces; scanning it again needs its own step of the event loop.
            page = decode_object(answer) if memoryview(answer).nbytes <= SLICE_BYTES else await _members(answer)
            async for items in _items(page[kind]):
                count += len(items)
                if count > MOST_ITEMS:
                    raise DownstreamError(f"`{method}` lists more than {MOST_ITEMS} items")
                found.add(items)
                if found.bytes > MOST_LIST_BYTES:
                    raise DownstreamError(f"`{method}` lists definitions of more than {MOST_LIST_BYTES} bytes")
            cursor = _decode_cursor(page["nextCursor"]) if "nextCursor" in page else None
            if "ttlMs" in page:
                ttls += _read_ttl(page["ttlMs"])
        except (DecodeError, ValidationError, KeyError) as error:
            raise DownstreamError(f"its answer to `{method}` cannot be used: {error}") from None
        if cursor is None:
            return found, min(ttls, default=None)
        if cursor in seen:
            raise DownstreamError(f"`{method}` repeats the cursor {cursor[:80]!r}: its pages never end")
        seen.add(cursor)
    raise DownstreamError(f"`{method}` has more than {MOST_PAGES} pages")


async def _members(answer: Raw) -> dict[str, Raw]:
    await asyncio.sleep(0)
    return decode_object(answer)


async def _items(array: Raw) -> AsyncIterator[list[Raw]]:
    """The items of a page, a few at a time, so that other requests are served in between."""
    is_first = memoryview(array).nbytes <= SLICE_BYTES
    for items in sliced(array, _decode_items):
        if not items:
            await asyncio.sleep(0)
        for start in range(0, len(items), MOST_AT_ONCE):
            if not is_first:
                await asyncio.sleep(0)
            is_first = False
            # Too many at once are yielded whole, so that the caller's limit applies before the next step.
            yield items if len(items) > MOST_ITEMS else items[start : start + MOST_AT_ONCE]


def _read_ttl(raw: Raw) -> list[int]:
    # Only a hint: an invalid value is no reason to reject the list.
    try:
        return [max(0, int(_decode_number(raw)))]
    except (DecodeError, ValidationError, ValueError, OverflowError):
        return []
