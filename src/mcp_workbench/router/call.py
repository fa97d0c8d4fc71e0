"""What the router knows of a client's request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.downstream.sharing import Caller
from mcp_workbench.downstream.traffic import ForwardedExchange, Traffic
from mcp_workbench.face.decisions import Forward
from mcp_workbench.face.view import View
from mcp_workbench.protocol.revisions import Revision

if TYPE_CHECKING:
    from mcp_workbench.steps import Denial, Passage


class Requester(Protocol):
    """Whose request or notification it is."""

    caller: Caller

    @property
    def client_info(self) -> bytes:
        """How the client introduced itself, as JSON."""


class RoutedCall(ForwardedExchange):
    """A client's request, with everything that the router has to know of it."""

    __slots__ = (
        "decision",
        "entry",
        "is_retry",
        "item",
        "meta",
        "method",
        "passage",
        "revision",
        "task",
        "traffic",
        "view",
    )

    method: str
    view: View
    # The revision that its client speaks to us.
    revision: Revision
    # Carries a `requestState` that is not ours: a modern server has given it out.
    is_retry: bool
    meta: Raw | None
    # Where it went, as far as it got.
    entry: ServerEntry | None
    decision: Forward | None
    # What the client called it, before there is a decision.
    item: str
    traffic: Traffic | None
    task: asyncio.Task[None] | None
    # Where there are steps: its way through them.
    passage: Passage | None

    @property
    def client_info(self) -> bytes:
        """How the client introduced itself, as JSON."""
        raise NotImplementedError

    def finish_result(self, result: bytes) -> None:
        """Answer with a result."""
        raise NotImplementedError

    def finish_error(self, code: int, message: str, data: object = None) -> None:
        """Answer with a JSON-RPC error."""
        raise NotImplementedError

    def refuse(self, denial: Denial) -> None:
        """A step does not let it reach the server."""
        raise NotImplementedError


StartFor = Callable[[RoutedCall, Coroutine[Any, Any, None]], None]
