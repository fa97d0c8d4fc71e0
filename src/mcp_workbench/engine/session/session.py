"""The connection of one client.

A legacy client (up to 2025-11-25) begins with `initialize`; a modern one (2026-07-28) stamps every request. Both kinds
of requests may use the same connection, and each is served in its own era.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError

from mcp_workbench.engine.downstream.sharing import EVERYTHING, SHARED, Caller, modern_caller, withheld
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LARGE_REQUEST,
    NOT_A_MESSAGE,
    OTHER_VERSION,
    REFUSED_FORMAT,
    Envelope,
    LargeObject,
    Malformed,
    Part,
    decode_client_envelope,
    decode_object,
)
from mcp_workbench.engine.protocol.constants import UNSUPPORTED_PROTOCOL_VERSION
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES, BadStamp, Stamp, read_stamp
from mcp_workbench.engine.protocol.revisions import Revision, negotiate, newest
from mcp_workbench.engine.router.routed_call import Route, why_unhandled
from mcp_workbench.engine.router.router import Router
from mcp_workbench.engine.session import methods
from mcp_workbench.engine.session.client_call import ClientCall, is_severe
from mcp_workbench.engine.session.notifications import ListChangeNotifier, ListenStream, without_subscription
from mcp_workbench.engine.session.parking import Parking
from mcp_workbench.engine.session.questions import Questions, may_be_asked
from mcp_workbench.engine.session.session_registry import SessionRegistry
from mcp_workbench.engine.session.welcome import BadInitialize, Welcome, read_initialize
from mcp_workbench.engine.transport.link import Link
from mcp_workbench.errors import DownstreamError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.router.subscriptions import Subscription
    from mcp_workbench.engine.session.attribution import Attribution
    from mcp_workbench.engine.session.signing_in import SignInService

log = logging.getLogger(__name__)
# The maximum number of requests in flight of one client. Far more than agents need; it limits our memory.
MAX_CLIENT_CALLS: Final = 10_000
# Shorter answers are joined with what we put around them; longer ones are not copied here.
SHORT_ANSWER: Final = 8 * 1024
# How much of a method or an id is logged.
MAX_LOGGED_LENGTH: Final = 100
# A client with more unsent bytes than this gets no notifications.
MAX_UNSENT_BYTES_FOR_NOTIFICATIONS: Final = 4 * 1024 * 1024
UNDER_WAY: Final = "a request with this id is still in progress"
UNSTAMPED: Final = (
    "`_meta` lacks `io.modelcontextprotocol/protocolVersion`; stamp each request (MCP 2026-07-28), or send "
    "`initialize` first (up to 2025-11-25)"
)

NO_STAMP: Final = Stamp()
Closed = Callable[[str], None] | None
# Numbers the clients that have a session.
_numbers: Final = count(1)
# The longest URI that browsers and proxies generally accept.
MAX_NAME_BYTES: Final = 8 * 1024
# The most that a member may have which is neither a name nor a payload.
MAX_OWN_BYTES: Final = 64 * 1024
# Stamps and states are of others, who may put in what they like; we look for a few members.
MAX_META_BYTES: Final = 1024 * 1024


class Services(Struct, frozen=True):
    """The services that all sessions share."""

    router: Router
    welcome: Welcome
    parking: Parking
    registry: SessionRegistry
    # Called when a call needs a sign-in.
    sign_ins: Callable[[], SignInService] | None = None


class Session(Struct, eq=False):
    """A connected client. A `Struct`, which is made in C, because over HTTP each request of a modern client needs
    one."""

    router: Router
    welcome: Welcome
    _services: Services
    _link: Link
    _closed: Closed
    # The number of its session, if it has one from the start; otherwise `initialize` begins one.
    _number: int
    view: View
    # The capabilities from `initialize`.
    caller: Caller
    peer: str
    # Its legacy subscriptions to resources, which end when the client leaves.
    subscriptions: dict[str, Subscription] = {}
    calls: dict[bytes, ClientCall] = {}
    streams: dict[bytes, ListenStream] = {}
    # The revision agreed in `initialize`; None before that.
    revision: Revision | None = None
    client_info: bytes = b"{}"
    # What authentication proved with the last request besides the principal; each call keeps its own.
    identity: object = None
    # The header `traceparent` of the last request; each call keeps its own.
    trace_parent: str = ""
    log_level: str | None = None
    # The lists that this client has fetched; it is notified only about these.
    listed: set[str] = set()
    is_draining: bool = False
    _questions: Questions | None = None
    _list_changes: ListChangeNotifier | None = None
    _is_registered: bool = False

    @classmethod
    def begin(
        cls, services: Services, link: Link, principal: str, closed: Closed = None, lasts: bool = False
    ) -> Session:
        """Make the session of a client that has just connected. `lasts`: the link exists as long as its client does, so
        it is a session in either era."""
        router = services.router
        if lasts:
            number, view = next(_numbers), router.views.begin_session(principal)
        else:
            number, view = SHARED, router.views.of_principal(principal)
        caller = Caller(principal, "legacy", NO_CAPABILITIES, number)
        return cls(router, services.welcome, services, link, closed, number, view, caller, getattr(link, "peer", ""))

    def __repr__(self) -> str:
        revision = "no handshake" if self.revision is None else self.revision.name
        return f"<Session {self.view.principal!r} {revision}, {len(self.calls)} under way>"

    @property
    def parking(self) -> Parking:
        """Calls that wait for their client to retry with answers."""
        return self._services.parking

    @property
    def sign_ins(self) -> SignInService | None:
        make = self._services.sign_ins
        return None if make is None else make()

    @property
    def questions(self) -> Questions:
        """Questions of servers to this client."""
        if self._questions is None:
            self._questions = Questions(self.send)
        return self._questions

    @property
    def list_changes(self) -> ListChangeNotifier:
        """Notifies this client of changed lists."""
        if self._list_changes is None:
            self._list_changes = ListChangeNotifier(self._notify_list_changed)
        return self._list_changes

    # ── messages from the client ──

    def on_message(self, line: bytes) -> None:
        try:
            message = messages.read(line, decode_client_envelope)
        except Malformed as error:
            # A blank line is not a message and needs no answer.
            if line.strip():
                self._complain(error.by_client(line))
            return
        if message.method is UNSET or message.id is UNSET:
            self.on_read_message(line, message)
        else:
            self._on_unread_request(bytes(message.id), message.method, message.params, None, len(line))

    def on_read_message(self, line: bytes, message: Envelope | Malformed) -> None:
        """Handle a message that has been decoded, in a thread if it is large (`ReadReceiver`)."""
        if isinstance(message, Malformed):
            self._complain(message.by_client(line))
        elif messages.has_other_version(message):
            self._complain(Malformed(OTHER_VERSION, messages.find_id(line), code=INVALID_REQUEST))
        elif message.method is UNSET:
            self._on_answer(message)
        elif message.id is UNSET:
            self._on_notification(message.method, None if message.params is UNSET else message.params)
        else:
            members = getattr(message, "members", None)
            self._on_unread_request(bytes(message.id), message.method, message.params, members, len(line))

    def _complain(self, error: Malformed) -> None:
        self._refuse(self._unless_under_way(error.id), error.code, error.complaint, what="a message")

    def on_oversized(self, remains: Oversized) -> None:
        """Answer a message that is larger than the limit."""
        id = self._unless_under_way(messages.find_id(remains.head, remains.tail))
        text = f"message of {remains.size} bytes is larger than the limit; raise `maxMessageBytes`, or send less"
        self._refuse(id, INVALID_REQUEST, text, what="a message")

    def _unless_under_way(self, id: bytes | None) -> bytes | None:
        """The id found in an unreadable message, unless an error with it would be mistaken for the response to a call
        in flight."""
        return None if id is not None and (id in self.calls or id in self.streams) else id

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        """Called when a question of a server could not be sent to the client."""
        question = self.questions.take(id)
        if question is not None:
            question.on_failure(error)

    def on_closed(self, reason: str) -> None:
        if self._closed is None:
            self.leave()
        else:
            self._closed(reason)

    def subscribe_to_changes(self) -> None:
        """Notify this client of changes from now on."""
        self._is_registered = True
        self._services.registry.add(self)

    def leave(self) -> None:
        """End everything that the client requested and everything that waits for it, because it will not return."""
        if self._is_registered:
            self._services.registry.discard(self)
        # The view of a client without a session belongs to its principal, and is used by its next request.
        if self.revision is not None or self._number:
            self.router.views.end_session(self.view)
            self.router.connections.forget_client(self)
        if self._list_changes is not None:
            self._list_changes.close()
        if self.calls:
            for call in list(self.calls.values()):
                call.cancel({"reason": Raw(b'"the client has disconnected"')})
            self.calls.clear()
        if self.streams:
            for stream in list(self.streams.values()):
                stream.end()
            self.streams.clear()
        if self._questions is not None:
            self._questions.end(DownstreamError("the client has disconnected"))
        if self.subscriptions:
            self.router.subscriptions.end(self, self.subscriptions)

    def _on_unread_request(
        self, id: bytes, method: str, raw_params: Raw | UnsetType, members: dict[str, Raw] | None, size: int
    ) -> None:
        # Most ids are numbers, which are valid.
        if not id.isdigit() and not messages.is_valid_id(id):
            # JSON-RPC requires the id `null` if that of the request is invalid.
            self._refuse(None, INVALID_REQUEST, "`id` must be a string or a number", what=method)
            return
        try:
            params = members or ({} if raw_params is UNSET else decode_object(raw_params))
        except (DecodeError, ValidationError, RecursionError) as error:
            if id in self.calls or id in self.streams:
                self._refuse(id, INVALID_REQUEST, UNDER_WAY, what=method)
            else:
                reason = messages.why_unreadable(b"" if raw_params is UNSET else raw_params, error)
                self._refuse(id, INVALID_PARAMS, f"`params` cannot be used: {reason}", what=method)
            return
        if size > LARGE_REQUEST and type(params) is not LargeObject:
            params = LargeObject(params)
        self.on_request(id, method, params)

    def on_request(self, id: bytes, method: str, params: dict[str, Raw]) -> None:
        """Handle one request with a valid id. Takes ownership of the params."""
        try:
            if id in self.calls or id in self.streams:
                self._refuse(id, INVALID_REQUEST, UNDER_WAY, what=method)
            elif type(params) is LargeObject and (wrong := _why_too_large(method, params)) is not None:
                self._refuse(id, INVALID_PARAMS, wrong, what=method[:100])
            elif method == "initialize":
                self._initialize(id, params)
            elif (call := self._admit(id, method, params)) is None:
                return
            elif call.revision.asks_in_results and "requestState" in params:
                self._take_retry(call, params)
            elif method == "tools/call":
                # Nearly all requests, so the table is skipped.
                self.router.call_tool(call, params)
            else:
                self.dispatch(call, params)
        except RecursionError:
            self._abort(id, INVALID_PARAMS, "the request is nested too deeply")
        except Exception as error:
            self._abort(id, INTERNAL_ERROR, why_unhandled(error))

    def _abort(self, id: bytes, code: int, message: str) -> None:
        call = self.calls.pop(id, None)
        if call is not None:
            call.cancel({"reason": Raw(b'"it could not be handled"')})
        self._refuse(id, code, message)

    def _take_retry(self, call: ClientCall, params: dict[str, Raw]) -> None:
        if not self.parking.takes_back(call, params):
            # Answers without a state are never a retry of ours, because we always issue a state. They may be for a
            # server that does not.
            call.is_retry = True
            self.dispatch(call, params)

    def dispatch(self, call: ClientCall, params: dict[str, Raw]) -> None:
        methods.find(call)(self, call, params)

    def _admit(self, id: bytes, method: str, params: dict[str, Raw]) -> ClientCall | None:
        """Accept a request, or refuse it if it breaks the rules of its era."""
        # Kept separately: it is translated for the server's era, while the other params pass unchanged.
        meta = params.pop("_meta", None)
        if self.is_draining:
            self._refuse(id, INTERNAL_ERROR, "the workbench is shutting down", what=method)
            return None
        if len(self.calls) >= MAX_CLIENT_CALLS:
            self._refuse(id, INTERNAL_ERROR, f"more than {MAX_CLIENT_CALLS} requests in flight", what=method)
            return None
        stamp = NO_STAMP if meta is None else read_stamp(meta)
        if type(stamp) is BadStamp:
            self._refuse(id, stamp.code, stamp.message, stamp.data, what=method)
            return None
        revision = stamp.revision
        if revision is not None:
            log_level, client_info = stamp.log_level, stamp.client_info
            # Only if the view depends on the client: most faces are the same for all of them.
            if self.router.views.tells_clients_apart and client_info != self.view.client_info:
                self.view = self.router.views.of_request(self.view, client_info)
            caller = modern_caller(self.view.principal, stamp.capabilities, self._number)
        elif self.revision is None and method != "ping":
            # Pings are the only legacy requests allowed before the handshake (*Lifecycle*, initialization).
            self._refuse(id, INVALID_PARAMS, UNSTAMPED, what=method)
            return None
        else:
            revision, log_level = self.revision or newest("legacy"), self.log_level
            client_info, caller = self.client_info, self.caller
        call = self.calls[id] = ClientCall(
            self,
            self,
            id,
            method,
            self.view,
            caller,
            revision,
            Route(caller, self.identity, self.trace_parent),
            meta,
            stamp.progress_token,
            log_level,
            params,
            client_info,
        )
        return call

    def _initialize(self, id: bytes, members: dict[str, Raw]) -> None:
        try:
            client = read_initialize(members)
        except BadInitialize as error:
            self._refuse(id, INVALID_PARAMS, str(error), what="initialize")
            return
        # A new session does not show what other clients of its principal have opened.
        if self.revision is None and not self._number:
            self.view = self.router.views.begin_session(self.view.principal)
        self.revision = negotiate(client.version)
        # A client that sends `initialize` again keeps its number, by which servers that may ask it something know it.
        number = self.caller.client or next(_numbers)
        self.caller = Caller(self.view.principal, "legacy", client.capabilities, number)
        self.client_info = client.info
        self.router.views.introduce(self.view, self.client_info)
        self.subscribe_to_changes()
        result = self.welcome.initialize_result(self.revision, self.view)
        self._link.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, result))

    def _on_notification(self, method: str, params: Raw | None) -> None:
        if method == "notifications/cancelled":
            if params is not None:
                self._on_cancelled(params)
        elif method == "notifications/progress":
            if params is not None:
                self.questions.on_progress(params)
        # Requests are served right after `initialize`, so nothing waits for it.
        elif method == "notifications/initialized":
            pass
        elif method == "notifications/roots/list_changed" or self.router.has_one_server(self.view):
            # Unknown notifications are passed on if there is only one server.
            own = None if params is None else bytes(params)
            self.router.notify_servers(self, method, own)

    def _on_cancelled(self, params: Raw) -> None:
        try:
            fields = decode_object(params)
            id = bytes(fields["requestId"])
        except (DecodeError, ValidationError, KeyError):
            return
        call = self.calls.pop(id, None)
        if call is not None:
            call.cancel(fields)
        stream = self.streams.pop(id, None)
        if stream is not None:
            stream.end()

    def _on_answer(self, message: Envelope) -> None:
        """Handle the client's answer to a question of a server."""
        if message.id is UNSET:
            # An error without id is about a message of ours that the client could not read; anything else is invalid.
            if message.error is UNSET:
                self._refuse(None, INVALID_REQUEST, NOT_A_MESSAGE)
            return
        question = self.questions.take(message.id)
        if question is None:
            if message.result is UNSET and message.error is UNSET:
                # A request without its method: without an error, its sender would wait forever.
                id = self._unless_under_way(bytes(message.id))
                self._refuse(id if id and messages.is_valid_id(id) else None, INVALID_REQUEST, NOT_A_MESSAGE)
            return
        if message.error is not UNSET:
            question.on_error(message.error)
        elif message.result is not UNSET:
            question.on_result(message.result)
        else:
            question.on_failure(DownstreamError("the client's answer has neither result nor error"))

    # ── messages to the client ──

    def finish(self, call: ClientCall, kind: Literal["result", "error"], parts: tuple[Part, ...]) -> None:
        """Send the only response to a call. A cancelled call gets none."""
        calls, id = self.calls, call.id
        # An id may be reused once its call has ended, and then belongs to a different call.
        if calls.get(id) is not call:
            return
        del calls[id]
        head = b'{"jsonrpc":"2.0","id":%b,"result":' if kind == "result" else b'{"jsonrpc":"2.0","id":%b,"error":'
        last = parts[-1]
        if len(last) >= SHORT_ANSWER or len(parts[0]) >= SHORT_ANSWER:
            self._link.send(head % id, *parts, b"}")
        else:
            self._link.send(head % id, b"".join((last, b"}") if len(parts) == 1 else (*parts, b"}")))

    def notify(self, method: str, params: bytes | Raw | None = None, about: bytes | None = None) -> None:
        """Send a notification. `about` is the id of the client's request that it belongs to.

        A client that does not read gets none: they would pile up, and only responses are required.
        """
        if self._link.unsent_bytes > MAX_UNSENT_BYTES_FOR_NOTIFICATIONS:
            return
        self.send(messages.notification(method, params), about)

    def end(self, error: WorkbenchError, *, keeps_streams: bool = False) -> None:
        """Answer everything that is still in flight, at shutdown. `keeps_streams`: another workbench continues them."""
        if self._list_changes is not None:
            self._list_changes.close()
        if not keeps_streams:
            for stream in list(self.streams.values()):
                stream.close()
            self.streams.clear()
        for call in list(self.calls.values()):
            self.router.stop_work(call)
            call.on_failure(error)
        if self._questions is not None:
            self._questions.end(error)

    def close_stream(self, stream: ListenStream) -> None:
        """End one stream with its result."""
        if self.streams.get(stream.id) is stream:
            del self.streams[stream.id]
            stream.close()

    def send(self, message: bytes, about: bytes | None) -> None:
        """Send a message that is not the response to a call."""
        self._link.send(message, about=about)

    def _refuse(
        self, id: bytes | None, code: int, message: str, data: object = UNSET, *, what: str = "a message"
    ) -> None:
        """Answer what breaks the rules of the protocol, and log it: hardly any client shows such errors to anyone."""
        if code != INTERNAL_ERROR:
            # Clients offer a revision to find out whether we speak it.
            level = logging.INFO if code == UNSUPPORTED_PROTOCOL_VERSION else logging.WARNING
            shown = "none" if id is None else id[:MAX_LOGGED_LENGTH].decode(errors="replace")
            log.log(level, REFUSED_FORMAT, self.whose, what[:MAX_LOGGED_LENGTH], shown, code, message)
        self._link.send(messages.error_response(id, code, message, data))

    @property
    def whose(self) -> str:
        """This client in the log."""
        from mcp_workbench.engine.session.client_name import whose

        return whose(self.client_info, self.view.principal, self.peer)

    def _notify_list_changed(self, kind: str) -> bool:
        # A list that the client never fetched cannot be out of date.
        has_seen_it = self.revision is not None and kind in self.listed
        if has_seen_it:
            self.notify(f"notifications/{kind}/list_changed")
        return any([has_seen_it, *(stream.on_list_changed(kind) for stream in list(self.streams.values()))])

    def on_updated(self, params: Raw) -> None:
        """Notify the client of a changed resource of a legacy subscription (`Subscriber`)."""
        self.notify("notifications/resources/updated", messages.encode(without_subscription(params)))

    def on_subscription_lost(self) -> None:
        """Legacy clients learn only that the lists have changed (`Subscriber`)."""

    def renew_subscriptions(self) -> None:
        """Subscribe again where a new configuration has replaced the servers of subscriptions."""
        if self.subscriptions:
            self.router.subscriptions.renew(self, self.subscriptions)
        for stream in list(self.streams.values()):
            if stream.tasks and self.router.tasks.has_lost(stream.tasks):
                # A task ends with its server.
                stream.on_subscription_lost()
            elif stream.subscriptions:
                self.router.subscriptions.renew(stream, stream.subscriptions)

    def end_refused_subscriptions(self) -> None:
        principal, router = self.view.principal, self.router
        if self.subscriptions:
            router.subscriptions.end_refused(principal, self, self.subscriptions)
        for stream in self.streams.values():
            if stream.subscriptions:
                router.subscriptions.end_refused(principal, stream, stream.subscriptions)
            if stream.tasks:
                router.tasks.end_refused(stream.tasks)

    # ── messages from servers outside of any call (`ClientPeer`) ──

    def ask(self, traffic: Traffic, id: bytes, method: str, params: Raw | None, about: bytes | None) -> bool:
        """Pass a server's request on, within the legacy era. Returns False if this client cannot be asked."""
        # A modern client can only be asked in the result of its own request.
        if self.revision is None or not may_be_asked(decode_object(self.caller.capabilities), method, params):
            return False
        self.questions.relay(traffic, id, method, params, about, self.attribution(traffic.label).question)
        return True

    def attribution_in_results(self, entry: ServerEntry) -> Attribution:
        """For the questions of a modern server, which are refused here if it may not ask."""
        return self.attribution(entry.label, may_ask=withheld(entry.config) is not EVERYTHING)

    def attribution(self, label: str, *, may_ask: bool = True) -> Attribution:
        # Imported with the first question, to keep it out of start-up.
        from mcp_workbench.engine.session.attribution import Attribution, noted_by

        note = noted_by(self.view.gate.recorder, self, label)
        is_plain, is_alone = self.view.face.settings.plain, self.router.has_one_server(self.view)
        if is_plain:
            # The user has written no toolbox.
            label = label.partition("/")[2]
        is_named = not (is_plain and is_alone)
        return Attribution(label, is_alone=is_alone, is_named=is_named, may_ask=may_ask, note=note)

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """Pass on a question that belongs to no call in flight."""
        return self.ask(traffic, id, method, params, None)

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        self.questions.cancelled_by_server(traffic, id, params, None)

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """Pass on a notification that belongs to no call. Modern clients get only those that they asked for."""
        is_log = method == "notifications/message"
        if self.revision is None or (is_log and self.log_level is not None and not is_severe(params, self.log_level)):
            return
        if method.startswith("notifications/tasks") and params is not None:
            params = Raw(self.router.tasks.shown_outside(self.view, traffic, bytes(params), self.revision))
        self.notify(method, params)


