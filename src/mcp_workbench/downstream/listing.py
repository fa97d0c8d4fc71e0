"""Asking a server for everything it offers, page by page.

Pages are followed until there are no more, within bounds: a cursor that comes back, a list that never ends or is
larger than any agent could use are errors that say so.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.offer import Offer, by_name
from mcp_workbench.errors import DownstreamError
from mcp_workbench.jsonrpc.messages import encode
from mcp_workbench.protocol.handshake import ServerProfile

MOST_PAGES: Final = 1000
MOST_ITEMS: Final = 50_000


class Lister(Protocol):
    """What listing needs of a connection."""

    async def ask_as_era(self, method: str, members: bytes = b"") -> Raw:
        """Send a request, wait for its result."""


class _ToolsPage(Struct):
    tools: list[Raw]
    nextCursor: str | None = None


class _Capabilities(Struct):
    tools: Raw | UnsetType = UNSET


_decode_page: Final = Decoder(_ToolsPage).decode
_decode_capabilities: Final = Decoder(_Capabilities).decode


async def list_offer(lister: Lister, profile: ServerProfile) -> Offer:
    """Everything the server offers now."""
    if _decode_capabilities(profile.capabilities).tools is UNSET:
        return Offer(profile)
    tools, dropped = by_name(await _all_pages(lister, "tools/list"))
    return Offer(profile, tools, dropped)


async def _all_pages(lister: Lister, method: str) -> list[Raw]:
    items: list[Raw] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MOST_PAGES):
        members = b"" if cursor is None else b'"cursor":' + encode(cursor)
        try:
            page = _decode_page(await lister.ask_as_era(method, members))
        except (DecodeError, ValidationError) as error:
            raise DownstreamError(f"its answer to `{method}` cannot be used: {error}") from None
        items += page.tools
        cursor = page.nextCursor
        if cursor is None:
            return items
        if cursor in seen:
            raise DownstreamError(f"`{method}` repeats the cursor {cursor[:80]!r}: its pages never end")
        if len(items) > MOST_ITEMS:
            raise DownstreamError(f"`{method}` lists more than {MOST_ITEMS} items")
        seen.add(cursor)
    raise DownstreamError(f"`{method}` has more than {MOST_PAGES} pages")
