"""Links to resources in what servers answered: which server a link leads to, though no list has its address.

The specification lets a tool return a link to a resource that `resources/list` does not show. The client reads it by
its URI alone, so we remember whose result carried it: for the principal that got the result, and for no other.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcp_workbench.catalog.entry import ServerEntry

# Links of one server that are remembered for one principal; beyond, the oldest are forgotten. An agent follows a link
# soon after it got it.
MOST_LINKS: Final = 1000
# A link whose address is longer is not remembered: it is data, not an address.
LONGEST_URI: Final = 2048
# A larger result is not searched for links: that would hold up calls beside it.
LARGEST_SEARCHED: Final = 1024 * 1024
# A result without these words has no links in it. The search takes no copy, and a fifth of a microsecond where the
# result is small.
_MENTION: Final = re.compile(rb'"resource(?:_link)?"')
_UNREADABLE: Final = (DecodeError, ValidationError, RecursionError)


class _LinkingResult(Struct):
    content: Raw = Raw(b"[]")
    messages: Raw = Raw(b"[]")
    # The answer to `tasks/get` has the tool's result inside.
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
    """By principal and server, the addresses that the server's results named."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ServerEntry], OrderedDict[str, None]] = {}

    def note(self, principal: str, entry: ServerEntry, result: Raw) -> None:
        """Remember the links in a result of a server that has resources: from others nothing can be read."""
        if _MENTION.search(result, 0, LARGEST_SEARCHED) is None or len(memoryview(result)) > LARGEST_SEARCHED:
            return
        for uri in links_in(result):
            seen = self._seen.setdefault((principal, entry), OrderedDict())
            seen[uri] = None
            seen.move_to_end(uri)
            if len(seen) > MOST_LINKS:
                seen.popitem(last=False)

    def forget(self, entries: Collection[ServerEntry]) -> None:
        """These servers are no more."""
        for key in [key for key in self._seen if key[1] in entries]:
            del self._seen[key]

    def has(self, principal: str, entry: ServerEntry, uri: str) -> bool:
        """Whether a result of this server named this address to this principal."""
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
    except _UNREADABLE:
        # Whatever it is, it passes as it came.
        return


def _mentioning(values: list[Raw]) -> Iterator[Raw]:
    return (value for value in values if _MENTION.search(value) is not None)


def _in_blocks(blocks: list[Raw]) -> Iterator[str]:
    for each in _mentioning(blocks):
        try:
            block = _decode_block(each)
        except _UNREADABLE:
            continue
        if block.type == "resource_link":
            uri = block.uri
        elif block.type == "resource" and block.resource is not None:
            uri = block.resource.uri
        else:
            continue
        if uri and len(uri) <= LONGEST_URI:
            yield uri
