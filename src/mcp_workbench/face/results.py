"""Results that are too large for an agent: kept whole for a while, shown by their head, read on piece by piece.

Bounded in count, in bytes and in time, and private to the principal whose call it was. Text is shortened; images and
other binary are linked, never cut.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcp_workbench.face.view import View
from mcp_workbench.face.wording import error_result
from mcp_workbench.jsonrpc.messages import decode_object, encode

PATH: Final = "workbench/result"
SCHEME: Final = "workbench://results/"
BYTES_PER_TOKEN: Final = 4
# Long enough to finish a train of thought; what an agent has not come back to by then it has forgotten.
KEPT_SECONDS: Final = 1800.0
MOST_RESULTS: Final = 200
MOST_BYTES: Final = 128 * 1024 * 1024
DEFAULT_PIECE: Final = 2_000


class _Kept(Struct):
    principal: str
    result: bytes
    expires: float


class ReadOn(Struct):
    """How to read on: one of `select`, `lines`, `grep`, or the next page from character `start`."""

    id: str
    select: str | None = None
    lines: str | None = None
    grep: str | None = None
    start: int = 0
    max_tokens: int = DEFAULT_PIECE


_decode_read_on: Final = Decoder(ReadOn).decode


class Results:
    """What is kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def shorten(self, view: View, result: Raw | bytes, budget: int) -> Raw | bytes:
        """The same result, or its head with a word on how to read on."""
        data = bytes(result)
        if not budget or len(data) <= budget * BYTES_PER_TOKEN or len(data) > MOST_BYTES:
            return result
        from mcp_workbench.economy.results import overview, reading

        id = self._keep(view.principal, data)
        how = (
            f'\n\nThe whole result is kept for {KEPT_SECONDS / 60:.0f} minutes. Read on: use_tool {{"tool": "{PATH}", '
            f'"arguments": {{"id": "{id}", …}}}} with `select` (JSON Pointer or JMESPath), `lines` ("10-40"), `grep`, '
            "or `start` (a character)."
        )
        head = overview(reading(data), max(200, budget * BYTES_PER_TOKEN - len(how.encode())))
        return self._head(data, id, head + how)

    def read_on(self, view: View, arguments: Raw) -> bytes:
        """A piece of a kept result, as a tool result."""
        try:
            wanted = _decode_read_on(arguments)
        except (DecodeError, ValidationError) as error:
            return error_result(f"{error}; expected `id` and one of `select`, `lines`, `grep`, `start`")
        kept = self._find(view.principal, wanted.id)
        if kept is None:
            return error_result(f"result `{wanted.id[:100]}` is not kept (any more); make the call again")
        try:
            text = _piece(kept.result, wanted)
        except ValueError as error:
            return error_result(str(error))
        return encode({"content": [{"type": "text", "text": text}]})

    def resource(self, view: View, uri: str) -> bytes | None:
        """The whole of a kept result, or one of its blocks, as the contents of a resource."""
        id, _, block = uri.removeprefix(SCHEME).partition("/")
        kept = self._find(view.principal, id)
        if kept is None:
            return None
        if not block:
            text = kept.result.decode(errors="replace")
            return encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})
        try:
            found = decode(kept.result)["content"][int(block)]
            contents = {"uri": uri, "mimeType": found.get("mimeType", "text/plain")}
            contents.update({"blob": found["data"]} if "data" in found else {"text": found.get("text", "")})
        except (DecodeError, ValueError, LookupError, AttributeError, TypeError):
            return None
        return encode({"contents": [contents]})

    def _head(self, data: bytes, id: str, text: str) -> bytes:
        blocks: list[object] = [{"type": "text", "text": text}, _link(f"{SCHEME}{id}", "whole result", None)]
        try:
            members = decode_object(data)
            content = decode(members.get("content", b"[]"))
        except (DecodeError, ValidationError, RecursionError):
            members, content = {}, []
        for number, block in enumerate(content if isinstance(content, list) else []):
            if isinstance(block, dict) and block.get("type") not in ("text", None):
                blocks.append(_link(f"{SCHEME}{id}/{number}", str(block["type"]), block.get("mimeType")))
        kept = {key: value for key, value in members.items() if key not in ("content", "structuredContent")}
        return encode({"content": blocks, **kept})

    def _keep(self, principal: str, data: bytes) -> str:
        import secrets

        id = secrets.token_urlsafe(9)
        self._kept[id] = _Kept(principal, data, time.monotonic() + KEPT_SECONDS)
        self._bytes += len(data)
        while len(self._kept) > MOST_RESULTS or self._bytes > MOST_BYTES or self._oldest_is_over():
            _, gone = self._kept.popitem(last=False)
            self._bytes -= len(gone.result)
        return id

    def _oldest_is_over(self) -> bool:
        return bool(self._kept) and next(iter(self._kept.values())).expires <= time.monotonic()

    def _find(self, principal: str, id: str) -> _Kept | None:
        kept = self._kept.get(id)
        if kept is None or kept.principal != principal or kept.expires <= time.monotonic():
            return None
        return kept


def _link(uri: str, name: str, mime_type: object) -> dict[str, object]:
    kind = mime_type if isinstance(mime_type, str) else "application/json"
    return {"type": "resource_link", "uri": uri, "name": name, "mimeType": kind}


def _piece(result: bytes, wanted: ReadOn) -> str:
    """Raises ValueError with what to do."""
    from mcp_workbench.economy.results import grep, lines, page, reading

    room = max(100, wanted.max_tokens) * BYTES_PER_TOKEN
    read = reading(result)
    text = read.text
    if wanted.select is not None:
        from mcp_workbench.economy.select import BadExpression, select

        if not read.is_json:
            raise ValueError("`select` needs a result that is JSON; this one is text: use `lines` or `grep`")
        try:
            text = encode(select(read.value, wanted.select)).decode()
        except BadExpression as error:
            raise ValueError(f"`select`: {error}") from None
        part = page(text, wanted.start, room)
    elif wanted.grep is not None:
        part = grep(text, wanted.grep, room=room, first=max(1, wanted.start))
    elif wanted.lines is not None:
        first, _, last = wanted.lines.partition("-")
        if not first.strip().isdecimal() or (last.strip() and not last.strip().isdecimal()):
            raise ValueError('`lines` is a range like "10-40"')
        part = lines(text, int(first), int(last) if last.strip() else int(first) + 200, room)
    else:
        part = page(text, wanted.start, room)
    more = "" if part.following is None else f"\n(more: `start`: {part.following}, or another range)"
    return f"({part.note})\n{part.text}{more}"
