"""Decodes a large JSON array a few elements at a time.

msgspec holds the GIL while it decodes, in any thread: a hundred megabytes at once would block everything for a second.
Here each step decodes a piece of bounded size, so that other threads can run in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from msgspec import DecodeError, Raw, ValidationError

# Takes a few milliseconds to decode.
SLICE_BYTES: Final = 1 << 20
# How many possible ends of a slice are tried before a longer slice is.
MAX_SLICE_TRIES: Final = 8
# How far back from the end of a slice these are searched for.
_END_SEARCH_BYTES: Final = 1 << 16
_ARRAY_START: Final = re.compile(rb"\s*\[")
_ARRAY_END: Final = re.compile(rb"\]\s*\Z")
# The boundary between two objects, in the array or nested deeper.
_OBJECT_BOUNDARY: Final = re.compile(rb"\}\s*,\s*(?=\{)")

Element = TypeVar("Element")


def sliced(
    array: Raw | bytes, decode: Callable[[bytes | memoryview], list[Element]], *, size: int = SLICE_BYTES
) -> Iterator[list[Element]]:
    """The elements of an array of objects, in order. A step may yield none; raises what `decode` raises.

    A slice starts at an element, so it can be decoded only if it also ends at one: no state is needed to tell elements
    from nested objects."""
    view = memoryview(array)
    if len(view) <= 2 * size:
        yield decode(bytes(view))
        return
    opening = _ARRAY_START.match(view)
    closing = _ARRAY_END.search(view, max(0, len(view) - _END_SEARCH_BYTES))
    if opening is None or closing is None:
        yield decode(bytes(view))
        return
    at, end, window = opening.end(), closing.start(), size
    while end - at > window:
        edge = at + window
        places = list(_OBJECT_BOUNDARY.finditer(view, max(at, edge - _END_SEARCH_BYTES), edge))
        for place in reversed(places[-MAX_SLICE_TRIES:]):
            try:
                found = decode(_array(view[at : place.start() + 1]))
            except ValidationError:
                raise
            except DecodeError:
                yield []
            else:
                yield found
                at, window = place.end(), size
                break
        else:
            window *= 2
    # A single huge element is not copied.
    yield decode(view if at == opening.end() else _array(view[at:end]))


def _array(elements: memoryview) -> bytes:
    return b"".join((b"[", elements, b"]"))
