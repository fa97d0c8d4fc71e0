"""What a face decides to do with a request: values, acted upon by the router."""

from __future__ import annotations

from msgspec import Struct

from mcp_workbench.catalog.entry import ServerEntry


class Answer(Struct, frozen=True):
    """Answer with this result, written as JSON."""

    result: bytes


class Reject(Struct, frozen=True):
    """Answer with this JSON-RPC error."""

    code: int
    message: str
    data: object = None


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


class Open(Struct, frozen=True):
    """Connect all servers of this toolbox, then answer with what they offer."""

    toolbox: str


class Learn(Struct, frozen=True):
    """Cannot be decided before this server has said what it offers. Decide again then."""

    entry: ServerEntry


Decision = Answer | Reject | Forward | Open | Learn
