"""A JSON array that is too large to be decoded in one go, some elements at a time.

msgspec holds the interpreter while it decodes, in whichever thread that is: a hundred megabytes at once keep everybody
waiting for a second. Here each step decodes a piece of bounded size, so whoever takes the steps can let others in
between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from msgspec import DecodeError, Raw, ValidationError

# Decoded in a few milliseconds.
SLICE_BYTES: Final = 1 << 20
# Places at which a slice may end that are tried before a longer slice is.
MOST_TRIES: Final = 8
# How far before the end of a slice such a place is looked for.
_SEARCHED: Final = 1 << 16
_OPENING: Final = re.compile(rb"\s*\[")
_CLOSING: Final = re.compile(rb"\]\s*\Z")
# Between two objects: in the array, or further inside of it.
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")

Element = TypeVar("Element")


def sliced(
    array: Raw | bytes, decode: Callable[[bytes | memoryview], list[Element]], *, size: int = SLICE_BYTES
) -> Iterator[list[Element]]:
    """The elements of an array of objects, in order. A step may bring none; raises what `decode` raises.

    A slice begins where an element does, so it can be decoded only if it ends where one does: no state is needed to
    tell elements from what looks alike inside of them."""
    view = memoryview(array)
    if len(view) <= 2 * size:
        yield decode(bytes(view))
        return
    opening = _OPENING.match(view)
    closing = _CLOSING.search(view, max(0, len(view) - _SEARCHED))
    if opening is None or closing is None:
        yield decode(bytes(view))
        return
    at, end, window = opening.end(), closing.start(), size
    while end - at > window:
        edge = at + window
        places = list(_BETWEEN.finditer(view, max(at, edge - _SEARCHED), edge))
        for place in reversed(places[-MOST_TRIES:]):
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
    # One that is a single huge element is not copied.
    yield decode(view if at == opening.end() else _array(view[at:end]))


def _array(elements: memoryview) -> bytes:
    return b"".join((b"[", elements, b"]"))
