"""A client's request as the router sees it (`RoutedCall`), and where that goes (`Route`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.clients import ForwardedCall
from mcp_workbench.downstream.sharing import Caller
from mcp_workbench.errors import shortage
from mcp_workbench.face.decisions import Forward
from mcp_workbench.face.view import View
from mcp_workbench.jsonrpc.pending import REMIND_INTERVAL
from mcp_workbench.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.downstream.traffic import Traffic
    from mcp_workbench.steps import Denial, Passage, UncheckedPassage, UserAsker


log = logging.getLogger(__name__)


class Requester(Protocol):
    """Whose request or notification it is."""

    caller: Caller


class Notifier(Requester, Protocol):
    """A client that notifies servers."""

    # How it introduced itself, as JSON, and where it is.
    client_info: bytes
    peer: str
    view: View


class Route(Struct, eq=False):
    """Where a request goes, as far as it got. Written by the router alone."""

    # What decides about the connection: the client's, or a call's own where nobody else's may be under way with it.
    caller: Caller
    entry: ServerEntry | None = None
    decision: Forward | None = None
    # What the client called it, before there is a decision.
    item: str = ""
    traffic: Traffic | None = None
    # The id that it has there. Not the exchange itself: that leads back here, and would be left to the collector.
    wire_id: int = 0
    # What it waits for before it is sent, or before it is answered.
    task: asyncio.Task[None] | None = None
    # Where there are steps: its way through them; and if it has to wait before it comes to them, when it arrived, and
    # what is known of who makes it.
    passage: Passage | UncheckedPassage | None = None
    arrived: float | None = None
    identity: object = None

    @property
    def own_item(self) -> str:
        """What its server calls the tool, prompt or resource."""
        return "" if self.decision is None else self.decision.item


class RoutedCall(ForwardedCall, Requester, Protocol):
    """A client's request, as far as the router has to know it. Read here, never written, but for its `route`."""

    @property
    def method(self) -> str: ...

    @property
    def view(self) -> View: ...

    @property
    def revision(self) -> Revision:
        """What the client speaks to us."""

    @property
    def is_retry(self) -> bool:
        """Whether it has a `requestState` that is not ours: a modern server has given it out."""

    @property
    def meta(self) -> Raw | None: ...

    @property
    def params(self) -> dict[str, Raw]:
        """As the client sent them, `_meta` aside."""

    @property
    def introduction(self) -> tuple[bytes, str]:
        """How the client introduced itself, as JSON, and where it is."""

    @property
    def route(self) -> Route: ...

    def finish_result(self, result: bytes) -> None: ...

    def pass_on(self, result: Raw) -> None:
        """Answer with the server's own result."""

    def finish_error(self, code: int, message: str, data: object = None) -> None: ...

    def refuse(self, denial: Denial) -> None:
        """A step does not let it reach the server."""

    def user(self) -> UserAsker:
        """Whom a step may ask about it."""

    def keep_waiting(self) -> None:
        """It is still in flight, and the server has sent nothing about it for a while."""


def why_unhandled(error: Exception) -> str:
    """What a client is told of a request that failed by a shortage or a defect of ours, which is logged here: its
    request must end all the same."""
    what = shortage(error)
    if what is not None:
        log.warning("a request could not be handled: %s", what)
        return f"the workbench could not handle this request: {what}"
    # What the error says may quote others' data, so it is for the log alone.
    log.error("a request could not be handled; please report this", exc_info=error)
    return "the workbench could not handle this request; its log says why"


def remind(task: asyncio.Task[None], call: RoutedCall) -> None:
    """While this call waits for the task, have its client wait on."""
    handle: list[asyncio.TimerHandle] = []

    def look() -> None:
        if not task.done():
            call.keep_waiting()
            handle[:] = [task.get_loop().call_later(REMIND_INTERVAL, look)]

    handle[:] = [task.get_loop().call_later(REMIND_INTERVAL, look)]
    # A timer leads to the call and all that it holds.
    task.add_done_callback(lambda _: handle[0].cancel())


StartFor = Callable[[RoutedCall, Coroutine[Any, Any, None]], None]
