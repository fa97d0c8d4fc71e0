"""Questions of a server: which call each belongs to, how long that call may then take, and returning the answer.

Over HTTP, the stream identifies the call. On the single pipe of a stdio server nothing does, so a question is asked
only if all calls in progress belong to one client. Owns the open questions of one link and this rule. Knows nothing
about how a client is asked (`ClientPeer`).
"""

from __future__ import annotations

from asyncio import TimerHandle
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from mcp_workbench.engine.downstream.clients import ClientPeer, ForwardedExchange
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, METHOD_NOT_FOUND, decode_object, error_response
from mcp_workbench.engine.jsonrpc.pending import Exchange

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic

# While a client answers a question, the timeout of the call it belongs to is suspended for up to this time. People need
# minutes for a form, not hours.
QUESTION_TIMEOUT: Final = 900.0
# How many questions of one server may be open at once, to limit memory.
MAX_OPEN_QUESTIONS: Final = 1000
# The maximum number of calls that a question may belong to.
MAX_QUESTION_CANDIDATES: Final = 100
# Many servers ask for roots right after the handshake, moments before the call that they were started for. A client
# that can be asked only during a call is asked with that one, if it arrives within this time.
QUESTION_HOLD_TIMEOUT: Final = 10.0
# Many servers ask this as soon as they start, and clients answer it without their user.
ROOTS_LIST: Final = "roots/list"
IN_CALLS_OF_SEVERAL: Final = (
    "calls of several clients are in flight on this connection, and nothing says which one this question belongs to; "
    "from now on, each client that can answer questions gets its own connection"
)
OF_SEVERAL: Final = (
    "no call is in flight that this question could belong to, and several clients use this connection, or did; ask "
    "during a call"
)
SERVER_GONE: Final = Raw(b'{"reason":"the server is gone"}')
# How long a server that works on nothing else may take to finish cancelled calls, before a connection that another
# client needs is replaced. Most stop at once, but servers do not answer cancelled requests, so we do not know.
CANCELLED_CALL_TIMEOUT: Final = 60.0
# Beyond this, any question counts as one of another client.
MAX_CANCELLED_CALLS: Final = 1000


class CancelledCalls:
    """The cancelled calls of one link. They count until the server has answered them or the link has ended.

    Their clients hear no more of them. But the server may not have stopped, and what it asks next on a shared
    connection may belong to such a call: then no other client may be asked.
    """

    __slots__ = ("_are_many", "_calls", "_latest")

    def __init__(self) -> None:
        # By the id sent to the server.
        self._calls: dict[int, ClientPeer] = {}
        self._are_many = False
        self._latest = float("-inf")

    def add(self, exchange: Exchange, now: float) -> None:
        """Record a cancelled call. Our own requests belong to no client and are ignored."""
        if not isinstance(exchange, ForwardedExchange):
            return
        self._latest = now
        if len(self._calls) < MAX_CANCELLED_CALLS:
            self._calls[exchange.wire_id] = exchange.client
        else:
            self._are_many = True

    def answered(self, id: Raw | bytes) -> None:
        """The server has answered a cancelled call after all."""
        if self._calls and bytes(id).isdigit():
            self._calls.pop(int(bytes(id)), None)

    def is_anothers(self, client: ClientPeer | None) -> bool:
        """Whether any of them was a call of another client."""
        return self._are_many or any(whose is not client for whose in self._calls.values())

    def are_old(self, now: float) -> bool:
        """Whether there are any, and the server has had enough time to finish them."""
        return bool(self._calls) and now - self._latest > CANCELLED_CALL_TIMEOUT


class _Question:
    """A question that has been forwarded to a client."""

    __slots__ = ("asked_at", "exchanges", "peer")

    def __init__(self, peer: ClientPeer, exchanges: list[ForwardedExchange], asked_at: float) -> None:
        self.peer = peer
        # The calls it may belong to.
        self.exchanges = exchanges
        self.asked_at = asked_at


class _Held:
    """A question that no client can be asked yet."""

    __slots__ = ("method", "params", "timer")

    def __init__(self, method: str, params: Raw | None, timer: TimerHandle) -> None:
        self.method = method
        self.params = params
        self.timer = timer


