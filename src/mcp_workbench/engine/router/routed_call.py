"""A client's request as the router sees it (`RoutedCall`), and its destination (`Route`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.downstream.clients import ForwardedCall
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.jsonrpc.pending import REMIND_INTERVAL
from mcp_workbench.engine.protocol.revisions import Revision
from mcp_workbench.errors import shortage

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic
    from mcp_workbench.engine.steps import AnyPassage, CountedSession, Denial, RoundEvent, Tracker, UserAsker


log = logging.getLogger(__name__)


class Requester(Protocol):
    """The sender of a request or notification."""

    caller: Caller


class Notifier(Requester, Protocol):
    """A client that notifies servers."""

    # Its `clientInfo` as JSON, and its address.
    client_info: bytes
    peer: str
    view: View


class Route(Struct, eq=False):
    """The destination of a request, as far as it is known. Only the router writes it."""

    # Determines the connection: the client's own, or one made for this call if it must not share its connection.
    caller: Caller
    # What authentication proved about the requester; if nothing, what the steps knew when it had to wait.
    identity: object = None
    # The header `traceparent` that it came with over HTTP, where calls are traced.
    trace_parent: str = ""
    entry: ServerEntry | None = None
    decision: Forward | None = None
    # The client's name for the item, before there is a decision.
    item: str = ""
    traffic: Traffic | None = None
    # The id of the request to the server. Not the exchange itself, which would be a reference cycle.
    wire_id: int = 0
    # The task that it waits for before it is sent or answered.
    task: asyncio.Task[None] | None = None
    # With steps: its passage through them; if it has to wait before them, also when it arrived.
    passage: AnyPassage | None = None
    arrived: float | None = None
    # Counts it, if nothing else is done about it: then it needs no passage (`passage_of`).
    tracker: Tracker | None = None
    # Whether it has been counted as a request that reaches no server.
    is_counted: bool = False
    # The id of the program that makes this call.
    program: str = ""
    # It is run as a task for its client, and never sent again.
    is_task: bool = False
    # What else to do when it is cancelled.
    on_cancelled: Callable[[], None] | None = None

    @property
    def own_item(self) -> str:
        """The server's name for the tool, prompt or resource."""
        return "" if self.decision is None else self.decision.item


class RoutedCall(ForwardedCall, Requester, Protocol):
    """What the router needs of a client's request. The router reads it, and writes only its `route`, and `meta` if the
    server is told of a trace."""

    meta: Raw | None

    @property
    def id(self) -> bytes:
        """As the client wrote it."""

    @property
    def method(self) -> str: ...

    @property
    def view(self) -> View: ...

    @property
    def revision(self) -> Revision:
        """The revision that the client speaks."""

    @property
    def is_retry(self) -> bool:
        """Whether it has a `requestState` that is not ours but was issued by a modern server."""

    @property
    def params(self) -> dict[str, Raw]:
        """As the client sent them, without `_meta`."""

    @property
    def session(self) -> CountedSession:
        """The client that sent it."""

    @property
    def client_info(self) -> bytes:
        """The `clientInfo` of this request, or of the handshake, as JSON."""

    @property
    def introduction(self) -> tuple[bytes, str]:
        """The `clientInfo` as JSON, and the address of the client."""

    @property
    def route(self) -> Route: ...

    def inner(self, params: dict[str, Raw]) -> InnerCall:
        """A call of its own that is made for this one. It answers nobody; its end is `InnerCall.ended`."""

    def report(self, done: int, total: int, message: str = "") -> None:
        """Notify the client how many of the calls made for this one have ended, if it wants to know."""

    @property
    def is_inner(self) -> bool:
        """Whether it is made for another one."""

    async def answer_inputs(self, result: Raw) -> dict[str, Raw]:
        """Ask the client what its server needs to know to go on. Raises `DownstreamError`."""

    def finish_result(self, result: bytes) -> None: ...

    def pass_on(self, result: Raw, *, is_whole: bool = True) -> None:
        """Answer with the server's own result."""

    def finish_error(self, code: int, message: str, data: object = None) -> None: ...

    def refuse(self, denial: Denial) -> None:
        """Answer a call that a step has denied."""

    def user(self) -> UserAsker:
        """Access for steps to the user of this call."""

    def route_again(self) -> None:
        """Decide again where it goes: nothing was sent, and the configuration has changed while it waited."""

    def keep_waiting(self) -> None:
        """Called when it is still in flight and the server has sent nothing about it for a while."""


class InnerCall(RoutedCall, Protocol):
    """A call made for another one: it passes everything that a client's own call does."""

    # The result or the error, as JSON. Set on the event loop.
    ended: asyncio.Future[tuple[Literal["result", "error"], bytes]]
    # Its server lost its state since the client used it last.
    restarted: ServerEntry | None
    # Called when its user begins to be asked something, and when all of that has an answer.
    on_asked: Callable[[bool], None] | None

    @property
    def was_sent(self) -> bool:
        """Whether its server may have accepted it."""

    def cancel(self, params: dict[str, Raw]) -> None: ...


def passage_of(call: RoutedCall) -> AnyPassage | None:
    """The passage of a call. That of a call which is only counted is made here, once more is to be told of it than that
    it ended with a result."""
    route = call.route
    tracker, decision = route.tracker, route.decision
    if route.passage is None and tracker is not None and decision is not None and route.arrived is not None:
        from mcp_workbench.engine.steps import CountedPassage

        route.passage = passage = CountedPassage(
            tracker,
            decision.entry,
            call.method,
            decision.item,
            decision.body,
            call.caller,
            call.client_info,
            call.session.peer,
            call.meta,
            route.arrived,
        )
        tracker.note_running(passage)
    return route.passage


def note_round(call: RoutedCall, event: RoundEvent) -> None:
    """Tell whoever follows this call that its client is asked something for its server, or has answered."""
    passage = passage_of(call)
    if passage is not None and passage.tracker is not None:
        passage.tracker.note_round(passage, event)


def why_unhandled(error: Exception) -> str:
    """Log a shortage or a defect of ours, and return the error message for the client, whose request must still end."""
    what = shortage(error)
    if what is not None:
        log.warning("a request could not be handled: %s", what)
        return f"the workbench could not handle this request: {what}"
    # The text of the error may contain data of others, so it only goes to the log.
    log.error("a request could not be handled; please report this", exc_info=error)
    return "the workbench could not handle this request; its log says why"


def remind(task: asyncio.Task[None], call: RoutedCall) -> None:
    """Keep the client waiting while its call waits for the task."""
    handle: list[asyncio.TimerHandle] = []

    def look() -> None:
        # A call may be answered before its task is done.
        if not task.done() and call.route.task is task:
            call.keep_waiting()
            handle[:] = [task.get_loop().call_later(REMIND_INTERVAL, look)]

    handle[:] = [task.get_loop().call_later(REMIND_INTERVAL, look)]
    # A timer refers to the call and everything it holds.
    task.add_done_callback(lambda _: handle[0].cancel())


StartFor = Callable[[RoutedCall, Coroutine[Any, Any, None]], None]
