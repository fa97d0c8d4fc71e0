"""The revisions of MCP, and which of the two eras each belongs to."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Era = Literal["legacy", "modern"]

LEGACY_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_LEGACY: Final = LEGACY_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]


class SpokenEras(Struct, frozen=True, gc=False):
    """Which eras a server speaks, as far as it was tried: None where nobody has.

    A server never says so itself: one of both eras lists modern revisions in `server/discover` and answers
    `initialize` all the same, and over stdio the first request of a process settles which of the two it speaks.
    """

    legacy: bool | None = None
    modern: bool | None = None

    def for_client(self, client: Era) -> Era:
        """In which era a client's requests are to reach the server: in its own, unless that was tried in vain."""
        if client == "legacy":
            return "modern" if self.legacy is False else "legacy"
        return "legacy" if self.modern is False else "modern"

    @staticmethod
    def only(era: Era) -> SpokenEras:
        """It speaks this one, and was tried in vain in the other."""
        return SpokenEras(legacy=era == "legacy", modern=era == "modern")

    def updated(self, newer: SpokenEras) -> SpokenEras:
        """With what was found out since."""
        return SpokenEras(
            self.legacy if newer.legacy is None else newer.legacy,
            self.modern if newer.modern is None else newer.modern,
        )


def negotiate_legacy(requested: str) -> str:
    """The revision to answer `initialize` with: the client's own if we know it, else our latest of that era."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


def era_of(version: str) -> Era:
    """Which era a revision belongs to."""
    return "modern" if version in MODERN_VERSIONS else "legacy"
