"""How much may be queued for a server that reads more slowly than it is sent requests, and what happens beyond that.

What does not fit is refused, one request at a time; the connection continues. Owns the limits and the refusal. Knows
nothing about the transport.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.errors import DownstreamError

MAX_UNSENT_BYTES: Final = 256 * 1024 * 1024
# Small messages have an additional reserve, so that large requests of one client do not block the others.
SMALL_MESSAGE: Final = 64 * 1024
RESERVED_BYTES: Final = 16 * 1024 * 1024


def fits(unsent: int, size: int) -> bool:
    """Whether a message of this size may be queued; `unsent` is what is queued, the message included."""
    return unsent <= MAX_UNSENT_BYTES or (size <= SMALL_MESSAGE and unsent <= MAX_UNSENT_BYTES + RESERVED_BYTES)


def refusal(unsent: int, size: int) -> DownstreamError:
    """The error for a request that does not fit; `unsent` is what is queued without it."""
    return DownstreamError(
        f"the server has {unsent} bytes of requests left to read; this one of {size} bytes does not fit",
        hint="try again in a moment, or send less",
    )
