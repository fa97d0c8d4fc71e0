"""What a face decides to do with a request: values, acted upon by the router."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mcp_workbench.catalog.entry import ServerEntry
from mcp_workbench.face.open_request import OpenRequest


class WithheldItem(Struct, frozen=True):
    """Why a request is kept from a server, for those who write it down."""

    entry: ServerEntry
    item: str
    rule: str


class Answer(Struct, frozen=True):
    """Answer with this result, written as JSON."""

    result: bytes
    # Where a server has it, and the client may not.
    refusal: WithheldItem | None = None


class Work(Struct, frozen=True):
    """Answer with the result that this makes. It takes a while: not where other calls would wait for it."""

    make: Callable[[], bytes]


class Reject(Struct, frozen=True):
    """Answer with this JSON-RPC error."""

    code: int
    message: str
    data: object = None
    refusal: WithheldItem | None = None


class Forward(Struct, frozen=True, gc=False):
    """Send it to this server. `body` is the params object, still open at its end and without `_meta`."""

    entry: ServerEntry
    # The tool's, prompt's or resource's own name, for errors.
    item: str
    # Written as JSON.
    method: bytes
    body: bytes
    # A JSON-RPC error of the server becomes a result that an agent can read, instead of being relayed as it is.
    shows_errors: bool = False
    # Tokens that the result may take; 0 means no limit.
    result_budget: int = 0


class Open(Struct, frozen=True):
    """Have these servers say what they offer, then answer with it."""

    entries: tuple[ServerEntry, ...]
    request: OpenRequest
    # Whether servers that are known already are started behind the answer: opening a toolbox announces calls, looking
    # through all of them does not.
    starts_known: bool = True


class Learn(Struct, frozen=True):
    """Cannot be decided before this server has said what it offers. Decide again then.

    Where `others` may have it just as well, all are asked, and one that fails does not end the call."""

    entry: ServerEntry
    others: tuple[ServerEntry, ...] = ()
    # What the client called it, for errors.
    item: str = ""


class Load(Struct, frozen=True):
    """Cannot be decided before the manifests of these servers have been read. Decide again then."""

    entries: tuple[ServerEntry, ...]
    decide: Callable[[], Decision]


def withheld(entry: ServerEntry, tool: str) -> WithheldItem:
    """The refusal of a tool that differs from the lock file."""
    return WithheldItem(entry, tool, "lock")


Decision = Answer | Work | Reject | Forward | Open | Learn | Load
