"""What every client is told first: who we are, what we can do, how to use us, which tools there are.

Computed once and kept as bytes: the answers are the same for everybody, every time.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, Protocol

from msgspec import Raw

from mcp_workbench.jsonrpc.messages import encode
from mcp_workbench.protocol.meta import SERVER_INFO
from mcp_workbench.protocol.results import COMPLETE, with_first_member
from mcp_workbench.protocol.versions import MODERN_VERSIONS

# The two tools and the instructions change only with the configuration, which is read at start-up. An hour keeps
# clients from asking again within a conversation and still lets them notice a restart.
TTL_MS: Final = 3_600_000
CACHE: Final = b'"ttlMs":%d,"cacheScope":"private"' % TTL_MS


class ShownFace(Protocol):
    """What a welcome needs of a face."""

    def tools(self) -> list[dict[str, object]]:
        """Definitions of the tools that are shown."""

    def instructions(self) -> str:
        """What an agent has to know first."""


class Welcome:
    """The first words to any client."""

    def __init__(self, face: ShownFace, name: str, version: str) -> None:
        self._face = face
        self.info = encode({"name": name, "title": "MCP Workbench", "version": version})

    @cached_property
    def _instructions(self) -> bytes:
        return encode(self._face.instructions())

    @cached_property
    def _tools(self) -> bytes:
        return encode({"tools": self._face.tools()})

    @cached_property
    def _stamp(self) -> bytes:
        return encode({SERVER_INFO: Raw(self.info)})

    def initialize_result(self, version: str) -> bytes:
        """The answer to `initialize`."""
        return b'{"protocolVersion":%b,"capabilities":%b,"serverInfo":%b,"instructions":%b}' % (
            encode(version),
            b'{"tools":{"listChanged":false}}',
            self.info,
            self._instructions,
        )

    def discover_result(self) -> bytes:
        """The answer to `server/discover`."""
        return b'{%b,"supportedVersions":%b,"capabilities":%b,"instructions":%b,%b,"_meta":%b}' % (
            COMPLETE,
            encode(MODERN_VERSIONS),
            b'{"tools":{"listChanged":false}}',
            self._instructions,
            CACHE,
            self._stamp,
        )

    def tools_result(self, modern: bool) -> bytes:
        """The answer to `tools/list`."""
        if not modern:
            return self._tools
        return with_first_member(self._tools, b'%b,%b,"_meta":%b' % (COMPLETE, CACHE, self._stamp))
