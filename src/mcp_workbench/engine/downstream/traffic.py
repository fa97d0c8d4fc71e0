"""The messages on one link to a server: requests in progress, questions of the server, noise.

Lives exactly as long as its link; a restarted server gets a new one. Owns ids, deadlines and which client is asked.
Knows nothing about when servers start and stop, or about clients beyond `Caller`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import UNSET, Raw

from mcp_workbench.engine.downstream.clients import ConnectionClients, ForwardedCall, ForwardedExchange
from mcp_workbench.engine.downstream.quoted_output import Noise
from mcp_workbench.engine.downstream.server_questions import ServerQuestions
from mcp_workbench.engine.downstream.sharing import EVERYTHING, SHARED
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.framing import Oversized
from mcp_workbench.engine.jsonrpc.messages import Body, Envelope, LargeBody, Malformed, Part
from mcp_workbench.engine.jsonrpc.pending import (
    AwaitedExchange,
    DeadlineTimer,
    Exchange,
    PendingRequests,
    new_id,
    within,
)
from mcp_workbench.engine.protocol.constants import PROGRESS_TOKEN, TOOLS_CALL
from mcp_workbench.engine.protocol.handshake import NO_MEMBERS, ServerProfile
from mcp_workbench.engine.protocol.meta import NO_CAPABILITIES, ClientIdentity, meta_for_server, without_capabilities
from mcp_workbench.engine.protocol.results import modern_head
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.engine.transport.link import CallLink, Link
from mcp_workbench.engine.transport.write_batch import JOIN_BELOW
from mcp_workbench.errors import DownstreamError, DownstreamTimeout

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.fair_requests import FairRequests, WaitingRequest

log = logging.getLogger(__name__)

# With progress, a call may take up to this many times its timeout: the specification requires a limit that progress
# cannot extend.
PROGRESS_STRETCH: Final = 10
BACKGROUND_TIMEOUT: Final = 30.0
# A server that sends one of these back is a program like `cat`.
ONLY_CLIENTS_SEND: Final = ("server/discover", "initialize")
# Of the extension of tasks.
TASK_CHANGED: Final = "notifications/tasks"
# The notifications about changed lists, with the kind of list.
LIST_CHANGED: Final = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "prompts", "resources")}


class Traffic:
    """The messages of one link, in both directions."""

    def __init__(
        self,
        label: str,
        identity: ClientIdentity,
        owner: TrafficOwner,
        *,
        withheld: frozenset[str] = frozenset(),
        is_everyones: bool = False,
        clients: ConnectionClients | None = None,
    ) -> None:
        """`clients`: those that use this connection and may be asked outside of their calls."""
        self.label = label
        self.identity = identity
        self.pending = PendingRequests()
        self.noise = Noise(label)
        self.bytes_received = 0
        self.bytes_sent = 0
        # Why the link has ended, for later callers.
        self.ended: DownstreamError | None = None
        self.last_used = 0.0
        self.clients = clients or ConnectionClients()
        self.profile: ServerProfile | None = None
        # Capabilities that are never declared to the server, and that no client is asked for.
        self.withheld = withheld
        # Whether several users share it.
        self.is_everyones = is_everyones
        # The parts of its profile that calls need: the agreed revision, the server's identity, and whether it may ask
        # clients to repeat a request with more data.
        self.revision: Revision | None = None
        self.server_info: Raw | None = None
        # What ordinary results of a legacy server begin with for modern clients; empty if it has not introduced itself.
        self.result_head = b""
        self.takes_retries = False
        self._link: Link | None = None
        self._call_link: CallLink | None = None
        self._owner = owner
        self.loop = asyncio.get_running_loop()
        # Equal to `pending` if several clients share the connection.
        self._fair: FairRequests | None = None
        self.deadlines = DeadlineTimer(self.loop, self._check_deadlines)
        self.questions = ServerQuestions(self)

    @property
    def call_count(self) -> int:
        """The number of client requests in progress, including those that wait here for their turn."""
        return self.pending.waiting_count + sum(isinstance(each, ForwardedExchange) for each in self.pending.values())

    def calls(self) -> list[ForwardedCall]:
        """The client requests in progress, including those that wait here for their turn."""
        exchanges = [*self.pending.values(), *(() if self._fair is None else self._fair.waiting())]
        return [each.call for each in exchanges if isinstance(each, ForwardedExchange)]

    def on_handshake(self, profile: ServerProfile) -> None:
        """Store the server's profile."""
        self.profile, self.revision = profile, profile.revision
        self.server_info = None if profile.server_info == NO_MEMBERS else profile.server_info
        self.takes_retries = profile.revision.asks_in_results
        if self.server_info is not None and profile.revision.has_handshake:
            self.result_head = modern_head(self.server_info)

    def share_fairly(self) -> None:
        """Share the server fairly between several clients. Called before any request is sent."""
        from mcp_workbench.engine.downstream.fair_requests import FairRequests

        self.pending = self._fair = FairRequests(self._send_waiting)

    def attach(self, link: Link) -> None:
        self._link = link
        self._call_link = link if isinstance(link, CallLink) else None

    def take_calls(self) -> list[ForwardedExchange]:
        """Remove and return the client requests that are still in progress."""
        # Unsent requests first: removing others would make room for them to be sent.
        unsent = [] if self._fair is None else self._fair.take_waiting()
        found = [exchange for exchange in self.pending.values() if isinstance(exchange, ForwardedExchange)]
        for exchange in found:
            self.pending.remove(exchange)
        return found + unsent

    def end(self, error: DownstreamError) -> None:
        """The link has closed or is about to be closed: fail everything in progress."""
        # Detach first: what callers send in reaction to the failures must not reach this link.
        self._link = self._call_link = None
        self.ended = self.ended or error
        self.questions.end()
        for exchange in self.pending.drain():
            exchange.on_failure(error)
        self.deadlines.stop()

    # ── requests to the server ──

    def forward(
        self,
        call: ForwardedCall,
        method: bytes,
        item: str,
        body: Body,
        meta: Raw | None,
        client: Revision,
        timeout: float,
    ) -> int:
        """Forward a client's request. Returns its id on the wire; 0 if there is no link.

        `method` is encoded as JSON; `body` is the params object without its closing brace and without `_meta`; `item`
        is the tool of a call. `client` is the client's revision.
        """
        link = self._link
        if link is None:
            call.on_failure(DownstreamError("the server stopped before the request could be sent"))
            return 0
        agreed = self.revision
        assert agreed is not None
        self.last_used = now = self.loop.time()
        id = new_id()
        # Created with all members, which is faster than setting four of them afterwards.
        exchange = ForwardedExchange(
            call, wire_id=id, timeout=timeout, deadline=now + timeout, latest=now + timeout * PROGRESS_STRETCH
        )
        # A revision without a handshake requires its stamp in every request; with one, `_meta` is only the client's.
        if meta is not None or not agreed.has_handshake:
            # The capabilities of this client, because a connection without a handshake serves all kinds of clients.
            capabilities = call.caller.capabilities
            if self.withheld is EVERYTHING:
                capabilities = NO_CAPABILITIES
                meta = None if meta is None else without_capabilities(meta)
            token = None if call.progress_token is None else id
            sent_meta = meta_for_server(meta, client, agreed, self.identity.info, capabilities, token, call.log_level)
        else:
            sent_meta = None
        call_link = self._call_link
        large: tuple[Part, ...] = ()
        if type(body) is LargeBody or len(body) > JOIN_BELOW:
            # A descriptor is given parts, and copies none of them. HTTP needs a request in one piece.
            large = _parts(id, method, body, sent_meta)
            message = b""
            if call_link is not None:
                message, large = b"".join(large), ()
        elif sent_meta is None:
            message = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}}' % (id, method, body)
        else:
            key = b'"_meta":' if body.endswith(b"{") else b',"_meta":'
            # In one operation, because each step would copy the body, which may be large.
            message = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b%b%b}}' % (id, method, body, key, sent_meta)
        fair = self._fair
        # Clients without a session are not limited: each of their requests counts as a separate client.
        if fair is not None and call.caller.client > SHARED and not fair.admits(exchange):
            fair.hold_back(exchange, large or (message,), method, item)
            self.deadlines.start()
            return id
        self.pending.by_id[id] = exchange
        if large:
            self.bytes_sent += sum(map(len, large))
            link.send(*large)
        else:
            self.bytes_sent += len(message)
            if call_link is None or method != TOOLS_CALL:
                link.send(message)
            else:
                call_link.send_call(message, id, item, None if agreed.has_handshake else agreed.name)
        if not self.deadlines.is_running:
            self.deadlines.start()
        if self.questions.held:
            self.questions.on_call(exchange)
        return id

    def _send_waiting(self, request: WaitingRequest) -> None:
        """Send a request that was waiting for its turn."""
        if self._link is None or self.revision is None:
            return
        self.last_used = self.loop.time()
        self.pending.by_id[request.exchange.wire_id] = request.exchange
        self.bytes_sent += request.size
        if self._call_link is None or request.method != TOOLS_CALL:
            self._link.send(*request.parts)
        else:
            version = None if self.revision.has_handshake else self.revision.name
            (message,) = request.parts
            self._call_link.send_call(bytes(message), request.exchange.wire_id, request.item, version)
        if self.questions.held:
            self.questions.on_call(request.exchange)

    async def ask(self, method: str, params: bytes, id: int | None = None) -> Raw:
        """Send our own request, with this id if the caller needs one. The caller limits the time."""
        if self._link is None:
            raise self.ended or DownstreamError("the server is not running")
        exchange = AwaitedExchange()
        id = self.pending.add(exchange, self.loop.time(), float("inf"), float("inf"), id)
        self.send(messages.request(id, method, params))
        try:
            return await exchange.future
        finally:
            # Also if the waiter was cancelled, so that the server can stop working on it.
            # The specification forbids cancelling `initialize`.
            if self.pending.remove(exchange) and method != "initialize":
                self._send_cancel(id, "no longer needed")

    async def ask_within(self, seconds: float, method: str, params: bytes) -> Raw:
        """Like `ask`, with a time limit. Raises `DownstreamTimeout`."""
        try:
            async with within(seconds):
                return await self.ask(method, params)
        except TimeoutError:
            raise _too_late(seconds) from None

    def ask_in_background(self, method: str, params: bytes) -> None:
        """Send our own request and ignore the response."""
        if self._link is not None:
            id = self.pending.add(Exchange(), self.loop.time(), BACKGROUND_TIMEOUT, BACKGROUND_TIMEOUT)
            self.send(messages.request(id, method, params))
            self.deadlines.start()

    async def ask_as_era(
        self,
        method: str,
        members: bytes = b"",
        capabilities: bytes | None = None,
        id: int | None = None,
        meta: bytes | None = None,
    ) -> Raw:
        """Send our own request, stamped as the server's era requires. `members` are added to its params. It declares
        the capabilities of the connection's first client, or those given. `meta`: a stamped `_meta` of a client."""
        assert self.profile is not None
        revision = self.profile.revision
        if meta is not None:
            return await self.ask(method, b'{"_meta":' + meta + (b"," + members if members else b"") + b"}", id)
        if revision.has_handshake:
            return await self.ask(method, b"{" + members + b"}", id)
        declared = self.identity.capabilities if capabilities is None else capabilities
        stamp = b'"_meta":' + revision.stamp(self.identity.info, declared) + b"}"
        return await self.ask(method, b"{" + stamp + (b"," + members if members else b"") + b"}", id)

    def notify(self, method: str, params: bytes | None = None) -> None:
        self.send(messages.notification(method, params))

    def cancel(self, id: int, params: dict[str, Raw]) -> None:
        """The client cancelled a request: notify the server, and drop the response."""
        if self._fair is not None and self._fair.withdraw(id):
            return
        exchange = self.pending.find(id)
        if exchange is not None and self.pending.remove(exchange):
            self.questions.cancelled_calls.add(exchange, self.loop.time())
            self.notify("notifications/cancelled", messages.encode({**params, "requestId": exchange.wire_id}))

    def answer(self, id: bytes, payload: bytes) -> None:
        """Send a client's answer to a question of the server. `payload` is `"result":…` or `"error":…`."""
        if self.questions.take(id):
            self.send(b'{"jsonrpc":"2.0","id":%b,%b}' % (id, payload))

    def send(self, message: bytes) -> None:
        """Send a message to the server, if it is still there."""
        if self._link is not None:
            self.bytes_sent += len(message)
            self._link.send(message)

    def _send_cancel(self, id: int, reason: str) -> None:
        self.notify("notifications/cancelled", b'{"requestId":%d,"reason":%b}' % (id, messages.encode(reason)))

    def _check_deadlines(self, looked_at: float, stopped: float) -> bool:
        if stopped:
            # The process was stopped, or the machine was asleep: that time does not count.
            self.pending.postpone(stopped)
        if self._fair is not None:
            self._fair.fail_late(looked_at)
        expired = self.pending.expired(looked_at)
        self.pending.remind(self.loop.time())
        for exchange in expired:
            try:
                self.questions.cancelled_calls.add(exchange, self.loop.time())
                self._send_cancel(exchange.wire_id, "timeout")
                exchange.on_failure(_too_late(exchange.timeout))
            except Exception:
                # A bug of ours. The other requests must end nevertheless.
                log.exception("[%s] a request could not be ended; please report this", self.label)
        return len(self.pending) > 0

    # ── messages from the server ──

    def on_related_message(self, line: bytes, about: bytes) -> None:
        """Handle a message on the stream of one of our requests."""
        self.on_message(line, about)

    def on_message(self, line: bytes, about: bytes | None = None) -> None:
        """Handle a line from the server; `about` is the id of the request on whose stream it arrived."""
        try:
            message = messages.read(line)
        except Malformed as error:
            self._on_malformed(line, error)
            return
        if message.method is UNSET:
            self.on_answer(line, message)
        else:
            self.on_read_message(line, message, about)

    def on_read_message(self, line: bytes, message: Envelope | Malformed, about: bytes | None = None) -> None:
        """Handle a decoded message; large ones are decoded in a thread (`ReadReceiver`)."""
        if isinstance(message, Malformed):
            self._on_malformed(line, message)
        elif message.method is UNSET:
            self.on_answer(line, message)
        else:
            self.bytes_received += len(line)
            params = None if message.params is UNSET else message.params
            if message.id is UNSET:
                self._on_notification(message.method, params, about)
            else:
                self._on_request(bytes(message.id), message.method, params, about)

    def on_oversized(self, remains: Oversized) -> None:
        """A line was longer than the limit."""
        self.bytes_received += remains.size
        id = messages.find_id(remains.head, remains.tail)
        is_answer = id is not None and messages.looks_like_answer(remains.head)
        exchange = self.pending.take(id) if is_answer and id is not None else None
        log.warning("[%s] dropped a message of %d bytes", self.label, remains.size)
        if exchange is not None:
            exchange.on_failure(
                DownstreamError(
                    f"the server's answer has {remains.size} bytes, more than the limit",
                    hint="raise `maxMessageBytes` in the configuration, or ask for less",
                )
            )

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        """One request will get no response; others may."""
        exchange = self.pending.take(id)
        if exchange is not None:
            error.message = self._owner.conceal(error.message)
            self._owner.on_trouble(error)
            exchange.on_failure(error)

    def on_closed(self, reason: str) -> None:
        self._owner.on_link_closed(self, reason)

    def on_answer(self, line: bytes, message: Envelope) -> None:
        """Handle a decoded response."""
        result, error = message.result, message.error
        if message.id is UNSET or (result is UNSET and error is UNSET):
            # Servers also print JSON that is no message, and its `id` is not ours.
            id = None if message.id is UNSET or b'"jsonrpc"' not in line else bytes(message.id)
            self._on_malformed(line, Malformed("not a JSON-RPC message", id), is_answer=True)
            return
        self.bytes_received += len(line)
        exchange = self.pending.take(message.id)
        if exchange is None:
            self.questions.cancelled_calls.answered(message.id)
            return
        # Nearly all responses are for calls, which are notified directly.
        waiter = exchange.call if isinstance(exchange, ForwardedExchange) else exchange
        try:
            if error is not UNSET:
                waiter.on_error(error)
            elif result is not UNSET:
                waiter.on_result(result)
        except Exception as defect:
            # A bug of ours. The request must end nevertheless.
            log.exception("[%s] an answer could not be passed on; please report this", self.label)
            exchange.on_failure(DownstreamError(f"the answer could not be passed on: {defect}"))

    def _on_malformed(self, line: bytes, error: Malformed, *, is_answer: bool = False) -> None:
        self.bytes_received += len(line)
        exchange = None
        if error.id is not None and (is_answer or messages.looks_like_answer(line)):
            exchange = self.pending.take(error.id)
        if exchange is not None:
            exchange.on_failure(DownstreamError(f"the server's answer cannot be read: {error}"))
        elif line.strip():
            self.noise.add(line, error, self._owner.conceal)

    def _on_notification(self, method: str, params: Raw | None, about: bytes | None) -> None:
        if method == "notifications/progress" and params is not None:
            self._on_progress(params)
        elif method == "notifications/cancelled" and params is not None:
            self._on_cancelled(params)
        elif method in LIST_CHANGED:
            self._owner.on_list_changed(LIST_CHANGED[method])
        elif method == "notifications/resources/updated" and params is not None:
            self._owner.on_resource_updated(params)
        elif method == "notifications/subscriptions/acknowledged":
            self._owner.on_acknowledged(params)
        elif method == TASK_CHANGED and params is not None and self._owner.on_task_changed(params):
            # On the streams of the clients that asked for it.
            return
        else:
            correspondent = self.questions.addressee(self.call_about(about))
            if correspondent is not None:
                correspondent.relay_notification(self, method, params)

    def _on_progress(self, params: Raw) -> None:
        try:
            token = messages.decode_object(params)[PROGRESS_TOKEN]
            exchange = self.pending.find(int(bytes(token)))
        except (ValueError, KeyError):
            return
        if exchange is None:
            return
        # While a question is open, the deadline is suspended, further out than progress could move it.
        if not self.questions.holds_up(exchange):
            self.pending.extend(exchange, self.loop.time())
        exchange.on_progress(params)

    def _on_cancelled(self, params: Raw) -> None:
        try:
            id = bytes(messages.decode_object(params)["requestId"])
        except (ValueError, KeyError):
            return
        self.questions.on_cancelled(id, params)

    def _on_request(self, id: bytes, method: str, params: Raw | None, about: bytes | None) -> None:
        if self._link is None:
            return
        if self.profile is None and method in ONLY_CLIENTS_SEND:
            self._on_echo()
        elif method == "ping":
            self.send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id)
        else:
            self.questions.on_request(id, method, params, self.call_about(about))

    def on_asked(self) -> None:
        self._owner.on_asked()

    def _on_echo(self) -> None:
        """Stop here: answering its messages would go on for ever and end in a meaningless error."""
        error = DownstreamError(
            "the server echoes its input: it is not an MCP server",
            hint="check `command` and `args`: is this the program that speaks MCP?",
        )
        for exchange in self.pending.drain():
            exchange.on_failure(error)

    def calls_youngest_first(self) -> Iterator[ForwardedExchange]:
        """The client requests in progress."""
        return (each for each in reversed(self.pending.values()) if isinstance(each, ForwardedExchange))

    def call_about(self, about: bytes | None) -> ForwardedExchange | None:
        """The client request with this id, if it is still in progress."""
        exchange = None if about is None else self.pending.find(int(about))
        return exchange if isinstance(exchange, ForwardedExchange) else None


