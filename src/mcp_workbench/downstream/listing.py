"""Asking a server for everything it offers, page by page.

Pages are followed until there are no more, within bounds: a cursor that comes back, a list that never ends or is
larger than any agent could use are errors that say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcp_workbench.catalog.offer import CAPABILITY, KINDS, Collected, Definitions, Offer, about_oversized
from mcp_workbench.config.model import DEFAULT_MAX_DEFINITION_BYTES
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.handshake import ServerProfile
from mcp_workbench.slices import SLICE_BYTES, sliced
from mcp_workbench.transport.link import Link, UrlLink

log = logging.getLogger(__name__)

MOST_PAGES: Final = 1000
MOST_ITEMS: Final = 50_000
# All definitions of one list together: as much as is remembered of a server.
MOST_LIST_BYTES: Final = 64 * 1024 * 1024
# Of what a server says of itself; clients show two to four thousand characters.
MOST_INSTRUCTIONS: Final = 16 * 1024
# Entries that are looked at in one go: a few milliseconds.
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
        """Send a request, wait for its result."""


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
    """Everything the server offers now. Lists are fetched side by side.

    A server that cannot list its tools fails. One that cannot list the others is still useful: they stay as they were
    before, and the log says why. Definitions larger than `largest` are left out.
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
                # Its traceback leads to this frame and to the pages that were read: a circle that would keep all of
                # them until the collector comes by.
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
    """What a server at an address offers: what can be used over HTTP, and how it was found to be spoken to."""
    is_sse = isinstance(link, UrlLink) and link.is_sse
    return replace(await usable_over_http(label, offer), transport="sse" if is_sse else "http")


async def usable_over_http(label: str, offer: Offer) -> Offer:
    """The same offer without tools whose `x-mcp-header` annotations are invalid: over HTTP they are rejected."""
    tools = offer.lists.get("tools", {})
    annotated = [name for name, definition in tools.items() if b'"x-mcp-header"' in bytes(definition)]
    if not annotated:
        return offer
    from mcp_workbench.transport.http.header_parameters import InvalidAnnotation, read_annotations

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
    # Servers with resources but no templates often do not know the method at all.
    if not (isinstance(error, RemoteError) and error.code == METHOD_NOT_FOUND):
        log.warning("[%s] %s cannot be listed: %s", label, kind, error.message)
    return {} if before is None else before.lists.get(kind, {})


async def _all_pages(lister: Lister, kind: str, largest: int) -> tuple[Collected, int | None]:
    """The entries of all pages, and for how many milliseconds they hold: as the page says that holds shortest."""
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
            # What is large has been read in pieces, and one more look at all of it is a turn of its own.
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
    """The entries of a page, some at a time; between two, others are served."""
    is_first = memoryview(array).nbytes <= SLICE_BYTES
    for items in sliced(array, _decode_items):
        if not items:
            await asyncio.sleep(0)
        for start in range(0, len(items), MOST_AT_ONCE):
            if not is_first:
                await asyncio.sleep(0)
            is_first = False
            # The bound on how many there may be is looked at before the next of them is.
            yield items if len(items) > MOST_ITEMS else items[start : start + MOST_AT_ONCE]


def _read_ttl(raw: Raw) -> list[int]:
    # A hint: one that is none is no reason to do without the list.
    try:
        return [max(0, int(_decode_number(raw)))]
    except (DecodeError, ValidationError, ValueError, OverflowError):
        return []
