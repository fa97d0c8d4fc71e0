"""The severities of log messages, least severe first (RFC 5424)."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def is_at_least(level: str, least: str) -> bool:
    """Whether a message of `level` passes a threshold of `least`. Unknown levels always pass."""
    if level not in LEVELS or least not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(least)


class _LogMessage(Struct, gc=False):
    level: str = "emergency"


_decode_level: Final = Decoder(_LogMessage).decode


def is_severe(message: Raw | None, least: str) -> bool:
    """Whether the level of a log message passes a threshold of `least`."""
    try:
        return message is not None and is_at_least(_decode_level(message).level, least)
    except (DecodeError, ValidationError):
        return False
