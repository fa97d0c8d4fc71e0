"""Requests that only our own commands may send: everything that a server offers, starting it if necessary.

A command connects like a client and is one (`Hello.command` is `BORROW`). It is there for one call, so it borrows an
existing connection to a server, instead of starting one that declares its own capabilities. If that turns out to be
needed, because the server shows a tool only to clients that it can ask (`Wanted.apart`) or refused a call for that
reason (`ASKS_METHOD`), it gets one.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, DecodeError, Struct, ValidationError
from msgspec.json import decode

from mcp_workbench.app.gateway import Gateway
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, Malformed, encode
from mcp_workbench.engine.session.session import Session
from mcp_workbench.engine.transport.link import Link
from mcp_workbench.errors import DownstreamError, SignInNeeded, WorkbenchError

OFFER: Final = "workbench/offer"
ASKS_METHOD: Final = "workbench/asks"
_OUR_OWN: Final = b'"workbench/'
# Our own commands write the method near the front.
_MAX_COMMAND_HEAD_BYTES: Final = 100


class Wanted(Struct):
    """The server that is requested."""

    toolbox: str
    server: str
    # As the server presents itself to clients with the capabilities of this command.
    apart: bool = False


class ListedServer(Struct):
    """What the server offers, and how often it wrote something to stdout that is not a message."""

    # An `Offer`, with all its fields.
    offer: object
    noise: int = 0


class CommandReceiver:
    """Receives messages in front of the session of a command."""

    def __init__(self, gateway: Gateway, session: Session, link: Link) -> None:
        self._gateway = gateway
        self._session = session
        self._link = link
        gateway.runtime.pool.lend_to(session.caller.client)

    def on_message(self, line: bytes) -> None:
        if _OUR_OWN not in line[:_MAX_COMMAND_HEAD_BYTES]:
            self._session.on_message(line)
            return
        try:
            message = messages.read(line)
            wanted = decode(b"{}" if message.params is UNSET else message.params, type=Wanted)
        except (Malformed, DecodeError, ValidationError):
            self._session.on_message(line)
            return
        if message.id is not UNSET:
            answering = self._list if message.method == OFFER else self._note_asking
            _ = self._gateway.runtime.start_task(answering(bytes(message.id), wanted))

    def on_oversized(self, remains: Oversized) -> None:
        self._session.on_oversized(remains)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        self._session.on_request_failed(id, error)

    def on_closed(self, reason: str) -> None:
        self._session.on_closed(reason)

    async def _list(self, id: bytes, wanted: Wanted) -> None:
        entry = self._entry(id, wanted)
        if entry is None:
            return
        caller = self._session.caller
        pool = self._gateway.runtime.pool
        connection = pool.connection(entry, caller)
        revision = connection.revision
        if wanted.apart and revision is not None and revision.has_handshake:
            # The connection was started for another client, which may have declared other capabilities.
            pool.end_lending(caller.client)
            connection = pool.connection(entry, caller)
        try:
            await connection.ensure_listed(asked=True)
        except WorkbenchError as error:
            data = {"hint": error.hint, "signIn": isinstance(error, SignInNeeded)}
            self._link.send(messages.error_response(id, INTERNAL_ERROR, error.message, data))
            return
        listed = encode(ListedServer(entry.offer, connection.counts()[2]))
        self._link.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, listed))

    async def _note_asking(self, id: bytes, wanted: Wanted) -> None:
        entry = self._entry(id, wanted)
        if entry is not None:
            self._gateway.catalog.servers.asks(entry)
            self._link.send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id)

    def _entry(self, id: bytes, wanted: Wanted) -> ServerEntry | None:
        """Return the requested server; None if there is none, after answering with an error."""
        entry = self._gateway.catalog.toolboxes.get(wanted.toolbox, {}).get(wanted.server)
        if entry is None:
            text = f"the shared workbench knows no server `{wanted.toolbox}/{wanted.server}`"
            self._link.send(messages.error_response(id, INVALID_PARAMS, text))
        return entry
