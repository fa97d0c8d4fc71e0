"""Request heads of calls to one server, ready to be sent: for each call of a tool they differ only in the length.

Owns how long they are valid. Knows nothing about which headers a request needs: the session does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_workbench.engine.transport.http.client.headers import ProvenHeaders
from mcp_workbench.engine.transport.http.client.http_session import HttpSession
from mcp_workbench.engine.transport.http.client.response import RequestFailed
from mcp_workbench.engine.transport.http.message_summary import summarise

# For each server: one for each tool that is called.
MAX_CALL_HEADS: Final = 256


class CallHeadCache:
    __slots__ = ("_address", "_heads", "_session", "_session_id", "_version", "own")

    def __init__(self, session: HttpSession) -> None:
        self._session = session
        # By tool, and the revision in the call's `_meta`.
        self._heads: dict[tuple[str, str | None], bytes] = {}
        # What else the heads depend on, first the server's configured headers.
        self.own: Mapping[str, str] = {}
        self._address: object = None
        self._session_id: str | None = None
        self._version: str | None = None

    def find(self, body: bytes, tool: str, version: str | None) -> bytes | None:
        """The head of this call. None if it cannot be written; the ordinary way of sending then reports why."""
        session = self._session
        target = session.target
        own = target.source.headers()
        if own is None:
            # The headers are not available yet.
            return None
        if (
            own is not self.own
            or target.address is not self._address
            or session.id is not self._session_id
            or session.version is not self._version
        ):
            if isinstance(own, ProvenHeaders):
                return None
            self._heads.clear()
            self.own, self._address = own, target.address
            self._session_id, self._version = session.id, session.version
        head = self._heads.get((tool, version))
        if head is None:
            try:
                headers = {**own, **session.request_headers(summarise(body))}
                head = session.client.open_head("POST", target.address, target.proxy, headers)
            except RequestFailed:
                return None
            if len(self._heads) >= MAX_CALL_HEADS:
                self._heads.clear()
            self._heads[tool, version] = head
        return head
