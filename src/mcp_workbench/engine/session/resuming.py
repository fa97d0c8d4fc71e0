"""Saves and restores the state of a session, so that another workbench can take over a client when ours has ended.

The state is the handshake, the log level, subscriptions, streams of `subscriptions/listen`, opened toolboxes, and the
lists that the client has seen. The requests that created it are repeated to the session of the new workbench, with our
own ids, and the client notices nothing. Calls are never repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import Part, decode_object, encode

if TYPE_CHECKING:
    from mcp_workbench.engine.session.session import Session
    from mcp_workbench.engine.transport.link import Link

# The prefix of the ids of repeated requests. Responses with such an id are not for the client.
_OWN_IDS: Final = b'"mcp-workbench/resume/'
_OWN_HEAD: Final = b'{"jsonrpc":"2.0","id":' + _OWN_IDS


class _Listening(Struct):
    id: Raw
    params: Raw


class _Lasting(Struct, omit_defaults=True):
    initialize: Raw = Raw(b"null")
    log_level: str | None = None
    subscriptions: list[str] = []
    listening: list[_Listening] = []
    opened: list[str] = []
    listed: list[str] = []
    # The toolboxes that the client knows about; None if the workbench did not save them.
    toolboxes: list[str] | None = None


_read: Final = Decoder(_Lasting).decode


def mark_of(session: Session) -> tuple[object, ...]:
    """A value that changes with the state to save. Compared before messages to the client are sent."""
    view = session.view
    opened, subscriptions, streams = view.opened, session.subscriptions, session.streams
    return (
        session.revision,
        session.log_level,
        # Mostly empty, and this is made with every answer.
        tuple(opened) if opened else None,
        tuple(subscriptions) if subscriptions else None,
        tuple(streams) if streams else None,
        len(session.listed),
        # A new object with each configuration.
        view.face.catalog.toolboxes,
        len(view.changed),
    )


def written_down(session: Session) -> bytes:
    """The state that another workbench needs to take over this client, in one line."""
    lasting = _Lasting(
        log_level=session.log_level,
        subscriptions=list(session.subscriptions),
        listening=[_Listening(Raw(stream.id), Raw(encode(stream.request))) for stream in session.streams.values()],
        opened=list(session.view.opened),
        listed=sorted(session.listed),
        toolboxes=_known_toolboxes(session),
    )
    if session.revision is not None:
        info = {
            "protocolVersion": session.revision.name,
            "capabilities": Raw(session.caller.capabilities),
            "clientInfo": Raw(session.client_info),
        }
        lasting.initialize = Raw(encode(info))
    return encode(lasting)


def _known_toolboxes(session: Session) -> list[str]:
    """The toolboxes of the catalogue, without the changes that the client has not been notified of."""
    known = dict.fromkeys(session.view.face.catalog.toolboxes)
    for name, change in session.view.changed.items():
        if change == "new":
            known.pop(name, None)
        elif change == "removed":
            known[name] = None
    return list(known)


class ResumedLink:
    """The link to a client that is taken over. Drops the responses to repeated requests, which the previous workbench
    has sent already."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.peer = getattr(link, "peer", "")

    def send(self, *parts: Part, about: bytes | None = None) -> None:
        # The first part of a message contains its id.
        if not bytes(parts[0]).startswith(_OWN_HEAD):
            self._link.send(*parts, about=about)

    @property
    def unsent_bytes(self) -> int:
        return self._link.unsent_bytes


def restore(session: Session, written: bytes) -> None:
    """Restore a saved state in a new session. Raises `ValueError` if it was not written by us."""
    try:
        lasting = _read(written)
        repeated: list[tuple[str, object]] = []
        if bytes(lasting.initialize) != b"null":
            session.on_request(_OWN_IDS + b'"', "initialize", decode_object(lasting.initialize))
        # First, because the owner of a resource may depend on the opened toolboxes.
        session.router.views.reopen(session.view, lasting.opened, lasting.toolboxes)
        if lasting.log_level is not None:
            repeated.append(("logging/setLevel", {"level": lasting.log_level}))
        repeated += [("resources/subscribe", {"uri": uri}) for uri in lasting.subscriptions]
        for number, (method, params) in enumerate(repeated):
            session.on_request(_OWN_IDS + b'%d"' % number, method, decode_object(encode(params)))
        session.listed.update(lasting.listed)
        for each in lasting.listening:
            session.on_request(bytes(each.id), "subscriptions/listen", decode_object(each.params))
    except MsgspecError as error:
        raise ValueError(f"what was to be restored cannot be read: {error}") from None
    # The previous workbench has acknowledged these streams.
    for stream in session.streams.values():
        stream.is_acknowledged = True
