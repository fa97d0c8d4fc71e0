"""Bytes that arrive in pieces, joined once.

A peer decides how large the pieces are, and an object for each of two bytes takes twenty times what is in it. So small
ones are put together as they come: what is held is what was counted, within a fraction.
"""

from __future__ import annotations

from typing import Final

# Smaller pieces share one object. A larger one has its own: the object is a hundredth of it, and nothing is copied.
SMALL_PIECE: Final = 4096


class Pieces:
    """What has come so far."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<Pieces {self.size} bytes in {len(self._parts)} parts>"

    def add(self, piece: bytes) -> None:
        parts = self._parts
        self.size += len(piece)
        # Most have one piece, whatever its size; it is handed on as it is.
        if not parts or len(piece) >= SMALL_PIECE:
            parts.append(piece)
        elif isinstance(parts[-1], bytearray):
            parts[-1] += piece
        else:
            parts.append(bytearray(piece))

    def take(self) -> bytes:
        """All of them; nothing is held afterwards."""
        parts, self._parts, self.size = self._parts, [], 0
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        self._parts = []
        self.size = 0
