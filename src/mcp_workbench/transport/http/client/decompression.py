"""Compressed bodies: undone as they come, within a bound."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

# What one read of a compressed body may become; a quarter of a megabyte of JSON hardly ever does. More is a bomb.
MOST_INFLATED: Final = 16 * 1024 * 1024


def inflater(encoding: str) -> Callable[[bytes], list[bytes]] | None:
    """Undoes a compression that we did not ask for. None where there is none to undo."""
    name = encoding.strip().lower()
    if name not in ("gzip", "x-gzip", "deflate"):
        return None
    # 32 lets zlib find out by itself which of the two it is.
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    is_first = True

    def unpack(data: bytes, room: int) -> bytes:
        nonlocal inflate, is_first
        try:
            return inflate.decompress(data, room)
        except zlib.error:
            if not is_first or name != "deflate":
                raise
            # Without the head that the standard asks for, as some servers write it.
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return inflate.decompress(data, room)
        finally:
            is_first = False

    def run(data: bytes) -> list[bytes]:
        nonlocal inflate
        pieces: list[bytes] = []
        size = 0
        while data:
            piece = unpack(data, MOST_INFLATED + 1 - size)
            size += len(piece)
            if size > MOST_INFLATED:
                raise zlib.error(f"one read of it unpacks to more than {MOST_INFLATED} bytes")
            if piece:
                pieces.append(piece)
            data = inflate.unconsumed_tail
            if inflate.eof and inflate.unused_data:
                # Several of them in a row are one.
                data = inflate.unused_data
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return pieces

    return run
