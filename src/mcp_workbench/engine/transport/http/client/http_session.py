"""What is known about one server: its address, and in the legacy era its session and revision.

Read by everything that sends to the server; written by the link, and by the request that sends `initialize`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mcp_workbench.engine.transport.http import header_names as names
from mcp_workbench.engine.transport.http import header_values
from mcp_workbench.engine.transport.http.client.failures import explain
from mcp_workbench.engine.transport.http.client.http_client import HttpClient, HttpTarget
from mcp_workbench.engine.transport.http.client.response import Response
from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters, headers_for
from mcp_workbench.engine.transport.http.message_summary import MessageSummary
from mcp_workbench.errors import DownstreamError

POST_HEADERS: Final = {"content-type": names.JSON, "accept": names.ACCEPT_BOTH}
# The parameters of a tool that are mirrored into headers; None for an unknown tool.
ToolParameters = Callable[[str], HeaderParameters | None]


class HttpSession:
    """One server, as its requests need to know it."""

    __slots__ = ("client", "id", "is_sse", "limit", "parameters_of", "target", "version")

    def __init__(
        self, client: HttpClient, target: HttpTarget, limit: int, parameters_of: ToolParameters | None = None
    ) -> None:
        self.client = client
        self.target = target
        # The largest message that we accept from it.
        self.limit = limit
        self.parameters_of = parameters_of
        # Both are None until a legacy server has answered `initialize`, and always for a modern one.
        self.id: str | None = None
        self.version: str | None = None
        # Whether the server turned out to speak HTTP+SSE.
        self.is_sse = False

    @property
    def origin(self) -> str:
        return self.target.address.origin

    def headers(self) -> dict[str, str]:
        """The headers of every message to a legacy server, in addition to the configured ones."""
        headers = {}
        if self.version is not None:
            headers[names.PROTOCOL_VERSION_HEADER] = self.version
        if self.id is not None:
            headers[names.SESSION_ID] = self.id
        return headers

    def request_headers(self, summary: MessageSummary) -> dict[str, str]:
        """The headers of a request, in addition to the configured ones."""
        version = summary.version
        if version is None:
            headers = {**POST_HEADERS, **self.headers()}
            if summary.method == "initialize":
                # It negotiates the revision and begins a session, so it carries neither.
                headers.pop(names.PROTOCOL_VERSION_HEADER, None)
                headers.pop(names.SESSION_ID, None)
            return headers
        headers = {**POST_HEADERS, names.PROTOCOL_VERSION_HEADER: version, names.METHOD: summary.method}
        name = summary.name
        if name is not None:
            headers[names.NAME] = header_values.encode(name)
            if summary.method == "tools/call" and self.parameters_of is not None:
                headers |= headers_for(self.parameters_of(name) or {}, summary.arguments)
        return headers

    def explain(self, error: Exception) -> DownstreamError:
        """Explain why this server could not be reached or understood."""
        return explain(error, self.target.address, self.target.shown_proxy)

    async def request(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        return await self.client.request(method, self.target, headers, body)
