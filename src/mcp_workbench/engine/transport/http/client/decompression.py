"""Decompressing bodies as they arrive, within a bound."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

# The largest output of one read of up to 256 KiB; JSON hardly ever compresses that well. More is a decompression bomb.
MOST_INFLATED: Final = 16 * 1024 * 1024


def inflater(encoding: str) -> Callable[[bytes], list[bytes]] | None:
    """A decompressor for an encoding that we did not ask for. None if the encoding is not one we know."""
    name = encoding.strip().lower()
    if name not in ("gzip", "x-gzip", "deflate"):
        return None
    # 32 makes zlib detect which of the two formats it is.
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    is_first = True

    def unpack(data: bytes, room: int) -> bytes:
        nonlocal inflate, is_first
        try:
            return inflate.decompress(data, room)
        except zlib.error:
            if not is_first or name != "deflate":
                raise
            # Some servers leave out the zlib header that the standard requires.
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
                # Concatenated members are one body.
                data = inflate.unused_data
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return pieces

    return run
