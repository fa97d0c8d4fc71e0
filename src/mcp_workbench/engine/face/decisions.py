"""What a face can decide about a request: values that the router acts on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.jsonrpc.messages import Body


class WithheldItem(Struct, frozen=True):
    """Why a request is not sent to a server, for the audit."""

    entry: ServerEntry
    item: str
    rule: str


class Answer(Struct, frozen=True):
    """Respond with this result, encoded as JSON."""

    result: bytes
    # Set if a server has the item but the client may not use it.
    refusal: WithheldItem | None = None


class Work(Struct, frozen=True):
    """Respond with the result of this function, which is slow and must not run on the event loop."""

    make: Callable[[], bytes]
    # The same for a list of calls or a program, which read whole values and no pages.
    make_whole: Callable[[], bytes] | None = None


class Reject(Struct, frozen=True):
    """Respond with this JSON-RPC error."""

    code: int
    message: str
    data: object = None
    refusal: WithheldItem | None = None


class Forward(Struct, frozen=True, gc=False):
    """Send it to this server. `body` is the params object without `_meta` and without its closing brace."""

    entry: ServerEntry
    # The server's name for the tool, prompt or resource, for errors.
    item: str
    # Encoded as JSON.
    method: bytes
    body: Body
    # Whether a JSON-RPC error of the server becomes a result that an agent can read, instead of being forwarded.
    shows_errors: bool = False
    # The token budget of the result; 0 means no limit.
    result_budget: int = 0
    # The part of the result to answer with.
    select: str = ""
    # How the result is shown to the client, for a server with resources; None: unchanged.
    rewrite: Callable[[Raw], bytes] | None = None


class CallEach(Struct, frozen=True):
    """Make each of these calls as a call of its own, side by side, and respond with all results in order."""

    # The arguments of our tool for each.
    calls: tuple[Raw, ...]
    # The server that each is for; None if it names none.
    servers: tuple[ServerEntry | None, ...]
    select: str
    result_budget: int
    # Our tool that makes them.
    name: bytes = b'"use_tool"'


class RunProgram(Struct, frozen=True):
    """Run this program, and respond with its answer."""

    code: str
    # 0: the default of programs.
    result_budget: int = 0


class HandOver(Struct, frozen=True):
    """Leave the call to whoever waits for the next one of its client, who answers it."""

    # Called with the call.
    take: Callable[[Any], None]


class Open(Struct, frozen=True):
    """List what these servers offer, then respond with it."""

    entries: tuple[ServerEntry, ...]
    request: OpenRequest
    # Whether servers with a known offer are started in the background: opening a toolbox is usually followed by calls,
    # searching all of them is not.
    starts_known: bool = True


class Learn(Struct, frozen=True):
    """Have this server list what it offers, then decide again.

    If `others` may have the item as well, all are listed, and a failure of one does not fail the call."""

    entry: ServerEntry
    others: tuple[ServerEntry, ...] = ()
    # What this server would call the item, for errors.
    item: str = ""
    # The same for the others, unless they would all call it the same.
    other_items: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[str, ...]:
        """What each of the servers would call the item."""
        return self.item, *(self.other_items or (self.item,) * len(self.others))


def learn(candidates: dict[ServerEntry, str]) -> Learn:
    """Have these servers listed, of which each would call the item by a name of its own."""
    (entry, *others), (item, *other_items) = candidates, candidates.values()
    return Learn(entry, tuple(others), item, tuple(other_items))


class Load(Struct, frozen=True):
    """Read the manifests of these servers, and what another instance has left, then decide again."""

    entries: tuple[ServerEntry, ...]
    decide: Callable[[], Decision]
    # Bounded by whoever made it.
    recall: Callable[[], Awaitable[None]] | None = None


def withheld(entry: ServerEntry, tool: str) -> WithheldItem:
    """Why a tool is refused that differs from the lock file."""
    return WithheldItem(entry, tool, "lock")


Decision = Answer | Work | Reject | Forward | CallEach | RunProgram | HandOver | Open | Learn | Load
