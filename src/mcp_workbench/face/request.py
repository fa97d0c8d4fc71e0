"""What `open_toolbox` is asked for: nothing (which toolboxes are there), a toolbox, a need told in words, or the
definitions of named tools."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

DETAILS: Final = ("full", "lean", "text", "clipped", "sentence", "arguments", "names")
EXAMPLE: Final = 'expected {"toolbox_name": "…"}, {"query": "…"}, both, or {"tools": ["toolbox/server/tool"]}'
MOST_NAMED: Final = 50
MOST_FOUND: Final = 50


class OpenRequest(Struct, frozen=True):
    """The arguments of `open_toolbox`."""

    toolbox_name: str | None = None
    query: str | None = None
    tools: tuple[str, ...] = ()
    detail: str | None = None
    limit: int | None = None
    cursor: str | None = None
    # Tokens; null for no limit, absent for the configured one.
    budget: int | UnsetType | None = UNSET


class BadRequest(Exception):
    """Says what is wrong with the arguments of `open_toolbox`."""


_decode: Final = Decoder(OpenRequest).decode


def read_open_request(raw: Raw | None) -> OpenRequest:
    """Raises `BadRequest`."""
    try:
        request = _decode(b"{}" if raw is None or bytes(raw) == b"null" else raw)
    except (DecodeError, ValidationError, RecursionError) as error:
        raise BadRequest(f"{error}; {EXAMPLE}") from None
    if request.detail is not None and request.detail not in DETAILS:
        raise BadRequest(f"`detail` is one of {', '.join(DETAILS)}; found `{request.detail[:50]}`")
    if request.limit is not None and not 1 <= request.limit <= MOST_FOUND:
        raise BadRequest(f"`limit` is a number from 1 to {MOST_FOUND}")
    if len(request.tools) > MOST_NAMED:
        raise BadRequest(f"`tools` names at most {MOST_NAMED} tools at a time")
    if request.query is not None and not request.query.strip():
        raise BadRequest(f"`query` is empty; {EXAMPLE}")
    return request
