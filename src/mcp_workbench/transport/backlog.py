"""How much may wait for a server that reads more slowly than it is asked, and what becomes of the rest.

What does not fit is refused, one request at a time: the server itself goes on. Owns the bounds and the refusal. Refuses
to know what the messages travel on.
"""

from __future__ import annotations

from typing import Final

from mcp_workbench.errors import DownstreamError

MOST_UNSENT_BYTES: Final = 256 * 1024 * 1024
# Small messages have room of their own beyond that, so that large requests of one client do not shut out the others.
SMALL_MESSAGE: Final = 64 * 1024
RESERVED_BYTES: Final = 16 * 1024 * 1024


def fits(unsent: int, size: int) -> bool:
    """Whether a message of this size may wait too; `unsent` is what waits, the message included."""
    return unsent <= MOST_UNSENT_BYTES or (size <= SMALL_MESSAGE and unsent <= MOST_UNSENT_BYTES + RESERVED_BYTES)


def refusal(unsent: int, size: int) -> DownstreamError:
    """What the caller of a request is told that does not fit; `unsent` is what waits without it."""
    return DownstreamError(
        f"the server has {unsent} bytes of requests left to read; this one of {size} bytes does not fit",
        hint="try again in a moment, or send less",
    )
