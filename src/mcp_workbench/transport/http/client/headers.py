"""The headers that a server gets from us: one place, so that nothing else can add to them.

What is in the configuration goes out, and nothing that a client of ours has sent. Signing in fills the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

# How a message is framed is decided where it is written; a header that says something else would only break it.
OF_THE_CONNECTION: Final = frozenset(("connection", "content-length", "transfer-encoding", "expect", "upgrade"))


class HeaderSource(Protocol):
    """Where the headers of one server come from."""

    def headers(self) -> Mapping[str, str]:
        """What every request to this server carries, names in lower case. The same object until something changes:
        heads that were written are kept for as long as it is."""

    async def refused(self, challenge: str) -> bool:
        """The server answered 401 with this `WWW-Authenticate`. True when there are better headers to try, once."""


class FixedHeaders:
    """Headers as they stand in the configuration."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = {
            name.lower(): value for name, value in headers.items() if name.lower() not in OF_THE_CONNECTION
        }

    def headers(self) -> Mapping[str, str]:
        """What the configuration says."""
        return self._headers

    async def refused(self, challenge: str) -> bool:
        """There is nothing else to try."""
        return False
