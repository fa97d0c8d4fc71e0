"""The severities of log messages, least severe first (RFC 5424)."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def is_at_least(level: str, least: str) -> bool:
    """Whether a message of `level` is wanted by somebody who asked for `least`. Unknown words are let through."""
    if level not in LEVELS or least not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(least)