class ServerQuestions:
    def __init__(self, traffic: Traffic) -> None:
        self.held_seconds = QUESTION_HOLD_TIMEOUT
        self._traffic = traffic
        self._open: dict[bytes, _Question] = {}
        self.cancelled_calls = CancelledCalls()
        # Questions that no client can be asked yet.
        self.held: dict[bytes, _Held] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self.held)

    def on_request(self, id: bytes, method: str, params: Raw | None, related: ForwardedExchange | None = None) -> None:
        """Handle a question. `related` is the call on whose stream it arrived, if any."""
        if len(self) >= MAX_OPEN_QUESTIONS:
            self._traffic.send(
                error_response(id, INTERNAL_ERROR, f"{MAX_OPEN_QUESTIONS} requests already wait for an answer")
            )
            return
        if method.partition("/")[0] in self._traffic.withheld:
            self._traffic.send(_refusal(id, method))
            return
        if related is None and method != ROOTS_LIST:
            self._traffic.on_asked()
        candidates = self._candidates(method, related)
        if isinstance(candidates, str):
            self._traffic.send(error_response(id, INTERNAL_ERROR, candidates))
        elif self._ask(id, method, params, candidates):
            return
        elif self._may_be_asked_later(method):
            timer = self._traffic.loop.call_later(self.held_seconds, self._refuse_held, id)
            self.held[id] = _Held(method, None if params is None else Raw(bytes(params)), timer)
        else:
            self._traffic.send(_refusal(id, method))

    def on_call(self, exchange: ForwardedExchange) -> None:
        """A call was sent: questions that were held for one may belong to it."""
        for id, held in list(self.held.items()):
            if not exchange.call.can_be_asked(held.method):
                continue
            self.held.pop(id).timer.cancel()
            if held.method != ROOTS_LIST and not self._is_alone(exchange.client):
                self._traffic.send(error_response(id, INTERNAL_ERROR, OF_SEVERAL))
            elif not self._ask(id, held.method, held.params, [exchange]):
                self._traffic.send(_refusal(id, held.method))

    def take(self, id: bytes) -> bool:
        """Close a question that was answered or cancelled by the server. False if it was closed before."""
        question = self._open.pop(id, None)
        if question is not None:
            self._restart_clocks(question)
        return question is not None

    def on_cancelled(self, id: bytes, params: Raw) -> None:
        held = self.held.pop(id, None)
        if held is not None:
            held.timer.cancel()
        question = self._open.get(id)
        if question is not None and self.take(id):
            question.peer.relay_cancel(self._traffic, id, params)

    def holds_up(self, exchange: object) -> bool:
        """Whether this call is waiting for the answer to a question."""
        return any(exchange in question.exchanges for question in self._open.values())

    def end(self) -> None:
        """Close all questions, because the server is gone."""
        for held in self.held.values():
            held.timer.cancel()
        self.held.clear()
        questions, self._open = self._open, {}
        for id, question in questions.items():
            _note(question, is_open=False)
            question.peer.relay_cancel(self._traffic, id, SERVER_GONE)

    def _ask(self, id: bytes, method: str, params: Raw | None, candidates: list[ForwardedExchange]) -> bool:
        clients = self._traffic.clients
        # Roots reveal nothing of what others did.
        outside = clients.only() if method == ROOTS_LIST else clients.alone()
        correspondent = candidates[0].call if candidates else outside
        if correspondent is None:
            return False
        now = self._traffic.loop.time()
        # Recorded first, because the answer may arrive before this returns.
        question = self._open[id] = _Question(correspondent, candidates, now)
        _note(question, is_open=True)
        if not correspondent.relay_request(self._traffic, id, method, params):
            if self._open.pop(id, None) is not None:
                _note(question, is_open=False)
            return False
        for exchange in candidates if id in self._open else ():
            exchange.deadline = now + QUESTION_TIMEOUT
        return True

    def _candidates(self, method: str, related: ForwardedExchange | None) -> list[ForwardedExchange] | str:
        """The calls of one client that a question may belong to, the most recent first; or why no client is asked.

        Which call of the same client it is does not matter: the same user is asked, the answer is matched by the id of
        the question, and none of these calls times out meanwhile. But if several clients have calls in progress, we
        cannot know whose it is, and never guess.
        """
        if related is not None:
            return [related] if related.call.can_be_asked(method) else []
        calls = list(self._traffic.calls_youngest_first())
        if any(call.client is not calls[0].client for call in calls):
            return IN_CALLS_OF_SEVERAL
        if method != ROOTS_LIST:
            if calls and self._is_anothers(calls[0].client):
                return IN_CALLS_OF_SEVERAL
            clients = self._traffic.clients
            if not calls and (len(clients) > 1 or clients.had_others or self._is_anothers(clients.only())):
                return OF_SEVERAL
        return list(islice((each for each in calls if each.call.can_be_asked(method)), MAX_QUESTION_CANDIDATES))

    def addressee(self, related: ForwardedExchange | None) -> ClientPeer | None:
        """The client for a notification that may belong to a call; None if it could be for more than one."""
        if related is not None:
            return related.call
        traffic = self._traffic
        if traffic.is_everyones:
            return None
        calls = list(traffic.calls_youngest_first())
        client = calls[0].client if calls else traffic.clients.only()
        # It may be about a call that another client cancelled but the server continues.
        if self._is_anothers(client):
            return None
        if not calls:
            return client
        return calls[0].call if all(call.client is client for call in calls) else None

    def _is_anothers(self, client: ClientPeer | None) -> bool:
        """Whether a question may belong to a call that another client has cancelled."""
        return self.cancelled_calls.is_anothers(client)

    def _is_alone(self, client: ClientPeer) -> bool:
        """Whether no other client uses the connection or has a cancelled call on it."""
        return self._traffic.clients.alone() is client and not self._is_anothers(client)

    def _may_be_asked_later(self, method: str) -> bool:
        """Whether only a call is missing to ask the question. If one is in progress, waiting for another would delay
        it.

        Capabilities are named like the methods they allow.
        """
        if next(self._traffic.calls_youngest_first(), None) is not None:
            return False
        return method.partition("/")[0] in decode_object(self._traffic.identity.capabilities)

    def _refuse_held(self, id: bytes) -> None:
        held = self.held.pop(id)
        self._traffic.send(_refusal(id, held.method))

    def _restart_clocks(self, question: _Question) -> None:
        """Resume the timeouts of the calls that a question may have belonged to, unless another question is open."""
        held_up = {exchange for each in self._open.values() for exchange in each.exchanges}
        now = self._traffic.loop.time()
        _note(question, is_open=False)
        for exchange in question.exchanges:
            exchange.latest += now - question.asked_at
            if exchange not in held_up:
                exchange.deadline = now + exchange.timeout


def _note(question: _Question, *, is_open: bool) -> None:
    """Tell the calls that a question may belong to."""
    for exchange in question.exchanges:
        exchange.call.note_question(is_open)


def _refusal(id: bytes, method: str) -> bytes:
    return error_response(id, METHOD_NOT_FOUND, f"the client does not support `{method}`")
