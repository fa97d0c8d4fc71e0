"""What is known of one server that we talk to: its address, and in the legacy era its session and revision.

Read by everything that sends to the server; written by the link, and by whoever sends `initialize`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_workbench.transport.http import header_names as names
from mcp_workbench.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.transport.http.client.response import Response


class HttpSession:
    """One server, as a request to it has to know it."""

    __slots__ = ("client", "id", "is_sse", "limit", "target", "version")

    def __init__(self, client: HttpClient, target: HttpTarget, limit: int) -> None:
        self.client = client
        self.target = target
        # The largest message that we take from it.
        self.limit = limit
        # Both are None until a legacy server has answered `initialize`, and for a modern one.
        self.id: str | None = None
        self.version: str | None = None
        # Whether the server turned out to speak HTTP+SSE.
        self.is_sse = False

    @property
    def origin(self) -> str:
        return self.target.address.origin

    def headers(self) -> dict[str, str]:
        """What every message to a legacy server carries beside the server's own headers."""
        headers = {}
        if self.version is not None:
            headers[names.PROTOCOL_VERSION] = self.version
        if self.id is not None:
            headers[names.SESSION_ID] = self.id
        return headers

    async def request(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        """See `HttpClient.request`."""
        return await self.client.request(method, self.target, headers, body)
