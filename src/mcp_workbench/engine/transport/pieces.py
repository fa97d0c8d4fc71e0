"""Bytes that arrive in pieces, joined once.

The peer decides how large the pieces are, and an object for every two bytes takes twenty times their size. So small
pieces are merged as they arrive: the memory held is roughly the bytes counted.
"""

from __future__ import annotations

from typing import Final

# Smaller pieces share one object. A larger one has its own: the overhead is a hundredth, and nothing is copied.
SMALL_PIECE: Final = 4096


class Pieces:
    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<Pieces {self.size} bytes in {len(self._parts)} parts>"

    def add(self, piece: bytes) -> None:
        parts = self._parts
        self.size += len(piece)
        # Most messages have one piece, whatever its size; it is passed on without a copy.
        if not parts or len(piece) >= SMALL_PIECE:
            parts.append(piece)
        elif isinstance(parts[-1], bytearray):
            parts[-1] += piece
        else:
            parts.append(bytearray(piece))

    def take(self) -> bytes:
        """Return everything and hold nothing."""
        parts, self._parts, self.size = self._parts, [], 0
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        self._parts = []
        self.size = 0
