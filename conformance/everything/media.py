"""The smallest valid picture and sound, as base64."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Final


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _red_pixel() -> bytes:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _silence() -> bytes:
    sound = (
        struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8) + struct.pack("<4sI", b"data", 2) + b"\x80\x80"
    )
    return b"RIFF" + struct.pack("<I", 4 + len(sound)) + b"WAVE" + sound


PNG: Final = base64.b64encode(_red_pixel()).decode()
WAV: Final = base64.b64encode(_silence()).decode()