def _too_late(seconds: float) -> DownstreamTimeout:
    return DownstreamTimeout(
        f"the server did not answer within {seconds:g} s; the call was cancelled",
        hint="raise `timeout` of this server if it needs longer",
    )


def _parts(id: int, method: bytes, body: Body, meta: bytes | None) -> tuple[Part, ...]:
    """A request with a large body, which is not copied."""
    head = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":' % (id, method)
    parts = body.parts if type(body) is LargeBody else (body,)
    return head, *parts, b"}}" if meta is None else b',"_meta":%b}}' % meta


# ── what concerns the connection as a whole ──


class TrafficOwner(Protocol):
    """The owner of a traffic."""

    def conceal(self, text: str) -> str:
        """Redact what a server says: it may repeat the keys it was given."""

    def on_link_closed(self, traffic: Traffic, reason: str) -> None: ...

    def on_trouble(self, error: DownstreamError) -> None:
        """A request got no response, although the link is still open."""

    def on_list_changed(self, kind: str) -> None:
        """The server announced that its tools, prompts or resources have changed."""

    def on_resource_updated(self, params: Raw) -> None:
        """A resource with subscribers has changed."""

    def on_acknowledged(self, params: Raw | None) -> None:
        """The server has accepted a subscription."""

    def on_task_changed(self, params: Raw) -> bool:
        """A task has changed. Returns whether subscribers have been notified."""

    def on_asked(self) -> None:
        """The server has asked something, and only our own records tell whose question it is."""
