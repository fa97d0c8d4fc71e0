"""Marks each question to a user with the server that asks it, and keeps it from reaching beyond that server.

A client sees a single server, us, so each question gets the name of the server behind us that asks it: at the start of
an elicitation's message, unless the user has only that server, and in the `_meta` of a sampling request, whose text is
for a model. Pages that a user is sent
to must be `https` or on this machine. Context that a sampling request asks to include would be that of every server
behind us, because the client cannot tell them apart. With an audit, each question is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Raw, ValidationError
from msgspec.json import Decoder

from mcp_workbench.engine.jsonrpc.messages import READING_ERRORS, decode_object, decode_string, encode
from mcp_workbench.engine.protocol.results import may_mention
from mcp_workbench.engine.session.questions import BadQuestion, unreadable

if TYPE_CHECKING:
    from mcp_workbench.engine.face.view import View
    from mcp_workbench.engine.steps import EventRecorder

# The member of a sampling request's `_meta` that names the server it comes from.
SERVER_META: Final = "mcp-workbench/server"
# Control characters are escaped: with them, a message could move a terminal's cursor back and overwrite the name of the
# server.
_WRITTEN_OUT: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


class AskedClient(Protocol):
    """The client whose user is asked."""

    client_info: bytes
    peer: str
    view: View


def noted_by(record: EventRecorder | None, client: AskedClient, label: str) -> Callable[[str], None] | None:
    """A function that records a server's question to this client, given its method. None without an audit."""
    if record is None:
        return None
    # Imported here because it is only needed with an audit, which has loaded it already.
    from mcp_workbench.engine.steps import LOCAL_PRINCIPAL

    who = client.view.principal or LOCAL_PRINCIPAL
    info = client.client_info.decode(errors="replace")
    asked: dict[str, str] = {"principal": who, "peer": client.peer, "client": info, "server": label}
    return lambda method: record("question", **asked, method=method, decision="passed")


class Attribution:
    """Marks the questions of one server. `is_alone`: it is the only server behind us. `is_named`: users are told which
    one it is. `may_ask`: its configuration lets it. `note` is called for each."""

    __slots__ = ("_is_alone", "_is_named", "_label", "_may_ask", "_note")

    def __init__(
        self,
        label: str,
        *,
        is_alone: bool,
        is_named: bool = True,
        may_ask: bool = True,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._label = label
        self._is_alone = is_alone
        self._is_named = is_named
        self._may_ask = may_ask
        self._note = note

    def question(self, method: str, params: Raw | None) -> Raw | None:
        """Return the params of a server's question for the client. Raises `BadQuestion`."""
        if not self._may_ask:
            raise BadQuestion("its configuration says that this server may not ask")
        ask = _WAYS.get(method)
        if ask is None or params is None:
            return params
        try:
            members = decode_object(params)
        except READING_ERRORS:
            raise unreadable() from None
        ask(self, members)
        if self._note is not None:
            self._note(method)
        return Raw(encode(members))

    def input_required(self, result: Raw | bytes) -> Raw | bytes:
        """Return a modern server's result with its `inputRequests` marked for the client. Raises `BadQuestion`."""
        try:
            members = decode_object(result)
            requests = decode_object(members["inputRequests"])
            for key, request in requests.items():
                requests[key] = self._request(request)
        except READING_ERRORS:
            if may_mention(result, "inputRequests"):
                raise unreadable() from None
            return result
        except KeyError:
            return result
        members["inputRequests"] = Raw(encode(requests))
        return encode(members)

    def pages(self, data: Raw) -> Raw:
        """Return the `data` of an error that requires pages to be visited first, marked. Raises `BadQuestion`."""
        try:
            members = decode_object(data)
            pages = [self._page(page) for page in Decoder(list[Raw]).decode(members["elicitations"])]
        except (ValidationError, KeyError):
            # It names no page.
            return data
        except READING_ERRORS:
            raise unreadable() from None
        return Raw(encode({**members, "elicitations": pages}))

    def _page(self, page: Raw) -> Raw:
        try:
            members = decode_object(page)
        except ValidationError:
            return page
        check_page(_text(members.get("url")))
        self._elicitation(members)
        if self._note is not None:
            self._note("elicitation/create")
        return Raw(encode(members))

    def _request(self, request: Raw) -> Raw:
        members = decode_object(request)
        params = self.question(_text(members.get("method")), members.get("params"))
        if params is not None:
            members["params"] = params
        return Raw(encode(members))

    def _elicitation(self, members: dict[str, Raw]) -> None:
        # Even without a mode: a client may open a page because there is an address.
        if _text(members.get("mode")) == "url" or "url" in members:
            check_page(_text(members.get("url")))
        # A Windows line ending is harmless; a lone carriage return would let the text overwrite the label in a
        # terminal.
        message = _text(members.get("message")).replace("\r\n", "\n").translate(_WRITTEN_OUT)
        if self._is_named:
            message = f"[{self._label}] {message}".rstrip()
        members["message"] = Raw(encode(message))

    def _sampling(self, members: dict[str, Raw]) -> None:
        wanted = _text(members.get("includeContext"))
        if wanted not in ("", "none"):
            # For the client, `thisServer` means all servers behind us.
            members["includeContext"] = Raw(b'"thisServer"' if self._is_alone else b'"none"')
        try:
            meta = decode_object(members["_meta"]) if "_meta" in members else {}
        except READING_ERRORS:
            meta = {}
        members["_meta"] = Raw(encode({**meta, SERVER_META: Raw(encode(self._label))}))


_WAYS: Final[dict[str, Callable[[Attribution, dict[str, Raw]], None]]] = {
    "elicitation/create": Attribution._elicitation,
    "sampling/createMessage": Attribution._sampling,
}


def check_page(url: str) -> None:
    """Raise `BadQuestion` unless a user may be sent to this address."""
    # Imported here because few servers send users to a page.
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        # Browsers treat a backslash as a slash and drop unprintable characters, and would go to a different host.
        parts = urlsplit(url) if url.isprintable() and "\\" not in url and " " not in url else urlsplit("")
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme == "https" and host:
        return
    # RFC 6761: names below `localhost` never leave this machine.
    if parts.scheme == "http" and (host == "localhost" or host.endswith(".localhost")):
        return
    try:
        is_here = parts.scheme == "http" and ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise BadQuestion(f"the address `{url[:200]}` is neither https nor http on this machine")


def _text(raw: Raw | None) -> str:
    try:
        return "" if raw is None else decode_string(raw)
    except READING_ERRORS:
        return ""
