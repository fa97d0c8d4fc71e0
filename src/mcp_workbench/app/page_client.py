"""The page as a client of a gateway: what is tried there is called as an agent would, through all steps."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Raw, UnsetType
from msgspec.json import decode

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.engine.face.base import address_of
from mcp_workbench.engine.face.proxy import make as make_proxy
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import METHOD_NOT_FOUND
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.revisions import newest

_INFO: Final = {"name": "mcp-workbench page", "version": "1"}


class PageClient:
    """A link whose other end is a session. One request each."""

    # The origin of its calls in the audit.
    peer = "page"
    unsent_bytes = 0

    def __init__(self, gateway: Gateway, principal: str, identity: object = None) -> None:
        """`identity`: what the user of the page has proved besides the principal."""
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        self._session = gateway.make_session(self, principal, lambda reason: None)
        self._session.identity = identity
        self._catalog = gateway.gate.face_by_identity(principal, identity).catalog

    @property
    def session(self) -> int:
        """The number of its session, by which its call is recognised."""
        return self._session.caller.client

    def close(self) -> None:
        self._session.on_closed("the page has its answer")

    async def use(self, kind: str, toolbox: str, server: str, name: str, arguments: dict[str, Any]) -> Any:
        """The result of a tool, prompt or resource. Raises `RemoteError`."""
        revision = newest("legacy").name
        await self._request("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": _INFO})
        self._deliver(messages.notification("notifications/initialized", b"{}"))
        view = self._session.view
        # Whatever clients see, one way of naming things: over the catalogue that this user is shown.
        view.face = make_proxy(self._catalog, view.face.settings)
        if kind == "tool":
            identifier = {"toolbox": toolbox, "server": server, "tool": name}
            tool = view.face.calls_with if hasattr(view.face, "calls_with") else "use_tool"
            params: dict[str, Any] = {"name": tool, "arguments": {"tool": identifier, "arguments": arguments}}
            return decode(await self._request("tools/call", params))
        if kind == "prompt":
            params = {"name": f"{toolbox}/{server}/{name}", "arguments": arguments}
            return decode(await self._request("prompts/get", params))
        # Other servers may have a resource of the same address.
        entry = self._catalog.toolboxes[toolbox][server]
        return decode(await self._request("resources/read", {"uri": address_of(entry, name)}))

    async def _request(self, method: str, params: object) -> Raw:
        id = len(self._waiting) + 1
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        self._deliver(messages.request(id, method, messages.encode(params)))
        return await future

    def _deliver(self, message: bytes) -> None:
        self._session.on_message(message)

    def send(self, *parts: messages.Part, about: bytes | None = None) -> None:
        """A message for us (`Link`)."""
        message = messages.read(b"".join(bytes(part) for part in parts))
        if not isinstance(message.method, UnsetType):
            if not isinstance(message.id, UnsetType):
                # A page cannot be asked; the answer is one that servers expect of such clients.
                error = messages.encode({"code": METHOD_NOT_FOUND, "message": "the page cannot be asked"})
                reply = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(message.id), error)
                asyncio.get_running_loop().call_soon(self._deliver, reply)
            return
        future = None if isinstance(message.id, UnsetType) else self._waiting.get(int(bytes(message.id)))
        if future is None or future.done():
            return
        if not isinstance(message.error, UnsetType):
            future.set_exception(RemoteError(messages.read_error(message.error)))
        elif not isinstance(message.result, UnsetType):
            future.set_result(Raw(bytes(message.result)))
