"""The revisions of MCP, and which of the two eras each belongs to."""

from __future__ import annotations

from typing import Final, Literal

Era = Literal["legacy", "modern"]

LEGACY_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_LEGACY: Final = LEGACY_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]


def negotiate_legacy(requested: str) -> str:
    """The revision to answer `initialize` with: the client's own if we know it, else our latest of that era."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


def era_of(version: str) -> Era:
    """Which era a revision belongs to."""
    return "modern" if version in MODERN_VERSIONS else "legacy"
