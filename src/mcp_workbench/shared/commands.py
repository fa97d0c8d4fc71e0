"""What a command of ours may ask beyond what any client can: what a server offers, whole, started where it has to be.

A command comes as a client does and is one (`Hello.command` is `BORROW`). It answers no questions, so it borrows
whichever connection to a server is there, instead of starting one that declares no client.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, DecodeError, Struct, ValidationError
from msgspec.json import decode

from mcp_workbench.errors import DownstreamError, SignInNeeded, WorkbenchError
from mcp_workbench.gateway import Gateway
from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.framing import Oversized
from mcp_workbench.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, Malformed, encode
from mcp_workbench.session.session import Session
from mcp_workbench.transport.link import Link

OFFER: Final = "workbench/offer"
_OFFER: Final = b'"workbench/offer"'
# The method stands near the front of whatever our own commands write.
_LONGEST_HEAD: Final = 100


class Wanted(Struct):
    """Of which server."""

    toolbox: str
    server: str


class ListedServer(Struct):
    """What it offers, and how often it wrote something to stdout that is no message."""

    # An `Offer`, written whole.
    offer: object
    noise: int = 0


class CommandReceiver:
    """In front of the session of a command."""

    def __init__(self, gateway: Gateway, session: Session, link: Link) -> None:
        self._gateway = gateway
        self._session = session
        self._link = link
        gateway.runtime.pool.lend_to(session.caller.client)

    def on_message(self, line: bytes) -> None:
        if _OFFER not in line[:_LONGEST_HEAD]:
            self._session.on_message(line)
            return
        try:
            message = messages.read(line)
            wanted = decode(b"{}" if message.params is UNSET else message.params, type=Wanted)
        except (Malformed, DecodeError, ValidationError):
            self._session.on_message(line)
            return
        if message.id is not UNSET:
            _ = self._gateway.runtime.start_task(self._list(bytes(message.id), wanted))

    def on_oversized(self, remains: Oversized) -> None:
        self._session.on_oversized(remains)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        self._session.on_request_failed(id, error)

    def on_closed(self, reason: str) -> None:
        self._session.on_closed(reason)

    async def _list(self, id: bytes, wanted: Wanted) -> None:
        entry = self._gateway.catalog.toolboxes.get(wanted.toolbox, {}).get(wanted.server)
        if entry is None:
            text = f"the shared workbench knows no server `{wanted.toolbox}/{wanted.server}`"
            self._link.send(messages.error_response(id, INVALID_PARAMS, text))
            return
        connection = self._gateway.runtime.pool.connection(entry, self._session.caller)
        try:
            await connection.ensure_listed(asked=True)
        except WorkbenchError as error:
            data = {"hint": error.hint, "signIn": isinstance(error, SignInNeeded)}
            self._link.send(messages.error_response(id, INTERNAL_ERROR, error.message, data))
            return
        listed = encode(ListedServer(entry.offer, connection.counts()[2]))
        self._link.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, listed))