def _why_too_large(method: str, params: LargeObject) -> str | None:
    # Not on the start-up path.
    return why_too_large(method, params)


# How large the parts of a request may be that are decoded here: names, URIs, and what only a workbench reads.
# To decode megabytes takes the time of everybody. Payloads that are passed on, such as a tool's arguments, are not
# decoded and only limited by `maxMessageBytes`.
# Smaller requests are not looked at.
assert LARGE_REQUEST <= MAX_NAME_BYTES
_PARAM_LIMITS: Final = {
    **dict.fromkeys(("name", "uri", "taskId", "cursor", "level", "ref"), MAX_NAME_BYTES),
    **dict.fromkeys(("notifications", "clientInfo", "protocolVersion"), MAX_OWN_BYTES),
    **dict.fromkeys(("_meta", "capabilities", "requestState"), MAX_META_BYTES),
}


def why_too_large(method: str, params: LargeObject) -> str | None:
    """Why a large request is refused, or None."""
    if len(method) > MAX_NAME_BYTES:
        return _text("method", len(method), MAX_NAME_BYTES)
    for name in params.keys() & _PARAM_LIMITS.keys():
        size = params.size_of(name)
        if size > _PARAM_LIMITS[name]:
            return _text(name, size, _PARAM_LIMITS[name])
    return None


def _text(name: str, size: int, limit: int) -> str:
    return f"`{name}` has {size} bytes, more than the {limit} that are allowed"
