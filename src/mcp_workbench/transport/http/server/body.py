"""The body of a request: read whole, up to a limit. How slowly it may come is the connection's business."""

from __future__ import annotations

import asyncio
import contextlib

from mcp_workbench.transport.http.server.arrival import Arrival
from mcp_workbench.transport.http.server.limits import LINGER_BYTES, LINGER_SECONDS, SMALL_BODY
from mcp_workbench.transport.http.server.outlet import Receive


class BodyTooLarge(Exception):
    """There is more of it than we take."""


class ClientGone(Exception):
    """The connection ended before the body did."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """All of it. Raises `BodyTooLarge` and `ClientGone`."""
    message = await receive()
    if message["type"] == "http.request" and not message["more_body"]:
        body: bytes = message["body"]
        if len(body) > limit:
            raise BodyTooLarge
        return body
    parts: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        size += len(message["body"])
        if size > limit:
            raise BodyTooLarge
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)
        message = await receive()
    raise ClientGone


def must_close(arrival: Arrival) -> bool:
    """Whether a connection cannot be used again after a refusal, because too much of the body is still to come."""
    declared = arrival.declared_bytes
    return declared is None or declared > SMALL_BODY


async def linger(receive: Receive) -> None:
    """Read on for a moment and forget it."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while size <= LINGER_BYTES:
                message = await receive()
                if message["type"] != "http.request" or not message["more_body"]:
                    return
                size += len(message["body"])


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client is gone, or when the response is whole."""
    while (await receive())["type"] != "http.disconnect":
        pass
