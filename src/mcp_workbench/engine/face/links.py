"""Links to resources in results: which server a link belongs to, although no list contains its address.

The specification allows a tool to return a link to a resource that `resources/list` does not contain. The client reads
it by its URI alone, so we remember which server's result contained it, only for the principal that got the result.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS

# How many links of one server are kept for one principal; then the oldest are dropped. Agents follow links soon.
MAX_LINKS_PER_SERVER: Final = 1000
# Links with longer addresses are not kept: they are data, not addresses.
MAX_LINK_URI_LENGTH: Final = 2048
# Larger results are not searched for links, because that would delay other calls.
MAX_LINK_SEARCH_BYTES: Final = 1024 * 1024
# A result without these words contains no links. The search copies nothing and takes 0.2 µs for a small result.
_MENTION: Final = re.compile(rb'"resource(?:_link)?"')


class _LinkingResult(Struct):
    content: Raw = Raw(b"[]")
    messages: Raw = Raw(b"[]")
    # The result of `tasks/get` contains the tool's result.
    result: Raw = Raw(b"")


class _Message(Struct):
    content: Raw = Raw(b"")


class _Addressed(Struct):
    uri: str = ""


class _LinkBlock(Struct):
    type: str = ""
    uri: str = ""
    resource: _Addressed | None = None


_decode_result: Final = Decoder(_LinkingResult).decode
_decode_list: Final = Decoder(list[Raw]).decode
_decode_message: Final = Decoder(_Message).decode
_decode_block: Final = Decoder(_LinkBlock).decode


class Links:
    """By principal and server, the addresses in the server's results."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ServerEntry], OrderedDict[str, None]] = {}

    def note(self, principal: str, entry: ServerEntry, result: Raw) -> None:
        """Record the links in a result of a server with resources; links of other servers cannot be read."""
        if _MENTION.search(result, 0, MAX_LINK_SEARCH_BYTES) is None or len(memoryview(result)) > MAX_LINK_SEARCH_BYTES:
            return
        for uri in links_in(result):
            seen = self._seen.setdefault((principal, entry), OrderedDict())
            seen[uri] = None
            seen.move_to_end(uri)
            if len(seen) > MAX_LINKS_PER_SERVER:
                seen.popitem(last=False)

    def forget(self, entries: Collection[ServerEntry]) -> None:
        """Drop the links of removed servers."""
        for key in [key for key in self._seen if key[1] in entries]:
            del self._seen[key]

    def has(self, principal: str, entry: ServerEntry, uri: str) -> bool:
        """Whether a result of this server to this principal contained this address."""
        return uri in self._seen.get((principal, entry), ())


def links_in(result: Raw) -> Iterator[str]:
    """The addresses of resources that a result of a tool or prompt links to or embeds."""
    try:
        outer = _decode_result(result)
        for read in (outer, _decode_result(outer.result)) if _MENTION.search(outer.result) else (outer,):
            yield from _in_blocks(_decode_list(read.content))
            for message in _mentioning(_decode_list(read.messages)):
                content = _decode_message(message).content
                yield from _in_blocks(_decode_list(content) if bytes(content).startswith(b"[") else [content])
    except READING_ERRORS:
        # Not a result we understand; it is forwarded unchanged.
        return


def _mentioning(values: list[Raw]) -> Iterator[Raw]:
    return (value for value in values if _MENTION.search(value) is not None)


def _in_blocks(blocks: list[Raw]) -> Iterator[str]:
    for each in _mentioning(blocks):
        try:
            block = _decode_block(each)
        except READING_ERRORS:
            continue
        if block.type == "resource_link":
            uri = block.uri
        elif block.type == "resource" and block.resource is not None:
            uri = block.resource.uri
        else:
            continue
        if uri and len(uri) <= MAX_LINK_URI_LENGTH:
            yield uri
