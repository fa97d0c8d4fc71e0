"""Asking a server for everything it offers, page by page.

Pages are followed until there are no more, within bounds: a cursor that comes back, a list that never ends or is
larger than any agent could use are errors that say so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcp_workbench.catalog.offer import KINDS, Definitions, Offer, by_identity
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc.messages import METHOD_NOT_FOUND, decode_object, encode
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.protocol.handshake import ServerProfile

log = logging.getLogger(__name__)

MOST_PAGES: Final = 1000
MOST_ITEMS: Final = 50_000

METHODS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
# Which capability announces which list.
CAPABILITY: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}


class Lister(Protocol):
    """What listing needs of a connection."""

    async def ask_as_era(self, method: str, members: bytes = b"") -> Raw:
        """Send a request, wait for its result."""


_decode_items: Final = Decoder(list[Raw]).decode
_decode_cursor: Final = Decoder(str | None).decode
_decode_number: Final = Decoder(float).decode


async def list_offer(label: str, lister: Lister, profile: ServerProfile, before: Offer | None) -> Offer:
    """Everything the server offers now. Lists are fetched side by side.

    A server that cannot list its tools fails. One that cannot list the others is still useful: they stay as they were
    before, and the log says why.
    """
    declared = decode_object(profile.capabilities)
    kinds = [kind for kind in KINDS if CAPABILITY[kind] in declared]
    answers = await asyncio.gather(*(_all_pages(lister, kind) for kind in kinds), return_exceptions=True)
    lists: dict[str, Definitions] = {}
    ttls: dict[str, int] = {}
    dropped = 0
    left_out: list[str] = []
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, WorkbenchError) and kind != "tools":
            lists[kind] = _instead(label, kind, answer, before)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            items, ttl = answer
            lists[kind], lost = by_identity(kind, items, left_out)
            dropped += lost
            if ttl is not None:
                ttls[kind] = ttl
    if dropped:
        log.warning("[%s] %d entries without a usable or with a repeated name were left out", label, dropped)
    for reason in left_out:
        log.warning("[%s] %s", label, reason)
    return Offer(profile, lists, dropped, ttls, tuple(left_out))


def usable_over_http(label: str, offer: Offer) -> Offer:
    """The same offer without tools whose `x-mcp-header` annotations are invalid: over HTTP they are rejected."""
    tools = offer.lists.get("tools", {})
    annotated = [name for name, definition in tools.items() if b'"x-mcp-header"' in bytes(definition)]
    if not annotated:
        return offer
    from mcp_workbench.transport.http.parameters import InvalidAnnotation, read_annotations

    usable = dict(tools)
    for name in annotated:
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


async def _all_pages(lister: Lister, kind: str) -> tuple[list[Raw], int | None]:
    """The entries of all pages, and for how many milliseconds they hold: as the page says that holds shortest."""
    method = METHODS[kind]
    ttls: list[int] = []
    items: list[Raw] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MOST_PAGES):
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)
        try:
            page = decode_object(await lister.ask_as_era(method, members))
            items += _decode_items(page[kind])
            cursor = _decode_cursor(page["nextCursor"]) if "nextCursor" in page else None
            if "ttlMs" in page:
                ttls += _read_ttl(page["ttlMs"])
        except (DecodeError, ValidationError, KeyError) as error:
            raise DownstreamError(f"its answer to `{method}` cannot be used: {error}") from None
        if len(items) > MOST_ITEMS:
            raise DownstreamError(f"`{method}` lists more than {MOST_ITEMS} items")
        if cursor is None:
            return items, min(ttls, default=None)
        if cursor in seen:
            raise DownstreamError(f"`{method}` repeats the cursor {cursor[:80]!r}: its pages never end")
        seen.add(cursor)
    raise DownstreamError(f"`{method}` has more than {MOST_PAGES} pages")


def _read_ttl(raw: Raw) -> list[int]:
    # A hint: one that is none is no reason to do without the list.
    try:
        return [max(0, int(_decode_number(raw)))]
    except (DecodeError, ValidationError, ValueError, OverflowError):
        return []
